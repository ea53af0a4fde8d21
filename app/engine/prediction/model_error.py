"""Error of a model, by the distance of an examinee from the reference models.

Errors of held-out examinees, in the model's standard deviations, follow Student's t of scale
f = exp(within + slope * distance), with one slope above and one below the reference models. The
parameters are posterior means. The uncertainty of a slope lowers the degrees of freedom with the
distance: the log scale of a t with n degrees has variance 1 / 2n. A factor for a normal error takes
the slope one standard deviation larger instead. Estimates of ability are biased, too, in proportion
to the distance: `bias_of` is a regression on it without an intercept. Examinees of one hold-out
share the errors of its model, so together they count for at most ten.

Source: Lange, Little & Taylor (1989), Journal of the American Statistical Association 84.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

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
#: Prior of `ModelError`: the model's variance is about right, and widths grow with the distance.
_WITHIN, _FARTHER = (0.05, 0.35), 0.1
_BIAS_SD = 0.2  # of the bias's prior with mean 0: a little more than that of the slopes
_LEAST_SCALE, _ROUNDS = 0.25, 50
#: Least degrees of freedom; with two or fewer an error has no variance.
_FEWEST_DEGREES = 3.0
_WITHIN_GRID, _FARTHER_GRID = np.linspace(-0.7, 1.2, 39), np.linspace(0.0, 0.75, 31)


@dataclass(frozen=True, slots=True)
class Kind:
    """Prior of an error.

    Attributes:
        degrees: Degrees of freedom of its t.
        farther: Standard deviation of the prior of its slopes.
    """

    degrees: float
    farther: float


ABILITY, SCORE = Kind(DEGREES, 0.15), Kind(8.0, 0.2)


@dataclass(frozen=True, slots=True)
class ModelError:
    """Error of the model, in its own standard deviations.

    Attributes:
        within: Logarithm of f for examinees like the reference models.
        above: Slope of the logarithm of f for stronger examinees, at least 0.
        below: Slope of the logarithm of f for weaker examinees, at least 0.
        degrees: Degrees of freedom.
        above_sd: Standard error of `above`.
        below_sd: Standard error of `below`.
    """

    within: float = 0.0
    above: float = 0.1
    below: float = 0.1
    degrees: float = SCORE.degrees
    above_sd: float = 0.0
    below_sd: float = 0.0

    def at(self, position: float) -> float:
        """Factor for a normal error, with a margin of one standard error of the slope.

        A position is a general ability, in standard deviations of the reference models.
        """
        slope, sd = self._slope(position)
        return float(np.exp(self.within + (slope + sd) * distance(position)))

    def spread_at(self, position: float) -> tuple[float, float]:
        """Factor f for an error that follows t, and its degrees of freedom."""
        (slope, sd), away = self._slope(position), distance(position)
        open_ = 1.0 / self.degrees + 2.0 * (sd * away) ** 2
        degrees = max(1.0 / open_, min(_FEWEST_DEGREES, self.degrees))
        return float(np.exp(self.within + slope * away)), degrees if sd > 0.0 else self.degrees

    def _slope(self, position: float) -> tuple[float, float]:
        """Slope on the side of a position, and its standard error."""
        return (self.above, self.above_sd) if position > 0.0 else (self.below, self.below_sd)

    def to_dict(self) -> dict[str, float]:
        """JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "ModelError":
        """Inverse of `to_dict`."""
        return cls(**{one.name: document[one.name] for one in fields(cls)})


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


def model_error(seen: Sequence[Seen], looks: int, kind: Kind = ABILITY) -> ModelError:
    """Posterior mean of the error model; see the module.

    Args:
        seen: Errors of each hold-out after each number of answers.
        looks: Number of looks at each examinee, which count as one observation together.
        kind: Prior of the errors.
    """
    degrees = kind.degrees
    # A t of this scale has the variance of the model times exp(0.1).
    usual = _WITHIN[0] + 0.5 * float(np.log((degrees - 2.0) / degrees))
    within = -0.5 * ((_WITHIN_GRID - usual) / _WITHIN[1]) ** 2
    prior = -0.5 * ((_FARTHER_GRID - _FARTHER) / kind.farther) ** 2
    sides = {side: np.tile(prior, (within.size, 1)) for side in (1.0, -1.0)}
    for one in seen:
        n = one.error.size
        counts = _counts(n, looks)
        away = np.array([distance(float(position)) for position in one.position])
        for side, log_mass in sides.items():
            mine = (away > 0.0) & (np.sign(one.position) == side)
            scale = _WITHIN_GRID[:, None, None] + _FARTHER_GRID[:, None] * away[mine]
            size = log_density(one.error[mine], np.exp(scale) * one.sd[mine], degrees)
            log_mass += counts * size.sum(axis=2)
        near = away == 0.0
        scale = np.exp(_WITHIN_GRID[:, None]) * one.sd[near]
        within = within + counts * log_density(one.error[near], scale, degrees).sum(axis=1)
    of_side = {side: np.logaddexp.reduce(log_mass, axis=1) for side, log_mass in sides.items()}
    mass = softmax(within + of_side[1.0] + of_side[-1.0])
    farther, open_ = {}, {}
    for side, log_mass in sides.items():
        joint = (within + of_side[-side])[:, None] + log_mass
        marginal = softmax(np.logaddexp.reduce(joint, axis=0))
        farther[side] = float(marginal @ _FARTHER_GRID)
        open_[side] = float(np.sqrt(marginal @ (_FARTHER_GRID - farther[side]) ** 2))
    return ModelError(
        float(mass @ _WITHIN_GRID),
        above=farther[1.0],
        below=farther[-1.0],
        degrees=degrees,
        above_sd=open_[1.0],
        below_sd=open_[-1.0],
    )


@dataclass(frozen=True, slots=True)
class Bias:
    """Bias of the estimates on one side, for each standard deviation of distance.

    Attributes:
        slope: Mean error, in standard deviations of the reference models.
        sd: Standard error of `slope`.
    """

    slope: float
    sd: float


def bias_of(seen: Sequence[Seen], looks: int, *, above: bool) -> Bias:
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
    return Bias(slope, precision**-0.5)


def _counts(n: int, looks: int) -> float:
    """Weight of each of n examinees of one hold-out at each look."""
    return 1.0 / (1.0 + (n - 1) * _SHARED) / looks


def distance(position: float) -> float:
    """Distance of an examinee beyond the reference models, in their standard deviations, >= 0."""
    return min(max(abs(position) - WITHIN, 0.0), _FARTHEST)


def log_density(error: FloatArray, scale: FloatArray, degrees: float) -> FloatArray:
    """Log density of the model's error, up to a constant.

    Args:
        error: Estimate less true value.
        scale: Scale f s, of a shape that broadcasts with `error`.
        degrees: Degrees of freedom.
    """
    found: FloatArray = -np.log(scale) - 0.5 * (degrees + 1.0) * np.log1p(
        (error / scale) ** 2 / degrees
    )
    return found
