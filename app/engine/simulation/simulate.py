"""Simulated tests: how well a design works, before any model is called.

An examinee is a row of scores, one per item of the bank, NaN where there is no answer. An item
without an answer is never asked. The rows are recorded scores of real examinees, or they are drawn
from the response model at a known theta.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.design.parts import EstimatorDesign, unusable
from app.engine.inference.diagnostics import exposure_rates, jaccard, overlap, use_counts
from app.engine.inference.orders import kendall, ranks, spearman
from app.engine.models.base import BoolArray
from app.engine.prediction.p_irt import Prediction
from app.engine.selection.base import Ask
from app.engine.state import CatState, Estimate, Response, Usage
from app.engine.stopping import Stop
from app.errors import InvalidInputError
from app.printable import percent

#: Simulated examinees in a round of the Sympson-Hetter fit, and the maximum number of rounds.
_FIT_EXAMINEES, _FIT_ROUNDS = 200, 15
#: Excess of an exposure rate that counts as sampling noise and needs no further round.
_FIT_TOLERANCE = 0.02
#: An examinee has moved if its two ranks differ by more than this.
_FAR_IN_RANKS = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """Expected cost of the calls; a field is None if it is unknown.

    Attributes:
        tokens: Tokens of each item, prompt and answer, shape (n_items,).
        usd: Price of each item, US dollars, shape (n_items,).
        pace_s: Seconds between the answers of a test, with all items in flight counted.
    """

    tokens: FloatArray | None = None
    usd: FloatArray | None = None
    pace_s: float | None = None

    def usage(self, item: ItemIndex) -> Usage:
        """Tokens and price of one call."""
        return Usage(
            tokens=0 if self.tokens is None else round(float(self.tokens[item])),
            usd=0.0 if self.usd is None else float(self.usd[item]),
        )


#: Calls of unknown cost.
FREE = Calls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A simulated test with the true score of its examinee.

    Attributes:
        state: Final state of the test, without pending items.
        prediction: Predicted score over all items that the examinee has an answer to.
        accuracy: True score over these items.
    """

    state: CatState
    stop: Stop
    estimate: Estimate
    prediction: Prediction
    accuracy: float

    @property
    def items(self) -> list[int]:
        """The scored items in the order of their answers."""
        return _items(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Precision of a design over many examinees, and its use of the bank.

    Thetas are compared with a reference: the true theta, or else the best available estimate.
    Coverage is that of the reported intervals. The fields `..._raw` hold the coverage of the
    model's own intervals, which is the same if no correction was learned.

    Attributes:
        theta_mae: Mean absolute error of theta, logits.
        theta_mae_se: Standard deviation of the absolute errors over sqrt(n); None for one examinee.
        theta_rmse: Root mean squared error of theta, logits.
        coverage95: Share of the 95 % intervals of theta that hold the reference.
        accuracy_mae: Mean absolute error of the predicted score.
        accuracy_coverage95: Share of the score's 95 % intervals that hold the true score.
        exposure_mean: Mean exposure rate of the active items; `exposure_max` is the highest.
        overlap: Mean share of the items of a test that another test asked, too.
        overlap_jaccard: Mean over pairs of tests of the common items' share of their union.
        spearman: Rank correlation of theta and the true score, as `kendall`; None if either is
            constant.
        moved_ranks: Share of examinees whose ranks by theta and by true score differ by over ten.
    """

    n_examinees: int
    items_mean: float
    items_max: int
    theta_mae: float
    theta_mae_se: float | None
    theta_bias: float
    theta_rmse: float
    coverage95: float
    coverage95_raw: float
    accuracy_mae: float
    accuracy_mae_se: float | None
    accuracy_coverage95: float
    accuracy_coverage95_raw: float
    exposure_mean: float
    exposure_max: float
    overlap: float
    overlap_jaccard: float
    spearman: float | None
    kendall: float | None
    moved_ranks: float


def draw_scores(
    bank: ItemBank, thetas: Iterable[float], rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Answers of simulated examinees to the whole bank, drawn from its model, row by row.

    In a bank of several abilities theta is the main one. The others are drawn from the population's
    conditional distribution given theta.
    """
    if bank.abilities is not None:
        model = bank.abilities
        for theta in thetas:
            abilities = model.population.draw(model.composite, theta, rng)
            expected = model.items.expected_score(abilities)
            yield (rng.random(expected.shape) < expected).astype(np.float64)
        return
    for theta in thetas:
        yield bank.model.draw_scores(bank.parameters, theta, rng)


def prior_thetas(
    bank: ItemBank, prior: EstimatorDesign, n: int, rng: np.random.Generator
) -> FloatArray:
    """Thetas of examinees, drawn from the prior of tests on a bank, shape (n,).

    In a bank of several abilities they come from the population, whatever the design's prior is.
    """
    mean, sd = prior.prior_mean, prior.prior_sd
    if bank.abilities is not None:
        mean, sd = bank.abilities.population.along(bank.abilities.composite)
    return rng.normal(mean, sd, n)


def take(
    test: AdaptiveTest,
    scores: FloatArray,
    *,
    seed: Sequence[int],
    concurrency: int = 1,
    watch: Callable[[CatState], object] | None = None,
    calls: Calls = FREE,
) -> tuple[CatState, Stop]:
    """One examinee's test, answered from a row of scores, shape (n_items,), NaN for no answer.

    Each step draws from `[*seed, step]`. Of the `concurrency` items in flight, the one asked first
    is answered first. `watch` gets the state after each answer. Budgets and time limits hold for
    the cost of the calls.

    Raises:
        InvalidInputError: The row has another length, or no answer at all.
    """
    answered = ~np.isnan(scores)
    if scores.shape != (test.bank.n_items,) or not answered.any():
        raise InvalidInputError(
            f"An examinee is a row of {test.bank.n_items} scores, at least one of them a number; "
            f"got shape {scores.shape} with {int(answered.sum())} numbers."
        )
    if not answered.all():
        test = replace(test, pool=test.pool.narrowed(answered))
    state, stop = test.start(), None
    while True:
        while stop is None and len(state.pending) < state.may_be_pending(concurrency):
            step = test.ask(
                state,
                np.random.default_rng([*seed, state.n_asked + 1]),
                elapsed_s=state.n_scored * (calls.pace_s or 0.0),
            )
            if isinstance(step, Ask):
                state = state.with_pending(step.item, step.probability)
            else:
                stop = step
        if not state.pending and stop is not None:
            return state, stop
        item = state.pending[0]
        state = test.tell(state, Response(item, float(scores[item]), calls.usage(item)))
        stop = None  # the end may have rested on expected answers, which differ from the real ones
        if watch is not None:
            watch(state)


def judge(
    test: AdaptiveTest,
    scores: FloatArray,
    state: CatState,
    stop: Stop,
) -> Taken:
    """A finished test compared with all recorded scores of its examinee."""
    unknown = np.flatnonzero(np.isnan(scores)).tolist()
    return Taken(
        state=state,
        stop=stop,
        estimate=test.estimate(state),
        prediction=test.predict(state, unknown),
        accuracy=float(np.nanmean(scores)),
    )


def simulate(
    test: AdaptiveTest,
    rows: Iterable[FloatArray],
    *,
    seed: int,
    concurrency: int = 1,
) -> list[Taken]:
    """`take` a test for each row of scores; examinee i draws from `[seed, i, step]`."""
    return [
        judge(test, row, *take(test, row, seed=[seed, i], concurrency=concurrency))
        for i, row in enumerate(rows)
    ]


def summarise(
    taken: Sequence[Taken], references: Sequence[float] | FloatArray, test: AdaptiveTest
) -> Summary:
    """Errors against the reference thetas, coverage, and use of the bank.

    Raises:
        InvalidInputError: There is no test, or not exactly one reference for each.
    """
    if not taken or len(taken) != len(references):
        raise InvalidInputError(
            f"A summary needs tests and a reference for each, got {len(taken)} and "
            f"{len(references)}."
        )
    errors = np.array([one.estimate.theta for one in taken]) - np.asarray(references)
    truths = [float(reference) for reference in references]
    estimates, predictions = [one.estimate for one in taken], [one.prediction for one in taken]
    accuracies = [one.accuracy for one in taken]
    score_errors = np.array([one.prediction.value - one.accuracy for one in taken])
    items = [one.items for one in taken]
    rates = exposure_rates(items, test.bank.n_items)
    in_use = rates if test.pool.active is None else rates[test.pool.active]
    thetas = np.array([one.theta for one in estimates])
    rho, tau, moved = ranks_alike(thetas, accuracies)
    return Summary(
        n_examinees=len(taken),
        items_mean=float(np.mean([len(one) for one in items])),
        items_max=max(len(one) for one in items),
        theta_mae=float(np.abs(errors).mean()),
        theta_mae_se=_standard_error(np.abs(errors)),
        theta_bias=float(errors.mean()),
        theta_rmse=float(np.sqrt((errors**2).mean())),
        coverage95=coverage([(one.lo, one.hi) for one in estimates], truths),
        coverage95_raw=coverage([one.raw or (one.lo, one.hi) for one in estimates], truths),
        accuracy_mae=float(np.abs(score_errors).mean()),
        accuracy_mae_se=_standard_error(np.abs(score_errors)),
        accuracy_coverage95=coverage([(one.lo, one.hi) for one in predictions], accuracies),
        accuracy_coverage95_raw=coverage(
            [one.raw or (one.lo, one.hi) for one in predictions], accuracies
        ),
        exposure_mean=float(in_use.mean()),
        exposure_max=float(in_use.max()),
        overlap=overlap(use_counts(items, test.bank.n_items), len(items)),
        overlap_jaccard=jaccard(items, test.bank.n_items),
        spearman=rho,
        kendall=tau,
        moved_ranks=moved,
    )


def _standard_error(values: FloatArray) -> float | None:
    return None if values.size < 2 else float(values.std(ddof=1)) / values.size**0.5


def ranks_alike(
    thetas: FloatArray, accuracies: Sequence[float] | FloatArray
) -> tuple[float | None, float | None, float]:
    """Spearman's and Kendall's correlation of two orders, and the share of moved examinees.

    The orders are those by theta and by true score; see `Summary`.
    """
    scores = np.asarray(accuracies)
    moved = np.abs(ranks(thetas) - ranks(scores)) > _FAR_IN_RANKS
    return spearman(thetas, scores), kendall(thetas, scores), float(np.mean(moved))


def coverage(intervals: Sequence[tuple[float, float]], truths: Sequence[float]) -> float:
    """Share of the intervals that hold the truth."""
    pairs = zip(intervals, truths, strict=True)
    # The interval of a fully known score has no width: a rounding error must not count as a miss.
    return float(np.mean([lo - 1e-12 <= true <= hi + 1e-12 for (lo, hi), true in pairs]))


def fit_acceptance(
    design: Design,
    bank: ItemBank,
    *,
    seed: int,
    active: BoolArray | None = None,
    tags: Sequence[Collection[str]] | None = None,
    costs: FloatArray | None = None,
) -> FloatArray:
    """Sympson-Hetter acceptance probabilities that keep exposure rates near the cap or below it.

    Each round simulates tests of examinees from the design's prior. After a round, the acceptance
    probability of an item with exposure rate r > cap is multiplied by cap / r; that of an item
    below the cap rises. The result is that of the best round. This takes seconds to minutes: fit
    once for a design and a bank. The design's concurrency is simulated, too; `Design.build` takes
    the probabilities, in (0, 1], shape (n_items,), as `exposure`, and the facts as here.

    Raises:
        InvalidInputError: The design has no exposure cap, or tests of its length cannot keep it.
    """
    if design.selection.exposure is None:
        raise InvalidInputError("The design has no exposure cap: /selection/exposure is missing.")
    cap = design.selection.exposure.max_rate
    rng = np.random.default_rng(seed)
    acceptance = best = np.ones(bank.n_items)
    lowest = math.inf
    for fit_round in range(_FIT_ROUNDS):
        test = design.build(bank, active=active, tags=tags, costs=costs, exposure=acceptance)
        thetas = prior_thetas(bank, design.estimator, _FIT_EXAMINEES, rng)
        items = [
            _items(take(test, row, seed=[seed, fit_round, i], concurrency=design.concurrency)[0])
            for i, row in enumerate(draw_scores(bank, thetas, rng))
        ]
        rates = exposure_rates(items, bank.n_items)
        _require_possible(cap, rates, bank.n_items if active is None else int(active.sum()))
        if rates.max() < lowest:
            best, lowest = acceptance, float(rates.max())
        if lowest <= cap + _FIT_TOLERANCE:
            break
        # An unused item would jump to full acceptance; at most doubling keeps the rounds stable.
        acceptance = np.minimum(acceptance * (cap / np.maximum(rates, cap / 2)), 1.0)
    return best


def _require_possible(cap: float, rates: FloatArray, n_items: int) -> None:
    """Refuse a cap below the mean exposure rate of the bank's items.

    No test could keep such a cap, and the fit would pass off the most even use as what was asked.
    """
    asked = float(rates.sum())
    if cap < asked / n_items - _FIT_TOLERANCE:
        raise unusable(
            "/selection/exposure/max_rate",
            f"tests of {asked:.3g} items on a bank of {n_items:,} ask each item in "
            f"{percent(asked / n_items, 1)} of them on average, so that {cap:.3g} cannot hold",
        )


def _items(state: CatState) -> list[int]:
    return [response.item for response in state.responses]
