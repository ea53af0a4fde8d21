"""Coverage of intervals for differences of two abilities, for models unlike the reference models.

    uv run python benchmarks/pairs_transfer.py [--data ../shared/data/transfer] [--quick --draws 4]

Every matrix of the folder is learned from in three ways: from a random three quarters, without the
strongest fifth, and from the weakest half; minus a random sixth, held out where enough models are
left to learn intervals. They are calibrated as over REST, with only that part of the report card
from which intervals are learned. Each model of that sixth, and of the rest (random ones, the
strongest fifth, or the strongest 30 %), takes the default test, answered from its own row. All
pairs are compared: two beyond the reference models, one beyond and one like them, two like them.
The truth is the difference of the weighted likelihood estimates from the whole rows, on the same
bank.

Per kind of pair, and as means over the matrices: coverage of the 95 % intervals, their mean width
in logits, share of the pairs decided at 95 %, and share in the wrong order of all and of the
decided pairs; by abilities as stated (`stated`), and by the model alone (`model`).
A `ranking` decides by the answers alone, at any of its looks from 10 to 100 answers, and gives no
interval. `placed` is `stated` if the answers placed every model.

With --quick it takes some minutes: of each matrix only 300 random items and at most 100 models are
used, evenly by their scores. All pairs of a draw share its bank and about 20 models; three extreme
ones are in a quarter of the pairs. With --draws items and models are drawn several times, and the
value after ± is the standard error over the draws. `alone` is the coverage of the intervals of
single abilities.
"""

import argparse
import os
import time
from collections import defaultdict
from dataclasses import replace
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
from app.engine.ranking.ranking import LAST
from app.engine.ranking.ranks import Look, ranks_of
from app.engine.simulation.simulate import take

#: Shares of the models, weakest first: learned from up to the first, tested from the second on.
SPLITS = {"random": (0.75, 0.75), "strongest fifth": (0.8, 0.8), "weakest half": (0.5, 0.7)}
ONE_IN = 6  # one reference model in six is held out
LEAST_KNOWN = 20  # with fewer, the held-out sixth is learned from as well
QUICK = (100, 300)  # models and items


def split_of(scores, split, rng):
    """Return rows learned from, rows like them, and rows of the others."""
    order = np.argsort(scores.mean(axis=1), kind="stable")
    if split == "random":
        order = rng.permutation(order)
    known, others = (int(share * len(order)) for share in SPLITS[split])
    like = rng.choice(order[:known], known // ONE_IN, replace=False)
    rest = np.setdiff1d(order[:known], like)
    return rest if len(rest) >= LEAST_KNOWN else order[:known], like, order[others:]


def measured(version, rows):
    """Return abilities after the default test, those by the answers alone, and true thetas."""
    bank, learned, curves, kept = version
    rows = rows[:, kept]
    test = Design.from_dict({"preset": "ability"}).build(bank, correction=learned, curves=curves)
    truths, _ = whole_bank_abilities(bank, rows)
    prior, found = test.estimator.prior_in(bank), []
    for i, row in enumerate(rows):
        state, _ = take(test, row, seed=[0, i])
        stretch = test.correction and test.correction.theta
        theta, se = state.belief.theta, state.belief.se
        ability = Ability(
            theta=theta,
            se=se,
            n_items=state.n_scored,
            stretch=stretch,
            place=curves.place(state.responses),
        )
        found.append((ability, ability.by_answers(prior), truths[i]))
    return found


def compared(first, second, evidence):
    """Return for each method lower and upper end, and the verdict (1, -1, 0)."""
    told = of_abilities(first, second)
    sign = {Verdict.ABOVE: 1, Verdict.BELOW: -1, Verdict.UNDECIDED: 0}[told.verdict]
    found = {"stated": (told.lo, told.hi, sign)}
    first, second = replace(first, place=None), replace(second, place=None)
    told = of_abilities(first, second)
    sign = {Verdict.ABOVE: 1, Verdict.BELOW: -1, Verdict.UNDECIDED: 0}[told.verdict]
    found["placed"] = (told.lo, told.hi, sign)
    one, other = first.stated(), second.stated()
    gap = one.minus(other)
    middle, half = gap.estimate, 1.959964 * np.hypot(first.se, second.se)
    sign = int(np.sign(middle)) if abs(middle) > half else 0
    found["model"] = (middle - half, middle + half, sign)
    (pair,) = ranks_of([one, other], looks=[Look(evidence, LAST)]).pairs
    found["ranking"] = (np.nan, np.nan, (1 if pair.above == 0 else -1) if pair.decided else 0)
    return found


def smaller(scores, rng):
    """Return some models, evenly by their scores, and some items."""
    models, items = QUICK
    order = np.argsort(scores.mean(axis=1), kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(models, len(order))).astype(int)]
    columns = rng.permutation(scores.shape[1])[:items]
    return scores[np.sort(rows)][:, np.sort(columns)]


def pairs_of(like, beyond, most, rng):
    """Return the pairs of each kind."""
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
    """Return by method rows of (holds, width, decided, wrong)."""
    found = defaultdict(list)
    for (first, alone, its), (second, others_alone, others) in pairs:
        true = its - others
        by_way = compared(first, second, [alone, others_alone])
        for way, (lo, hi, sign) in by_way.items():
            wrong = sign * true < 0
            found[way].append((lo <= true <= hi, hi - lo, sign != 0, wrong))
    return found


def alone(group):
    """Return the share of intervals of single abilities that hold."""
    stated = [(ability.stated().interval, truth) for ability, _, truth in group]
    return np.mean([lo <= truth <= hi for (lo, hi), truth in stated])


def show(name, n_pairs, found):
    """Print means over draws or matrices, each (n, 4)."""
    for way, rows in found.items():
        held, width, decided, wrong = np.mean(rows, axis=0)
        spread = np.std(rows, axis=0, ddof=1)[0] / len(rows) ** 0.5 if len(rows) > 1 else np.nan
        error = "" if np.isnan(spread) else f" ± {spread:.1%}"
        of_decided = wrong / decided if decided else 0.0
        holds = "" if np.isnan(width) else f" {held:.1%}{error} hold ({width:.2f}),"
        print(
            f"{name}, {n_pairs}, {way}:{holds} {decided:.0%} decided, wrong {wrong:.1%} of all, "
            f"{of_decided:.1%} of these",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--pairs", type=int, default=1000, help="most pairs of a kind and matrix")
    parser.add_argument("--model", default="2pl", help="response model")
    parser.add_argument("--quick", action="store_true", help="fewer models and items")
    parser.add_argument("--splits", nargs="*", default=SPLITS, choices=SPLITS)
    parser.add_argument("--draws", type=int, default=1, help="of models and items, with --quick")
    arguments = parser.parse_args()
    total = defaultdict(lambda: defaultdict(list))
    for name, scores in matrices(arguments.data, arguments.only):
        for split in arguments.splits:
            began = time.perf_counter()
            drawn, singles = defaultdict(lambda: defaultdict(list)), defaultdict(list)
            for draw in range(arguments.draws):
                rng = np.random.default_rng(1 + draw)
                some = smaller(scores, np.random.default_rng(draw)) if arguments.quick else scores
                known, like, beyond = split_of(some, split, rng)
                version = calibrated(some[known], arguments.model, card=False)
                groups = [measured(version, some[rows]) for rows in (like, beyond)]
                for kind, group in zip(("alike", "beyond"), groups, strict=True):
                    singles[kind].append(alone(group))
                for kind, pairs in pairs_of(*groups, arguments.pairs, rng).items():
                    for way, rows in figures(pairs).items():
                        drawn[kind][way].append(np.mean(rows, axis=0))
            for kind, held in singles.items():
                print(f"{name}, {split}, {kind}: {np.mean(held):.1%} hold alone", flush=True)
            for kind, by_way in drawn.items():
                some = {way: by_way[way] for way in ("stated", "placed", "model")}
                show(f"{name}, {split}, {kind}", f"{arguments.draws} draws", some)
                for way, rows in by_way.items():
                    total[split, kind][way].append(np.mean(rows, axis=0))
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
    print()
    for (split, kind), by_way in total.items():
        show(f"{split}, {kind}", f"{len(by_way['stated'])} matrices", by_way)


if __name__ == "__main__":
    main()
