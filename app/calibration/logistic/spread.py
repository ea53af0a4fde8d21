"""Learn from the answers how much guessing varies among the items of a bank.

A prior of guessing that is too narrow distorts the curves of unusual items. One that is too wide
leaves the guessing of easy items, which few examinees get wrong, to chance. The right width depends
on the bank: guessing hardly varies if all items have k options, and varies greatly if some answers
are free. So mean and sd of the prior maximise the probability of the answers, with each item's
guessing integrated out (empirical Bayes). Maximising the joint density would give an sd of 0.

Source: Mislevy (1986), Psychometrika 51, on estimating the prior's parameters. Slope and intercept
are not integrated out, but set to their best values (profile likelihood).
"""

from dataclasses import replace

import numpy as np

from app.calibration.logistic.curves import GUESSING, Curves, Family
from app.calibration.logistic.expectation import Expectation
from app.calibration.logistic.maximization import START_DAMPING, Problem, climb
from app.calibration.logistic.priors import USUAL_GUESSING_SD, Normal
from app.engine.models.base import FloatArray

_GRID = np.arange(-8.0, 4.01, 0.5)  # logit c: 0.0003 to 0.98
_FINE = np.arange(-8.0, 4.01, 0.05)
_MEANS = np.arange(-6.0, 2.01, 0.1)
_SDS = np.geomspace(USUAL_GUESSING_SD, 5.0, 25)
_USUAL_SPREAD = 1.0  # sd of the prior on log sd, about the usual sd; matters if items are few
_TINY = 1e-300
_CLIMB_STEPS = 6
_MOST_ITEMS = 300  # a larger bank is thinned to at most this many, which suffice for the spread


def guessing_prior(
    problem: Problem, curves: Curves, counts: Expectation, nodes: FloatArray
) -> Normal:
    """Prior of logit c: a floating mean and the spread of the items, at least the usual spread.

    Args:
        problem: An estimation problem with free guessing.
        curves: Rough estimates of the items.
        counts: Result of the E-step at these estimates.
        nodes: Thetas of the counts, shape (n_nodes,).
    """
    from scipy.interpolate import PchipInterpolator

    profiles = _profiles(problem, curves, counts, nodes)
    smooth = PchipInterpolator(_GRID, profiles, axis=1)(_FINE)
    likelihood = np.exp(smooth - smooth.max(axis=1, keepdims=True))
    evidence = [_evidence(likelihood, sd) for sd in _SDS]
    return Normal(None, float(_SDS[int(np.argmax(evidence))]))


def _evidence(likelihood: FloatArray, sd: float) -> float:
    """Log-probability of the answers, plus the prior on log sd, at this sd and its best mean."""
    density = np.exp(-0.5 * ((_FINE[:, None] - _MEANS) / sd) ** 2)
    density /= density.sum(axis=0)
    by_mean = np.log(likelihood @ density + _TINY).sum(axis=0)
    return float(by_mean.max() - 0.5 * (np.log(sd / USUAL_GUESSING_SD) / _USUAL_SPREAD) ** 2)


def _profiles(
    problem: Problem, curves: Curves, counts: Expectation, nodes: FloatArray
) -> FloatArray:
    """Profile log-likelihood of each item over the guessing grid, shape (n_items, n_grid)."""
    movable = problem.movable(len(curves.x))
    chosen = movable[:: -(-len(movable) // _MOST_ITEMS)]
    seen = counts.seen if len(counts.seen) == 1 else counts.seen[chosen]
    few = replace(counts, right=counts.right[chosen], seen=seen)
    others = replace(problem.settled(curves.x).priors, guessing=None)
    # The 2PL moves slope and intercept and leaves the guessing where it is.
    alone = replace(problem, family=Family.TWO_PL, priors=others, fixed=())
    values = np.empty((len(chosen), len(_GRID)))
    start = int(np.abs(_GRID - np.median(curves.x[chosen, GUESSING])).argmin())
    # From the middle outwards, so that each grid point starts from its neighbour's curve.
    for order in (range(start, len(_GRID)), range(start - 1, -1, -1)):
        x = curves.x[chosen].copy()
        damping = np.full(len(chosen), START_DAMPING)
        for place in order:
            x[:, GUESSING] = _GRID[place]
            climbed = climb(alone, x, few, nodes, damping, _CLIMB_STEPS)
            x, damping = climbed.x, climbed.damping
            values[:, place] = climbed.at.value
    return values
