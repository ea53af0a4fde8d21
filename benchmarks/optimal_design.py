"""How well few items predict scores: on tasks never asked, and at a given cost of items.

    uv run python benchmarks/optimal_design.py [--data ../shared/data] [--held-out 300]

Tasks never asked: two of three tasks are asked and the third is predicted, for models that nothing
was learned from: random ones, the strongest fifth, or the strongest 30 % where only the weakest
half is known. Items are V-optimal; `combined` is the score of sessions, `linear` that of the score
model alone. Beside them are ridge regression on random items (with its best penalty in hindsight),
the 2PL with maximum information, and the mean of the reference models.

Costs: heavy-tailed costs of items, 5 draws each, and the lengths of real prompts where a file of
samples is given, resampled to the items; what it takes to reach the error of 30 items when the
choice knows the costs, and when it does not.
"""

import argparse
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np

from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.multidimensional.score_model import covariance_model, learn_scores
from app.engine.bank import ItemIndex
from app.engine.design.design import Design
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, prior_doubt
from app.engine.prediction.score_model import BlendedScore, ScorePredictor, Target, short_form
from app.engine.simulation.simulate import take
from app.engine.state import Response
from app.exchange.responses import read_responses

TASKS = ("arc", "gsm8k", "winogrande")


def joined(folder: Path):
    tables = {
        task: read_responses(gzip.decompress((folder / f"{task}.csv.gz").read_bytes()))
        for task in TASKS
    }
    names = sorted(set.intersection(*(set(table.examinees) for table in tables.values())))
    scores, tags = [], []
    for task, table in tables.items():
        row = {name: i for i, name in enumerate(table.examinees)}
        scores.append(table.scores[[row[name] for name in names]])
        tags += [task] * len(table.items)
    return np.hstack(scores), np.array(tags)


def tasks_never_asked(folder: Path, held_out: int) -> None:
    scores, tags = joined(folder)
    order = np.random.default_rng(0).permutation(len(scores))
    weakest_first, n = np.argsort(scores.mean(axis=1), kind="stable"), len(scores)
    splits = {
        "at random": (order[held_out:], order[:held_out]),
        "strongest fifth": np.split(weakest_first, [int(0.8 * n)]),
        "weakest half -> strongest 30 %": (weakest_first[: n // 2], weakest_first[int(0.7 * n) :]),
    }
    for split, (known, tested) in splits.items():
        some = tested[np.linspace(0, len(tested) - 1, min(len(tested), held_out)).astype(int)]
        print(f"{split}: {len(known)} models known, {len(some)} tested; mean absolute error")
        one_split(scores[known], scores[some], tags)


def one_split(known, tested, tags) -> None:
    telling = known.std(axis=0) > 0  # the 2PL has no parameters for the others
    tested, known, tags = tested[:, telling], known[:, telling], tags[telling]
    rng, ids = np.random.default_rng(0), tuple(str(i) for i in range(len(tags)))
    bank = calibrate(
        ScoreMatrix.of(known, items=ids), CalibrationSettings(with_errors=False)
    ).bank()
    belief = Design.from_dict({"preset": "ability"}).build(bank).start().belief
    for task in TASKS:
        counted = tags == task
        weights = counted / counted.sum()
        truth = tested @ weights
        learned = learn_scores(known, {task: weights}, rng, askable=~counted)
        curves = learn_curves(known, rng)
        target = learned.targets[task]
        form = short_form(target, 64, np.where(counted, np.inf, 1.0))
        explanations = Explanations.of(curves.curves, prior_doubt(curves.n_reference))
        free = ScoreEstimator(explanations, weights, ~counted)
        of_the_like = Explanations.of(curves.curves.of_the_like(), explanations.prior)
        alike = replace(free, explanations=of_the_like)
        linear = ScorePredictor(target)
        ways = {"combined": BlendedScore((alike, free), linear), "linear": linear}
        random = rng.permutation(np.flatnonzero(~counted))
        prior = np.abs(truth - (known @ weights).mean()).mean()
        for count in (16, 64):
            found = {}
            for name, way in ways.items():
                told = [
                    way.predict(
                        bank,
                        [Response(ItemIndex(j), float(row[j])) for j in form[:count]],
                        belief,
                    )
                    for row in tested
                ]
                value, lo, hi = np.array([(one.value, one.lo, one.hi) for one in told]).T
                held = np.mean((lo <= truth) & (truth <= hi))
                found[name] = f"{name} {np.abs(value - truth).mean():.4f} ({held:.1%})"
            print(
                f"{task:>11} {count:3d} items: {', '.join(found.values())}, ridge on random items "
                f"{ridge(known, tested, random[:count], weights):.4f}, 2PL maximum information "
                f"{two_pl(bank, tested, ~counted, counted, count):.4f}, mean {prior:.4f}",
                flush=True,
            )


def ridge(known, tested, asked, weights) -> float:
    mean, about = known.mean(axis=0), known - known.mean(axis=0)
    errors = []
    for penalty in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0):
        normal = about[:, asked].T @ about[:, asked] + penalty * np.eye(len(asked))
        gain = np.linalg.solve(normal, about[:, asked].T @ (about @ weights))
        value = mean @ weights + (tested[:, asked] - mean[asked]) @ gain
        errors.append(float(np.abs(value - tested @ weights).mean()))
    return min(errors)


def two_pl(bank, tested, active, counted, count: int) -> float:
    design = Design.from_dict(
        {"preset": "ability", "stopping": {"se": None, "min_items": count, "max_items": count}}
    )
    test = design.build(bank, active=active)
    missed = []
    for i, row in enumerate(tested):
        state, _ = take(test, row, seed=[0, i])
        expected = state.belief.weights @ bank.expected_score(
            state.belief.nodes, np.flatnonzero(counted)
        )
        missed.append(abs(expected.mean() - row[counted].mean()))
    return float(np.mean(missed))


def costs(folder: Path, lengths: np.ndarray | None, draws: int = 5, count: int = 30) -> None:
    scores = read_responses(gzip.decompress((folder / "responses.csv.gz").read_bytes())).scores
    n, j = scores.shape
    weights = np.full(j, 1 / j)
    truth = scores @ weights
    kinds = {
        "log-normal, sigma 1": lambda rng: rng.lognormal(0.0, 1.0, j),
        "log-normal, sigma 1.5": lambda rng: rng.lognormal(0.0, 1.5, j),
        "Pareto, alpha 1.2": lambda rng: 1.0 + rng.pareto(1.2, j),
        "Pareto, alpha 2": lambda rng: 1.0 + rng.pareto(2.0, j),
    }
    if lengths is not None:
        kinds["lengths of real prompts"] = lambda rng: rng.choice(lengths, j)
    print(f"{n} models, {j} items: cost saved at the error of {count} items that ignore costs")
    for kind, draw in kinds.items():
        saved = []
        for seed in range(draws):
            price = draw(np.random.default_rng(seed))
            plain, aware = curves(scores, truth, weights, price)
            error = plain[1][count - 1]
            reached = next((cost for cost, found in zip(*aware, strict=True) if found <= error), 0)
            saved.append(1 - reached / plain[0][count - 1] if reached else np.nan)
        print(
            f"{kind:>24}: {np.nanmean(saved):.0%} ({np.nanmin(saved):.0%} to "
            f"{np.nanmax(saved):.0%}; {int(np.isnan(saved).sum())} draws did not reach it)",
            flush=True,
        )


def prompt_lengths(paths: list[Path]) -> np.ndarray | None:
    """Return the number of characters of prompts in sample files of lm-evaluation-harness."""
    found = []
    for path in paths:
        for line in path.read_text().splitlines():
            first = next(iter(json.loads(line)["arguments"].values()))
            found.append(len(first["arg_0"]))
    return np.array(found, float) if found else None


def curves(scores, truth, weights, price, folds: int = 4, most: int = 160):
    """Return mean cost and mean error by number of items, without and with regard to costs."""
    found = []
    for known_price in (None, price):
        spent, missed = np.zeros(most), np.zeros(most)
        for k in range(folds):
            held = np.arange(len(scores)) % folds == k
            target = Target(covariance_model(scores[~held], 0.1), weights)
            form = short_form(target, most, known_price)
            for i in range(most):
                asked = form[: i + 1]
                value, _ = target.predict(asked, scores[np.ix_(held, asked)])
                missed[i] += np.abs(value - truth[held]).mean() / folds
                spent[i] += price[asked].sum() / folds
        found.append((spent, missed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--held-out", type=int, default=300)
    arguments = parser.parse_args()
    if arguments.held_out:
        tasks_never_asked(arguments.data / "tiny", arguments.held_out)
    costs(arguments.data / "arc_mixtral", prompt_lengths([*arguments.data.glob("lm_eval/*.jsonl")]))


if __name__ == "__main__":
    main()
