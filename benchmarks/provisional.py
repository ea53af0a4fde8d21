"""Banks of questions without answers: the value of tests on guesses, and of their revision.

Each draw makes a bank of 200 items, guesses its parameters as `banks import --provisional` does,
tests five models at thetas -2 to 2 and 60 examinees with 60 items each on the guesses, revises the
guesses with those 60, and tests 60 new examinees on the result and on the true parameters.

    uv run python benchmarks/provisional.py --draws 100

| column | meaning | bar |
|---|---|---|
| tau | Kendall's tau of the five models, before any calibration; median over the draws | 0.8 |
| covers 0 | 95 % intervals of theta before, that hold the truth | |
| before | RMSE of theta on the guesses, against the true parameters' on the same answers | |
| after | the same once 60 examinees have answered | 1.15 |
| chosen | the same where each bank chooses its own 60 items for them; the first 20 draws | |
| covers | 95 % intervals of theta after, that hold the truth | |
| plain | the same if the most probable parameters were taken for known | |

Thetas are first aligned in mean and sd, which are unknown before a model has been tested.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau

from app.calibration.logistic.beliefs import ItemBeliefs, calibrate_beliefs
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.simulation.simulate import draw_scores, take
from app.engine.state import Response

N_ITEMS, LENGTH, N_EXAMINEES = 200, 60, 60
MODELS = np.linspace(-2.0, 2.0, 5)
CHOSEN = 20  # draws in which banks select their items, which takes most of the time
DESIGN = Design.from_dict(
    {"preset": "ability", "stopping": {"se": None, "min_items": LENGTH, "max_items": LENGTH}}
)
_Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of bank.

    Attributes:
        options: Options of each item; 0 where answers are free.
        spread: Standard deviation of the difficulties.
        mean: Mean of the difficulties.
        slopes: Mean of the log slopes.
        hints: Correlation of the author's guesses with the difficulties; None without guesses.
    """

    options: int = 0
    spread: float = 1.3
    mean: float = 0.0
    slopes: float = 0.4
    hints: float | None = 0.5


KINDS = {
    "free answers, fair guesses": Kind(),
    "four options": Kind(options=4),
    "no guesses of difficulty": Kind(hints=None),
    "good guesses": Kind(hints=0.8),
    "guesses that say nothing": Kind(hints=0.0),
    "guesses the wrong way round": Kind(hints=-0.5),
    "narrow": Kind(spread=0.5),
    "wide": Kind(spread=2.2),
    "too hard": Kind(mean=1.0, options=4),
    "flat items": Kind(slopes=0.0),
    "steep items": Kind(slopes=0.9),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Tests on guessed parameters.")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS))
    given = parser.parse_args()
    names = ("tau", "covers 0", "before", "after", "chosen", "covers", "plain")
    print(f"{'bank':30}" + "".join(f"{name:>10}" for name in names))
    for name in given.kind:
        started = time.process_time()
        table = np.array([drawn(KINDS[name], seed) for seed in range(given.draws)])
        squares = np.sqrt(np.nanmean(table[:, 4:] ** 2, axis=0))
        truth, own, before, after, chosen = squares
        shown = [
            np.median(table[:, 0]),
            table[:, 1].mean(),
            before / truth,
            after / truth,
            chosen / own,
            table[:, 2].mean(),
            table[:, 3].mean(),
        ]
        seconds = time.process_time() - started
        figures = "".join(f"{x:10.3f}" for x in shown)
        print(f"{name:30}{figures}   {seconds:5.0f} s", flush=True)


def drawn(kind: Kind, seed: int) -> list[float]:
    """Run one draw; return its figures, and root mean squared errors."""
    rng = np.random.default_rng([17, seed])
    true = bank_of(kind, rng)
    b = true.b
    guesses: Sequence[float | None] = [None] * N_ITEMS
    if kind.hints is not None:
        noise = np.sqrt(1 - kind.hints**2) * rng.normal(size=N_ITEMS)
        guesses = (kind.hints * (b - kind.mean) / kind.spread + noise).tolist()
    beliefs = ItemBeliefs.guessed(true.item_ids, [kind.options] * N_ITEMS, guesses)
    guessed = beliefs.bank()

    first, _ = estimates(guessed, by_lot(true, MODELS, rng))
    answers = by_lot(true, rng.normal(size=N_EXAMINEES), rng)
    learned = calibrate_beliefs(ScoreMatrix.of(answers, items=true.item_ids), beliefs)
    likely = learned.calibration.items
    plain = ItemBank.from_intercepts(
        a=likely.a, intercept=likely.intercept, c=likely.c, item_ids=true.item_ids
    )

    theta = rng.normal(size=N_EXAMINEES)
    answers = by_lot(true, theta, rng)
    found = [estimates(bank, answers) for bank in (true, guessed, learned.bank, plain)]
    of_truth, of_guesses, of_learned, of_plain = found
    return [
        float(kendalltau(first, MODELS).statistic),
        *(covered(*thetas, theta) for thetas in (of_guesses, of_learned, of_plain)),
        rmse(of_truth[0], theta),
        rmse(chosen(true, true, theta, rng), theta) if seed < CHOSEN else np.nan,
        rmse(of_guesses[0], theta),
        rmse(of_learned[0], theta),
        rmse(chosen(learned.bank, true, theta, rng), theta) if seed < CHOSEN else np.nan,
    ]


def bank_of(kind: Kind, rng: np.random.Generator) -> ItemBank:
    """Return a bank with its true parameters."""
    c = np.full(N_ITEMS, 1 / kind.options if kind.options else 0.0)
    return ItemBank.from_difficulties(
        a=np.exp(rng.normal(kind.slopes, 0.5, N_ITEMS)),
        b=rng.normal(kind.mean, kind.spread, N_ITEMS),
        c=c,
    )


def by_lot(true: ItemBank, thetas: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return answers of examinees to a random sample of items, NaN for the others."""
    answers = np.array(list(draw_scores(true, thetas, rng)))
    for row in answers:
        row[rng.permutation(N_ITEMS)[LENGTH:]] = np.nan
    return answers


def estimates(bank: ItemBank, answers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return thetas and SEs of answers by a bank."""
    test = DESIGN.build(bank)
    beliefs = [
        test.estimator.update(
            bank,
            test.estimator.start(bank),
            *(Response(ItemIndex(int(j)), row[j]) for j in np.flatnonzero(~np.isnan(row))),
        )
        for row in answers
    ]
    return np.array([b.theta for b in beliefs]), np.array([b.se for b in beliefs])


def chosen(
    bank: ItemBank, true: ItemBank, thetas: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return thetas of tests whose items a bank selects, answered by the true parameters."""
    test = DESIGN.build(bank)
    found = []
    for i, scores in enumerate(draw_scores(true, thetas, rng)):
        state, _ = take(test, scores, seed=[int(rng.integers(2**31)), i])
        found.append(state.belief.theta)
    return np.array(found)


def aligned(theta: FloatArray, reference: FloatArray) -> FloatArray:
    """Return thetas with the reference's mean and sd."""
    moved: FloatArray = (theta - theta.mean()) / theta.std() * reference.std() + reference.mean()
    return moved


def rmse(theta: FloatArray, reference: FloatArray) -> float:
    return float(np.sqrt(np.mean((aligned(theta, reference) - reference) ** 2)))


def covered(theta: FloatArray, se: FloatArray, reference: FloatArray) -> float:
    stretch = reference.std() / theta.std()
    return float(np.mean(abs(aligned(theta, reference) - reference) < _Z95 * se * stretch))


if __name__ == "__main__":
    main()
