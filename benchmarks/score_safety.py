"""The default test where curves could mislead: few or no reference models, and unlike examinees.

    uv run python benchmarks/score_safety.py [few|bank|unlike ...] [--data ../shared/data/transfer]

Error of the score as a share of that of the mean of as many random questions, mean and worst
matrix; and how many 95 % intervals hold, mean and lowest. Tests are answered from records.

| part | learned from | tested |
|---|---|---|
| few | 0, 3, 5, 8, 12, 19 models at random | others of the same matrix |
| bank | nobody: parameters of the same items, of others, or none | a quarter |
| unlike | three quarters of the models | the rest, with other answers |

Unlike examinees answer easy questions as their record does the hard ones and vice versa (reversed),
or all in another order (shuffled), or have all of a random 30 % of the questions right (leaked), or
of the hardest 30 % (hardest leaked).
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from transfer import matrices, random_error, score_test

from app.calibration.multidimensional.score_curves import learn_curves
from app.engine.bank import ItemBank
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.simulation.simulate import take

PARTS = ("few", "bank", "unlike")
FEW = (0, 3, 5, 8, 12, 19)


def tested(learned, rows, count, seed):
    """Return value, lo and hi of each row after so many questions."""
    test = score_test(learned, count)
    ends = [take(test, row, seed=[seed, i])[0] for i, row in enumerate(rows)]
    told = [test.predict(end) for end in ends]
    return np.array([(one.value, one.lo, one.hi) for one in told]).T


def figures(told, rows, count):
    value, lo, hi = told
    truth = rows.mean(axis=1)
    held = float(np.mean((lo - 1e-9 <= truth) & (truth <= hi + 1e-9)))
    return np.abs(value - truth).mean() / random_error(rows, count), held


def learned_from(scores):
    return learn_curves(scores, np.random.default_rng(0))


def by_parameters(scores, rng, kind):
    """Return curves of a bank without known answers."""
    curves = learned_from(scores).curves
    a, intercept = curves.slopes[0], curves.intercept
    if kind == "none":
        a, intercept = np.ones(a.size), np.zeros(a.size)
    elif kind == "of other items":
        order = rng.permutation(a.size)
        a, intercept = a[order], intercept[order]
    return LearnedCurves.of_parameters(ItemBank.from_intercepts(a=a, intercept=intercept))


def unlike(kind, rows, known, rng):
    ease = np.argsort(known.mean(axis=0), kind="stable")
    rows = rows.copy()
    if kind == "reversed":
        rows[:, ease] = rows[:, ease[::-1]]
    elif kind == "shuffled":
        rows = np.stack([row[rng.permutation(row.size)] for row in rows])
    else:
        leaked = rng.permutation(ease.size) if kind == "leaked" else ease
        rows[:, leaked[: int(0.3 * ease.size)]] = 1.0
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--count", type=int, default=50, help="questions of a test")
    parser.add_argument("--draws", type=int, default=20, help="of reference models")
    parser.add_argument("--models", type=int, default=12, help="tested in each draw")
    arguments = parser.parse_args()
    found = defaultdict(lambda: defaultdict(list))
    count = arguments.count
    for name, scores in matrices(arguments.data, ()):
        for draw in range(arguments.draws if "few" in arguments.parts else 0):
            rng = np.random.default_rng([draw, 1])
            order = rng.permutation(len(scores))
            rows = scores[order[FEW[-1] :][: arguments.models]]
            for known in FEW:
                curves = learned_from(scores[order[:known]]) if known else None
                curves = curves or by_parameters(scores[order[:1]], rng, "none")
                told = tested(curves, rows, count, draw)
                found[f"{known} reference models"][name].append(figures(told, rows, count))
        order = np.random.default_rng(1).permutation(len(scores))
        known, rest = scores[order[: int(0.75 * len(scores))]], order[int(0.75 * len(scores)) :]
        rows, rng = scores[rest[: 2 * arguments.models]], np.random.default_rng(2)
        for kind in ("same", "of other items", "none") if "bank" in arguments.parts else ():
            curves = by_parameters(known, rng, kind)
            for seed in range(2):
                told = tested(curves, rows, count, seed)
                found[f"parameters: {kind}"][name].append(figures(told, rows, count))
        if "unlike" in arguments.parts:
            curves = learned_from(known)
            for kind in ("reversed", "shuffled", "leaked", "hardest leaked"):
                for seed in range(2):
                    others = unlike(kind, rows, known, rng)
                    told = tested(curves, others, count, seed)
                    found[kind][name].append(figures(told, others, count))
    print(f"{'':>24} of random  worst   hold  lowest")
    for case, by_name in found.items():
        each = np.array([np.mean(by_name[name], axis=0) for name in by_name])
        error, held = each.T
        print(
            f"{case:>24}   {error.mean():6.2f}  {error.max():6.2f}  {held.mean():5.1%}  "
            f"{held.min():5.1%}"
        )


if __name__ == "__main__":
    main()
