"""Error rates of a gate for releases stronger than all reference models of its bank.

    uv run python benchmarks/gates.py [--data ../shared/data/transfer] [--releases 500]

Every response matrix of the folder (CSV, CSV.gz or Parquet; one row per model) is learned from
without its strongest fifth: items, score curves and interval corrections. A release is one of that
fifth. Its test of 50 items, answered from its own row, is compared with two thresholds: its real
score minus half of the interval for 50 random items, where the gate must not say no go, and its
real score plus as much, where it must not say go. Beside it the same decision uses 50 random items
alone (Wilson's interval; t for graded scores).

| gate | test |
|---|---|
| score, v_optimal | as a gate on the score tests: chosen for the score, or sampled |
| score, ability | a session for theta: the most informative items |
| theta | the same session's ability; thresholds are about the ability by all items |
| theta, stopped early | the same, ended as soon as the gate is decided |

Half of theta's interval is that of 50 random items, too, and the gate beside it takes them.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from transfer import matrices, random_interval

from app.calibration.multidimensional.score_curves import learn_curves, strongest_first
from app.calibration.pipeline.ranking import bank_from, learned_from
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.inference.gate import gate
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import take
from app.exchange.names import align

N_ITEMS = 50
#: A test of this length, as every gate uses it.
LENGTH = {
    "preset": "ability",
    "stopping": {"se": None, "min_items": 20, "max_items": N_ITEMS},
}
SCORE = {
    "score, v_optimal": {"selection": {"criterion": "v_optimal"}, **LENGTH},
    "score, ability": LENGTH,
}
RANDOM = {"selection": {"criterion": "random"}, **LENGTH}


class Known:
    """Knowledge learned from the weaker four fifths of a matrix, or from all untested models.

    Attributes:
        rows: Scores of the tested models on the bank's items.
    """

    def __init__(self, scores, tested=None):
        names = tuple(f"m{i}" for i in range(len(scores)))
        items = tuple(f"q{i}" for i in range(scores.shape[1]))
        if tested is None:
            order = strongest_first(scores)
            tested = order[: len(order) - int(0.8 * len(order))]
        known = np.setdiff1d(np.arange(len(scores)), tested)
        table = ResponseTable(tuple(names[i] for i in known), items, scores[known])
        self.bank = bank_from(table)
        mine = align(table, self.bank).scores
        self.curves = learn_curves(mine, np.random.default_rng(0))
        design = Design.from_dict(LENGTH)
        self.learned = learned_from(mine, self.bank, design, max_items=N_ITEMS, seed=0)
        tested = np.sort(tested)
        table = ResponseTable(tuple(names[i] for i in tested), items, scores[tested])
        self.rows = align(table, self.bank).scores
        self.thetas, _ = whole_bank_abilities(self.bank, self.rows)

    def test(self, document):
        return Design.from_dict(document).build(
            self.bank, correction=self.learned, curves=self.curves
        )


def outcomes(value, lo, hi, below, above, **more):
    """Return the outcomes of the gates on both thresholds."""
    return [gate(value, lo, hi, threshold=t, **more).outcome.value for t in (below, above)]


def by_interval(lo, hi, below, above):
    """Return the same outcomes from an interval alone."""
    return ["go" if lo > t else "no_go" if hi < t else "inconclusive" for t in (below, above)]


def score_gates(row, truth, seed, tests):
    """Return the outcomes by method."""
    rng = np.random.default_rng(seed)
    seen = row[rng.choice(row.size, N_ITEMS, replace=False)][None]
    _, lo, hi = random_interval(seen)
    half = float(hi[0] - lo[0]) / 2
    found = {"score, random items": by_interval(lo[0], hi[0], truth - half, truth + half)}
    for name in SCORE:
        state, _ = take(tests[name], row, seed=seed)
        told = tests[name].predict(state)
        found[name] = outcomes(told.value, told.lo, told.hi, truth - half, truth + half)
    return found


def theta_gates(known, row, theta, seed, tests):
    """Return the same outcomes for ability."""
    state, _ = take(tests["random"], row, seed=seed)
    told = tests["random"].estimate(state)
    half = (told.hi - told.lo) / 2
    thresholds = theta - half, theta + half
    found = {"theta, random items": outcomes(told.theta, told.lo, told.hi, *thresholds)}
    state, _ = take(tests["score, ability"], row, seed=seed)
    told = tests["score, ability"].estimate(state)
    found["theta"] = outcomes(told.theta, told.lo, told.hi, *thresholds)
    stopped = []
    for threshold in thresholds:
        cut = {"theta": threshold, "confidence": 0.95}
        early = known.test({**LENGTH, "stopping": {**LENGTH["stopping"], "cut_score": cut}})
        state, _ = take(early, row, seed=seed)
        told = early.estimate(state)
        stopped += [gate(told.theta, told.lo, told.hi, threshold=threshold).outcome.value]
    found["theta, stopped early"] = stopped
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    arguments = parser.parse_args()
    found = dict(matrices(arguments.data, arguments.only))
    total = defaultdict(list)
    for nth, (name, scores) in enumerate(found.items()):
        known = Known(scores)
        tests = {way: known.test(document) for way, document in {**SCORE, "random": RANDOM}.items()}
        each = arguments.releases * (nth + 1) // len(found) - arguments.releases * nth // len(found)
        mine = defaultdict(list)
        for release in range(each):
            at = release % len(known.rows)
            row, seed = known.rows[at], [nth, release]
            told = score_gates(row, float(np.nanmean(row)), seed, tests)
            told |= theta_gates(known, row, float(known.thetas[at]), seed, tests)
            for way, outcome in told.items():
                mine[way].append(outcome)
        print(f"\n{name}, {len(known.rows)} models, {each} releases")
        show(mine)
        for way, rows in mine.items():
            total[way] += rows
    print(f"\nall, {arguments.releases} releases")
    show(total)


def show(by_way):
    print(f"{'gate':>22}  wrong go  wrong no-go  inconclusive")
    for way, rows in by_way.items():
        below, above = np.array(rows).T
        open_ = np.mean([np.mean(side == "inconclusive") for side in (below, above)])
        print(
            f"{way:>22}  {np.mean(above == 'go'):8.1%}  {np.mean(below == 'no_go'):11.1%}  "
            f"{open_:12.1%}"
        )


if __name__ == "__main__":
    main()
