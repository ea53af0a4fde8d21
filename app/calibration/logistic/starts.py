"""Starting values of EM: a global search for every item, at expected counts.

The likelihood of a 3PL item has several optima (steep with much guessing, flat with little, rising
or falling). At given counts the items are independent, so matrix products evaluate every item at a
whole grid of curves. Moving an item to a better curve of the grid keeps EM monotone.
"""

import numpy as np
from scipy.special import ndtri

from app.calibration.logistic.curves import (
    CEILING,
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    OFF,
    SLOPE,
    Family,
)
from app.calibration.logistic.expectation import Expectation, LatentDensity
from app.calibration.logistic.maximization import (
    START_DAMPING,
    Problem,
    candidate_values,
    climb,
)
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray

_SLOPES = (0.3, 0.7, 1.2, 2.0, 3.5, 6.0, 10.0)
_DIFFICULTIES = np.linspace(-4, 4, 17)
_GUESSING_LOGITS = (-7.0, -2.5, -1.4, -0.6, 0.0, 0.6, 1.4, 2.5)
_CEILING_LOGITS = (7.0, 3.0, 1.5)
_SEARCH_STEPS = 8
_LEAST_GAIN = 1e-3  # least gain of log-posterior that counts as another, better curve
_SCORE_NOISE = 0.15  # logits; less than the true error of rank scores, to find steep items better


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
    order = np.argsort(raw, kind="stable")
    rank = np.empty(matrix.n_examinees)
    rank[order] = np.arange(matrix.n_examinees)
    _, tie = np.unique(raw, return_inverse=True)
    rank = (np.bincount(tie, rank) / np.bincount(tie))[tie]  # equal scores share their mean rank
    theta = ndtri((rank + 0.5) / matrix.n_examinees)
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
