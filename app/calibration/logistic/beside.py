"""Curves of items beside a calibration: its abilities are known, and learn nothing of them."""

import numpy as np
from scipy.special import logit

from app.calibration.logistic.calibrate import Calibration
from app.calibration.logistic.curves import INTERCEPT, N_COORDINATES, OFF, SLOPE, Curves, Family
from app.calibration.logistic.expectation import Expectation, posteriors
from app.calibration.logistic.maximization import START_DAMPING, Problem, climb
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import MISSING, ScoreMatrix
from app.engine.models.base import ItemParameters

_FIRST_SLOPE = 0.3
_STEPS = 60  # some ten bring a curve of two parameters to its maximum
_LEAST_SHARE = 0.01  # of right and of wrong answers, where a climb begins


def curves_beside(
    matrix: ScoreMatrix, calibration: Calibration, beside: ScoreMatrix
) -> ItemParameters:
    """2PL curves that do not fall, at the posteriors of a calibration in which they took no part.

    One M-step to its end, with the priors of a 2PL whose means the calibrated items set: an item
    that nobody's ability explains is nearly flat, at the share that get it right. A curve is
    flatter than in the calibration by as much as abilities are uncertain, in all but short tests
    a few per cent.

    Args:
        matrix: What was calibrated.
        calibration: Of it, its items in the same order.
        beside: Answers of the same examinees to other items, at least one to each.

    Returns:
        In the order of `beside`, on the calibration's scale.

    Source: Bock & Aitkin (1981), Psychometrika 46, eq. 14-16.
    """
    nodes = calibration.density.nodes
    right, seen = np.zeros((2, beside.n_items, len(nodes)))
    mass = np.zeros(len(nodes))
    for block in posteriors(matrix, calibration.items, calibration.density):
        scores = beside.scores[block.rows]
        right += (scores == 1).T @ block.weights
        seen += (scores != MISSING).T @ block.weights
        mass += block.weights.sum(axis=0)
    counts = Expectation(float("nan"), right, seen, mass)
    rising = calibration.items.take(np.flatnonzero(calibration.items.a > 0))
    priors = Priors.default(Family.TWO_PL).settled(Curves.from_natural(rising, log_slope=True))
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=priors)
    x = np.empty((beside.n_items, N_COORDINATES))
    x[:] = (0.0, 0.0, -OFF, OFF)
    x[:, SLOPE] = np.log(_FIRST_SLOPE)
    x[:, INTERCEPT] = logit(np.clip(beside.item_means(), _LEAST_SHARE, 1.0 - _LEAST_SHARE))
    damping = np.full(beside.n_items, START_DAMPING)
    return Curves(climb(problem, x, counts, nodes, damping, _STEPS).x, log_slope=True).natural()
