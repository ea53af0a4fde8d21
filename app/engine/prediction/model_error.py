"""Error of an ability, by the distance of an examinee from the reference models.

Errors of held-out examinees, in the model's standard deviations, follow Student's t of scale
f = exp(within + slope * distance), with one slope above and one below the reference models:
`growth_of` has their posterior means. Estimates are biased, too, in proportion to the distance:
`bias_of` is a regression on it without an intercept. Examinees of one hold-out share the errors of
its model, so together they count for at most ten.

Source: Lange, Little & Taylor (1989), Journal of the American Statistical Association 84.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from app.engine.models.base import FloatArray

#: Degrees of freedom of an ability's error.
DEGREES = 5.0
#: Distance from the reference models' mean, in their standard deviations, up to which f is level.
WITHIN = 1.0
#: Largest distance: no examinee was held out farther away, so widths grow no more beyond it.
_FARTHEST = 6.0
_SHARED = 0.1  # correlation of the errors of examinees in one hold-out
#: Prior: the model's variance is about right, and widths grow with the distance.
_WITHIN, _FARTHER = (0.05, 0.35), (0.1, 0.15)
_BIAS_SD = 0.2  # of the bias's prior with mean 0: a little more than that of the slopes
_LEAST_SCALE, _ROUNDS = 0.25, 50
_WITHIN_GRID, _FARTHER_GRID = np.linspace(-0.7, 1.2, 39), np.linspace(0.0, 0.75, 31)


@dataclass(frozen=True, slots=True)
class Seen:
    """Errors in one hold-out's tests after one number of answers, each of shape (n_examinees,).

    Attributes:
        error: Estimate less true value.
        sd: Standard deviation of the estimate, by the model.
        position: Ability, in standard deviations of the reference models.
    """

    error: FloatArray
    sd: FloatArray
    position: FloatArray


@dataclass(frozen=True, slots=True)
class Slope:
    """Change for each standard deviation of distance, on one side of the reference models.

    Attributes:
        value: Estimate.
        sd: Standard error of `value`.
    """

    value: float
    sd: float


def growth_of(seen: Sequence[Seen], looks: int) -> tuple[Slope, Slope]:
    """Growth of the logarithm of f for stronger examinees, and for weaker ones; see the module.

    Args:
        seen: Errors of each hold-out after each number of answers.
        looks: Number of looks at each examinee, which count as one observation together.
    """
    # A t of this scale has the variance of the model times exp(0.1).
    usual = _WITHIN[0] + 0.5 * float(np.log((DEGREES - 2.0) / DEGREES))
    within = -0.5 * ((_WITHIN_GRID - usual) / _WITHIN[1]) ** 2
    prior = -0.5 * ((_FARTHER_GRID - _FARTHER[0]) / _FARTHER[1]) ** 2
    sides = {side: np.tile(prior, (within.size, 1)) for side in (1.0, -1.0)}
    for one in seen:
        counts = _counts(one.error.size, looks)
        away = np.array([distance(float(position)) for position in one.position])
        for side, log_mass in sides.items():
            mine = (away > 0.0) & (np.sign(one.position) == side)
            scale = _WITHIN_GRID[:, None, None] + _FARTHER_GRID[:, None] * away[mine]
            size = _log_density(one.error[mine], np.exp(scale) * one.sd[mine])
            log_mass += counts * size.sum(axis=2)
        near = away == 0.0
        scale = np.exp(_WITHIN_GRID[:, None]) * one.sd[near]
        within = within + counts * _log_density(one.error[near], scale).sum(axis=1)
    above, below = sides.values()
    return _slope(within, above, below), _slope(within, below, above)


def _slope(within: FloatArray, mine: FloatArray, other: FloatArray) -> Slope:
    """Posterior mean of one side's slope, from the log masses of both sides and of the level."""
    level = within + np.logaddexp.reduce(other, axis=1)
    mass = softmax(np.logaddexp.reduce(level[:, None] + mine, axis=0))
    mean = float(mass @ _FARTHER_GRID)
    return Slope(mean, float(np.sqrt(mass @ (_FARTHER_GRID - mean) ** 2)))


def bias_of(seen: Sequence[Seen], looks: int, *, above: bool) -> Slope:
    """Bias of the estimates of stronger, or of weaker, examinees; see the module.

    Without any such examinee it is the prior: no bias, with the prior's standard deviation.

    Args:
        seen: Errors and their standard deviations, in standard deviations of the reference models.
        looks: Number of looks at each examinee, which count as one observation together.
        above: Whether it is about the stronger examinees.
    """
    parts = [np.empty((4, 0))]
    for one in seen:
        away = np.array([distance(float(position)) for position in one.position])
        mine = (away > 0.0) & ((one.position > 0.0) == above)
        counts = np.full(int(mine.sum()), _counts(one.error.size, looks))
        parts.append(np.array([one.error[mine], one.sd[mine], away[mine], counts]))
    error, sd, away, counts = np.concatenate(parts, axis=1)
    slope, precision, scale = 0.0, _BIAS_SD**-2, 1.0
    for _ in range(_ROUNDS if error.size else 0):
        size = ((error - slope * away) / sd) ** 2
        near = counts * (DEGREES + 1.0) / (DEGREES + size / scale)
        scale = max(float(near @ size / counts.sum()), _LEAST_SCALE)
        near = counts * (DEGREES + 1.0) / (DEGREES + size / scale) / (scale * sd**2)
        precision = _BIAS_SD**-2 + float(near @ away**2)
        slope = float(near @ (away * error)) / precision
    return Slope(slope, precision**-0.5)


def _counts(n: int, looks: int) -> float:
    """Weight of each of n examinees of one hold-out at each look."""
    return 1.0 / (1.0 + (n - 1) * _SHARED) / looks


def distance(position: float) -> float:
    """Distance of an examinee beyond the reference models, in their standard deviations, >= 0."""
    return min(max(abs(position) - WITHIN, 0.0), _FARTHEST)


def _log_density(error: FloatArray, scale: FloatArray) -> FloatArray:
    """Log density of an error of scale f s, up to a constant; shapes that broadcast."""
    found: FloatArray = -np.log(scale) - 0.5 * (DEGREES + 1.0) * np.log1p(
        (error / scale) ** 2 / DEGREES
    )
    return found
