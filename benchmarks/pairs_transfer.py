"""How often differences of two abilities hold, of models unlike those calibrated.

    uv run python benchmarks/pairs_transfer.py [--data ../shared/data/transfer] [--only NAME ...]

Every matrix of the folder is learned from in three ways: from three quarters at random, without the
strongest fifth, and from the weakest half; always less a sixth, held out at random. The models
learned from are calibrated as over REST, with a report card. Each model held out, and of those not
learned from the rest at random, the strongest fifth, or the strongest 30 %, takes the default test,
answered from its own row. All pairs are compared: of two beyond, of one beyond and one like those
calibrated, of two like them. True is the difference of the weighted likelihood estimates from the
whole rows, on the same bank.

Per kind of pair: share of the 95 % intervals that hold, their mean width in logits, share of the
pairs decided at 95 %, and of all pairs and of the decided ones those in the wrong order; by
abilities as they are stated (`stated`), by the same errors about the estimates (`unmoved`, as
though none leaned), with doubts about the leaning that are independent of each other (`apart`),
and by the model alone (`model`).
"""

import argparse
import os
import time
from collections import defaultdict
from itertools import combinations, product
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from theta_transfer import calibrated
from transfer import matrices

from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.inference.comparison import Verdict, of_abilities
from app.engine.prediction.ability import Ability
from app.engine.simulation.simulate import take

#: Shares of the models, weakest first: learned from up to the first, tested from the second on.
SPLITS = {"random": (0.75, 0.75), "strongest fifth": (0.8, 0.8), "weakest half": (0.5, 0.7)}
ONE_IN = 6  # of those that would be learned from is held out


def split_of(scores, split, rng):
    """Rows learned from, rows like them, and rows of the others."""
    order = np.argsort(scores.mean(axis=1), kind="stable")
    if split == "random":
        order = rng.permutation(order)
    known, others = (int(share * len(order)) for share in SPLITS[split])
    like = rng.choice(order[:known], known // ONE_IN, replace=False)
    return np.setdiff1d(order[:known], like), like, order[others:]


def measured(version, rows):
    """Abilities after the default test, and true thetas."""
    bank, learned, curves, kept = version
    rows = rows[:, kept]
    test = Design.from_dict({}).build(bank, learned=learned, curves=curves)
    truths, _ = whole_bank_abilities(bank, rows)
    found = []
    for i, row in enumerate(rows):
        state, _ = take(test, row, seed=[0, i])
        stretch = test.correction and test.correction.theta
        theta, se = state.belief.theta, state.belief.se
        found.append(
            (Ability(theta=theta, se=se, n_items=state.n_scored, stretch=stretch), truths[i])
        )
    return found


def compared(first, second):
    """By each way: lower and upper end, and which is said to be above (1, -1, 0)."""
    told = of_abilities(first, second)
    sign = {Verdict.ABOVE: 1, Verdict.BELOW: -1, Verdict.UNDECIDED: 0}[told.verdict]
    found = {"stated": (told.lo, told.hi, sign)}
    one, other = first.stated(), second.stated()
    gap = one.minus(other)
    for way, middle, sd in (
        ("unmoved", gap.estimate, np.hypot(one.sd, other.sd)),
        ("apart", gap.middle, np.hypot(one.sd, other.sd)),
        ("model", gap.estimate, np.hypot(first.se, second.se)),
    ):
        half = 1.959964 * sd
        sign = int(np.sign(middle)) if abs(middle) > half else 0
        found[way] = (middle - half, middle + half, sign)
    return found


def pairs_of(like, beyond, most, rng):
    """The pairs of each kind."""
    kinds = {
        "beyond": list(combinations(beyond, 2)),
        "one beyond": list(product(beyond, like)),
        "alike": list(combinations(like, 2)),
    }
    return {
        kind: [pairs[i] for i in rng.permutation(len(pairs))[:most]]
        for kind, pairs in kinds.items()
    }


def figures(pairs):
    """By way: rows of (holds, width, decided, wrong)."""
    found = defaultdict(list)
    for (first, its), (second, others) in pairs:
        true = its - others
        for way, (lo, hi, sign) in compared(first, second).items():
            wrong = sign * true < 0
            found[way].append((lo <= true <= hi, hi - lo, sign != 0, wrong))
    return found


def show(name, found):
    for way, rows in found.items():
        held, width, decided, wrong = np.mean(rows, axis=0)
        of_decided = wrong / decided if decided else 0.0
        print(
            f"{name}, {way}: {held:.1%} of {len(rows)} hold ({width:.2f}), {decided:.0%} decided, "
            f"wrong {wrong:.1%} of all, {of_decided:.1%} of these",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--pairs", type=int, default=1000, help="most pairs of a kind and matrix")
    parser.add_argument("--model", default="2pl", help="response model")
    arguments = parser.parse_args()
    total = defaultdict(lambda: defaultdict(list))
    for name, scores in matrices(arguments.data, arguments.only):
        for split in SPLITS:
            began, rng = time.perf_counter(), np.random.default_rng(1)
            known, like, beyond = split_of(scores, split, rng)
            version = calibrated(scores[known], arguments.model)
            groups = [measured(version, scores[rows]) for rows in (like, beyond)]
            for kind, pairs in pairs_of(*groups, arguments.pairs, rng).items():
                found = figures(pairs)
                show(f"{name}, {split}, {kind}", {"stated": found["stated"]})
                for way, rows in found.items():
                    total[split, kind][way] += rows
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
    print()
    for (split, kind), found in total.items():
        show(f"{split}, {kind}", found)


if __name__ == "__main__":
    main()
