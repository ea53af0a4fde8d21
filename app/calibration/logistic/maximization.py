"""M-step: maximise the expected log-posterior of every item, all items at once.

Plain Fisher scoring ends in poor optima for steep items and items with guessing. So each item has
its own damping (Levenberg-Marquardt) and takes a step only if its objective increases.

The likelihood of a 3PL item has several optima (steep with much guessing, flat with little, rising
or falling). At given counts the items are independent, so matrix products evaluate every item at a
whole grid of curves, for starting values. Moving an item to a better curve of the grid keeps EM
monotone.

A prior of guessing that is too narrow distorts the curves of unusual items. One that is too wide
leaves the guessing of easy items, which few examinees get wrong, to chance. The right width depends
on the bank: guessing hardly varies if all items have k options, and varies greatly if some answers
are free. So `guessing_prior` maximises the probability of the answers, with each item's guessing
integrated out (empirical Bayes). Maximising the joint density would give an sd of 0. Slope and
intercept are not integrated out, but set to their best values (profile likelihood).

Source: Mislevy (1986), Psychometrika 51, on estimating the prior's parameters.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from app.calibration.logistic.curves import (
    CEILING,
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    OFF,
    SLOPE,
    Curves,
    Family,
    bounds,
    probabilities,
    slopes_of_curves,
)
from app.calibration.logistic.expectation import Expectation, LatentDensity
from app.calibration.logistic.priors import USUAL_GUESSING_SD, Normal, Priors
from app.calibration.matrix import ScoreMatrix
from app.engine.inference.orders import ranks
from app.engine.models.base import FloatArray, IntArray

START_DAMPING = 0.01
_LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e6
_EASE, _STIFFEN = 0.2, 6.0
_RIDGE = 1e-8  # keeps the linear system regular where an item carries no information
_ITEM_BLOCK = 512  # items whose working arrays stay in the processor's cache
# The curves of the global search:
_SLOPES = (0.3, 0.7, 1.2, 2.0, 3.5, 6.0, 10.0)
_DIFFICULTIES = np.linspace(-4, 4, 17)
_GUESSING_LOGITS = (-7.0, -2.5, -1.4, -0.6, 0.0, 0.6, 1.4, 2.5)
_CEILING_LOGITS = (7.0, 3.0, 1.5)
_SEARCH_STEPS = 8
_LEAST_GAIN = 1e-3  # least gain of log-posterior that counts as another, better curve
_SCORE_NOISE = 0.15  # logits; less than the true error of rank scores, to find steep items better
# The grids on which the prior of guessing is learned:
_GRID = np.arange(-8.0, 4.01, 0.5)  # logit c: 0.0003 to 0.98
_FINE = np.arange(-8.0, 4.01, 0.05)
_MEANS = np.arange(-6.0, 2.01, 0.1)
_SDS = np.geomspace(USUAL_GUESSING_SD, 5.0, 25)
_TINY = 1e-300
_CLIMB_STEPS = 6
_MOST_ITEMS = 300  # a larger bank is thinned to at most this many, which suffice for the spread


class Objective(NamedTuple):
    """Expected complete-data log-posterior of each item, with its derivatives."""

    value: FloatArray
    """Shape (n_items,)."""
    gradient: FloatArray
    """Shape (n_items, 4)."""
    information: FloatArray
    """Expected complete-data information plus prior precision, shape (n_items, 4, 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The estimation problem: family, sign of slopes, priors and fixed items.

    Attributes:
        family: Response model family, which decides the free coordinates.
        log_slope: Slopes are positive and estimated on the log scale.
        priors: Prior densities of the item parameters.
        fixed: Positions of items with known parameters, ascending.
    """

    family: Family
    log_slope: bool
    priors: Priors
    fixed: tuple[int, ...] = ()

    def settled(self, x: FloatArray) -> "Problem":
        """Hold the floating means of the priors at the means of the items, for one M-step.

        These means maximise the log-posterior at the present items, so EM still ascends. Held, they
        make the items' objectives independent of each other.
        """
        free_items = x[self.movable(len(x))]
        return replace(self, priors=self.priors.settled(Curves(free_items, self.log_slope)))

    def log_prior(self, x: FloatArray) -> float:
        """Log prior density of the estimated items, at the most probable floating means."""
        free_items = Curves(x[self.movable(len(x))], self.log_slope)
        return float(self.priors.settled(free_items).terms(free_items).value.sum())

    def movable(self, n_items: int) -> IntArray:
        """Positions of the items that are estimated."""
        return np.setdiff1d(np.arange(n_items), np.array(self.fixed, dtype=np.intp))


def objective(problem: Problem, x: FloatArray, counts: Expectation, nodes: FloatArray) -> Objective:
    """Objective and derivatives of all items."""
    n_items = len(x)
    value = np.empty(n_items)
    gradient = np.zeros((n_items, N_COORDINATES))
    information = np.zeros((n_items, N_COORDINATES, N_COORDINATES))
    columns = np.array(sorted({*problem.family.free, SLOPE, INTERCEPT}))
    all_seen = np.broadcast_to(counts.seen, counts.right.shape)
    for start in range(0, n_items, _ITEM_BLOCK):
        block = slice(start, start + _ITEM_BLOCK)
        right = counts.right[block]
        seen = all_seen[block]
        curves = Curves(x[block], problem.log_slope)
        p, q, derivatives = slopes_of_curves(curves, nodes, columns.tolist())
        value[block] = (right * np.log(p) + (seen - right) * np.log(q)).sum(axis=1)
        pq = p * q
        gradient[block, columns] = (derivatives @ ((right - seen * p) / pq)[:, :, None])[:, :, 0]
        weighted = derivatives * (seen / pq)[:, None, :]
        information[block, columns[:, None], columns] = weighted @ derivatives.transpose(0, 2, 1)
    prior = problem.priors.terms(Curves(x, problem.log_slope))
    return Objective(value + prior.value, gradient + prior.gradient, information + prior.precision)


class Climb(NamedTuple):
    """Coordinates of the items after some steps, with the objective before and after."""

    x: FloatArray
    before: Objective
    """Objective at the start of the climb."""
    at: Objective
    """Objective at `x`."""
    damping: FloatArray


def climb(
    problem: Problem,
    x: FloatArray,
    counts: Expectation,
    nodes: FloatArray,
    damping: FloatArray,
    steps: int,
) -> Climb:
    """Take damped steps; the objective of no item decreases.

    Args:
        problem: The estimation problem.
        x: Coordinates of the items, shape (n_items, 4).
        counts: Result of the E-step.
        nodes: Thetas of the counts, shape (n_nodes,).
        damping: Damping of each item, carried over from the last cycle, shape (n_items,).
        steps: Number of steps to try.
    """
    low, high = bounds(log_slope=problem.log_slope)
    free = np.array(problem.family.free)
    movable = problem.movable(len(x))
    estimated = np.ix_(movable, free)
    before = at = objective(problem, x, counts, nodes)
    for _ in range(steps):
        trial = x.copy()
        step = _damped_step(problem, x, at, damping)[movable]
        trial[estimated] = np.clip(x[estimated] + step, low[free], high[free])
        then = objective(problem, trial, counts, nodes)
        better = then.value > at.value
        x = np.where(better[:, None], trial, x)
        at = Objective(
            np.where(better, then.value, at.value),
            np.where(better[:, None], then.gradient, at.gradient),
            np.where(better[:, None, None], then.information, at.information),
        )
        damping = np.where(
            better,
            np.maximum(damping * _EASE, _LEAST_DAMPING),
            np.minimum(damping * _STIFFEN, _MOST_DAMPING),
        )
        if problem.family is Family.RASCH and not problem.fixed:
            x, at = _move_common_slope(problem, x, at, counts, nodes)
    return Climb(x, before, at, damping)


def distance_left(problem: Problem, x: FloatArray, at: Objective, n_examinees: float) -> float:
    """Distance to a zero gradient, in standard errors.

    The largest of three distances: the longest Newton step of an item (in complete-data standard
    errors), and the steps along the location and the scale of theta. The last two move every item
    a little, and EM is slowest along them. A coordinate at its bound with an outward gradient
    counts as 0.

    By Fisher's identity, the gradient after an E-step is that of the marginal log-posterior.
    """
    movable = problem.movable(len(x))
    gradient, information = _free_system(problem, x, at)
    steps = _solve(information[movable], gradient[movable])
    decrements = np.einsum("ja,ja->j", gradient[movable], steps)
    longest = np.sqrt(np.maximum(decrements, 0.0).max(initial=0.0))
    if problem.fixed:
        return float(longest)
    # With thetas known exactly, n examinees give the mean a standard error of 1/sqrt(n) and log sd
    # one of 1/sqrt(2 n). An item at the slope's bound cannot follow a small move of theta.
    low, high = bounds(log_slope=problem.log_slope)
    follows = (x[:, SLOPE] > low[SLOPE]) & (x[:, SLOPE] < high[SLOPE])
    a = np.where(follows, Curves(x, problem.log_slope).a, 0.0)
    location = abs(at.gradient[:, INTERCEPT] @ a) / np.sqrt(n_examinees)
    scale = abs(at.gradient[:, SLOPE] @ (follows if problem.log_slope else a))
    scale /= np.sqrt(2 * n_examinees)
    return float(max(longest, location, scale))


def candidate_values(
    problem: Problem, candidates: FloatArray, counts: Expectation, nodes: FloatArray
) -> FloatArray:
    """Objective of every item at every candidate, shape (n_items, n_candidates).

    It takes two matrix products, which make a global search over a grid affordable.
    """
    curves = Curves(candidates, problem.log_slope)
    p, q = probabilities(curves.natural(), nodes)
    log_q = np.log(q)
    values: FloatArray = counts.right @ (np.log(p) - log_q).T + counts.seen @ log_q.T
    return values + problem.priors.terms(curves).value


def _free_system(problem: Problem, x: FloatArray, at: Objective) -> tuple[FloatArray, FloatArray]:
    """Gradient and information of the free coordinates that can still move.

    A coordinate at its bound with an outward gradient is removed from the equations. Otherwise the
    item's steps would fail along it, and its damping would rise for all coordinates.
    """
    low, high = bounds(log_slope=problem.log_slope)
    free = np.array(problem.family.free)
    gradient = at.gradient[:, free]
    information = at.information[:, free[:, None], free]
    stuck = ((x[:, free] <= low[free]) & (gradient < 0)) | (
        (x[:, free] >= high[free]) & (gradient > 0)
    )
    moving = ~stuck
    coupled = moving[:, :, None] & moving[:, None, :]
    return np.where(moving, gradient, 0.0), np.where(coupled, information, np.eye(len(free)))


def _damped_step(problem: Problem, x: FloatArray, at: Objective, damping: FloatArray) -> FloatArray:
    gradient, information = _free_system(problem, x, at)
    diagonal = np.arange(gradient.shape[1])
    information[:, diagonal, diagonal] *= 1 + damping[:, None]
    return _solve(information, gradient)


def _solve(information: FloatArray, gradient: FloatArray) -> FloatArray:
    regular = information + _RIDGE * np.identity(information.shape[-1])
    solution = np.linalg.solve(regular, gradient[..., None])
    return np.asarray(solution[..., 0], dtype=np.float64)


def _move_common_slope(
    problem: Problem, x: FloatArray, at: Objective, counts: Expectation, nodes: FloatArray
) -> tuple[FloatArray, Objective]:
    """One Newton step of the 1PL's common slope together with all intercepts.

    The information is an arrowhead matrix (one slope, one intercept per item): eliminating the
    intercepts leaves a single equation.
    """
    slope_info = at.information[:, SLOPE, SLOPE]
    cross = at.information[:, SLOPE, INTERCEPT]
    intercept_info = at.information[:, INTERCEPT, INTERCEPT] + _RIDGE
    ratio = cross / intercept_info
    left = float((slope_info - ratio * cross).sum()) + _RIDGE
    step = float((at.gradient[:, SLOPE] - ratio * at.gradient[:, INTERCEPT]).sum()) / left
    low, high = bounds(log_slope=problem.log_slope)
    trial = x.copy()
    trial[:, SLOPE] = np.clip(x[:, SLOPE] + step, low[SLOPE], high[SLOPE])
    trial[:, INTERCEPT] += at.gradient[:, INTERCEPT] / intercept_info - ratio * step
    then = objective(problem, trial, counts, nodes)
    if then.value.sum() > at.value.sum():
        return trial, then
    return x, at


def first_counts(matrix: ScoreMatrix, density: LatentDensity) -> Expectation:
    """Expected counts from normal scores of the examinees' ranks, without item parameters.

    The raw score of an examinee is the sum of (score - item mean) over the answered items, divided
    by its standard deviation. This makes examinees comparable who answered different items.
    """
    means = np.nan_to_num(matrix.item_means(), nan=0.5)
    raw = np.empty(matrix.n_examinees)
    for rows, right, seen in matrix.blocks():
        expected = means.sum() if seen is None else seen @ means
        variance = (means * (1 - means)).sum() if seen is None else seen @ (means * (1 - means))
        raw[rows] = (right.sum(axis=1) - expected) / np.sqrt(variance + 0.25)
    theta = ndtri((ranks(raw) - 0.5) / matrix.n_examinees)
    weights = np.exp(-0.5 * ((density.nodes - theta[:, None]) / _SCORE_NOISE) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    counted = np.zeros((matrix.n_items, len(density.nodes)))
    given = np.zeros_like(counted)
    for rows, right, seen in matrix.blocks():
        counted += right.T @ weights[rows]
        given += weights[rows].sum(axis=0) if seen is None else seen.T @ weights[rows]
    return Expectation(float("nan"), counted, given, weights.sum(axis=0))


def candidates(problem: Problem) -> FloatArray:
    """Grid of curves of the family, as coordinates; shape (n_candidates, 4)."""
    slopes = np.array(_SLOPES)
    if not problem.log_slope:
        slopes = np.concatenate([-slopes[::-1], slopes])
    if problem.family is Family.RASCH:
        slopes = np.array([1.0])
    guessing = _GUESSING_LOGITS if GUESSING in problem.family.free else (-OFF,)
    ceiling = _CEILING_LOGITS if CEILING in problem.family.free else (OFF,)
    a, b, g, h = (
        axis.ravel()
        for axis in np.meshgrid(slopes, _DIFFICULTIES, guessing, ceiling, indexing="ij")
    )
    x = np.empty((len(a), N_COORDINATES))
    x[:, SLOPE] = np.log(a) if problem.log_slope else a
    x[:, INTERCEPT] = -a * b
    x[:, GUESSING] = g
    x[:, CEILING] = h
    return x


def search(problem: Problem, counts: Expectation, nodes: FloatArray) -> FloatArray:
    """Best curve of each item on the grid, shape (n_items, 4)."""
    grid = candidates(problem)
    best: FloatArray = grid[candidate_values(problem, grid, counts, nodes).argmax(axis=1)]
    return best


def leave_poor_optima(
    problem: Problem, x: FloatArray, counts: Expectation, nodes: FloatArray
) -> tuple[FloatArray, int]:
    """Move each item for which another optimum has a higher objective at these counts.

    Returns:
        The new coordinates and how many items moved to another optimum.
    """
    if problem.family is Family.RASCH:
        return x, 0
    fresh = np.full(len(x), START_DAMPING)
    here = climb(problem, x, counts, nodes, fresh, _SEARCH_STEPS)
    found = search(problem, counts, nodes)
    there = climb(problem, found, counts, nodes, fresh, _SEARCH_STEPS)
    better = there.at.value > here.at.value + _LEAST_GAIN
    better[np.array(problem.fixed, dtype=np.intp)] = False
    return np.where(better[:, None], there.x, here.x), int(better.sum())


def guessing_prior(
    problem: Problem, curves: Curves, counts: Expectation, nodes: FloatArray
) -> Normal:
    """Prior of logit c: a floating mean and the spread of the items, at least the usual spread."""
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
    # The prior on log sd has an sd of 1; it matters if items are few.
    return float(by_mean.max() - 0.5 * np.log(sd / USUAL_GUESSING_SD) ** 2)


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
