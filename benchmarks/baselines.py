"""Error rates of a gate against a baseline, and the number of questions it takes.

    uv run python benchmarks/baselines.py [--data ../shared/data/transfer] [--releases 1000]
        [--tolerance 0.02] [--churn 0.1] [--looks 120 240 480] [--only NAMES]

A baseline is a model that nothing was learned from: one of the strongest fifth (beyond), or of a
random fifth (within). A release has its answers except for the share `--churn` of the items,
changed both ways, and is better by the tolerance, equal, worse by exactly the tolerance, or far
worse (five tolerances). Both take the default test from one seed, the baseline as long as the last
look. The release is compared at each look, like a gate with an extended session, until it decides.

`wrong go` counts releases worse by the tolerance or more, `wrong no-go` those that are not worse by
more. Theta's tolerance is the difference of the whole-bank abilities of that release and its
baseline. `questions` are those at the decision, beside a fixed-size test of paired random questions
that detects such a difference with a power of 0.9.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from gates import Known
from transfer import matrices

from app.engine.estimation.batch import whole_bank_abilities
from app.engine.inference.comparison import (
    OF_RELEASES,
    MeasuredScore,
    of_abilities,
    of_scores,
    shared_error,
)
from app.engine.inference.diagnostics import residuals
from app.engine.inference.gate import gate
from app.engine.prediction.ability import Ability
from app.engine.simulation.simulate import take
from app.services.results.measured import DEGREES

#: Differences of releases, in tolerances.
AT_THE_MARGIN = "worse by the tolerance"
KINDS = {"better": 1.0, "equal": 0.0, AT_THE_MARGIN: -1.0, "far worse": -5.0}
_POWER = 1.959964 + 1.281552  # quantiles of 0.975 and 0.9


def released(row, difference, churn, rng):
    """Return answers of a release: some items change, and the score differs by `difference`."""
    changed = row.copy()
    ups, downs = (round(row.size * (churn / 2 + max(sign * difference, 0))) for sign in (1, -1))
    for new, count in ((1.0, ups), (0.0, downs)):
        others = np.flatnonzero(row != new)
        changed[rng.choice(others, min(count, others.size), replace=False)] = new
    return changed


def test_of(known, row, seed, looks):
    """Return the state after each look."""
    stopping = {"score_margin": None, "min_items": looks[-1], "max_items": looks[-1]}
    states = {}

    def watch(state):
        if state.n_scored in looks:
            states[state.n_scored] = state

    test = known.test({"preset": "score", "stopping": stopping})
    take(test, row, seed=seed, watch=watch)
    return test, states


class Side:
    """Estimates of one model after a look."""

    def __init__(self, test, state):
        told = test.predict(state)
        self.score = MeasuredScore(value=told.value, lo=told.lo, hi=told.hi, n_items=state.n_scored)
        found = state.belief.estimate()
        self.ability = Ability(
            theta=found.theta,
            se=found.se,
            n_items=state.n_scored,
            stretch=test.correction and test.correction.theta,
            place=test.correction and test.correction.place_of(state),
        )
        left = residuals(test.bank, state.responses, found.theta)
        self.left = {one.item: r for one, r in zip(state.responses, left, strict=True)}

    def score_from(self, before):
        common = [item for item in self.left if item in before.left]
        mine, theirs = (np.array([side.left[item] for item in common]) for side in (self, before))
        shared = shared_error(mine, theirs, len(self.left), len(before.left))
        return of_scores(self.score, before.score, correlation=shared)

    def theta_from(self, before):
        return of_abilities(self.ability, before.ability, factor=OF_RELEASES)


def decided(sides, before, between, tolerance, degrees):
    """Return the outcome, and the number of questions it took."""
    for nth, n_items in enumerate(sides):
        found = between(sides[n_items], before)
        told = gate(
            found.delta, found.lo, found.hi, threshold=-tolerance, degrees=degrees, earlier=nth
        )
        if told.outcome.value != "inconclusive":
            break
    return told.outcome.value, n_items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--releases", type=int, default=1000)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--churn", type=float, default=0.1)
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--looks", type=int, nargs="+", default=[120, 240, 480])
    arguments = parser.parse_args()
    looks = arguments.looks
    tables = {
        name: scores
        for name, scores in matrices(arguments.data, arguments.only)
        if np.isin(scores, (0.0, 1.0)).all() and scores.shape[1] >= 2 * looks[-1]
    }
    found = defaultdict(list)
    each = arguments.releases // len(tables)
    for nth, scores in enumerate(tables.values()):
        drawn = np.random.default_rng(nth).permutation(len(scores))[: len(scores) // 5]
        for where, tested in {"within": drawn, "beyond": None}.items():
            known = Known(scores, tested)
            for release in range(each):
                rng, seed = np.random.default_rng([nth, release]), [nth, release]
                row = known.rows[rng.integers(len(known.rows))]
                test, states = test_of(known, row, seed, looks)
                before = Side(test, states[looks[-1]])
                others = {
                    kind: released(row, times * arguments.tolerance, arguments.churn, rng)
                    for kind, times in KINDS.items()
                }
                thetas, _ = whole_bank_abilities(known.bank, np.array([row, *others.values()]))
                # Logits by which the release at the margin is worse.
                logits = float(thetas[0] - thetas[1 + list(KINDS).index(AT_THE_MARGIN)])
                for kind, other in others.items():
                    test, states = test_of(known, other, seed, looks)
                    sides = {n: Side(test, state) for n, state in states.items()}
                    apart = (KINDS[kind] + 1.0) * arguments.tolerance
                    fixed = (other - row).var() * (_POWER / apart) ** 2 if apart else np.nan
                    told = decided(sides, before, Side.score_from, arguments.tolerance, DEGREES)
                    found[where, kind, "score"].append((*told, fixed))
                    if logits > 0.0:
                        told = decided(sides, before, Side.theta_from, logits, None)
                        found[where, kind, "theta"].append((*told, np.nan))
    print(f"{len(tables)} matrices, {len(tables) * each} releases each")
    print("models  release                 metric   go     no-go  open   questions  fixed size")
    for (where, kind, metric), rows in found.items():
        outcome, items, fixed = map(np.array, zip(*rows, strict=True))
        soon = (outcome != "inconclusive") & (items <= np.maximum(2 * fixed, looks[0]))
        print(
            f"{where:7} {kind:23} {metric:6} {np.mean(outcome == 'go'):6.1%} "
            f"{np.mean(outcome == 'no_go'):6.1%} {np.mean(outcome == 'inconclusive'):6.1%} "
            f"{items.mean():7.0f} {np.median(fixed):10.0f}   within twice: "
            f"{soon.mean():.0%}"
        )


if __name__ == "__main__":
    main()
