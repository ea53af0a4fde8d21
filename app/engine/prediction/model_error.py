"""How wrong a model is, by how far an examinee is from those that it was learned from.

Errors of held-out examinees, in standard deviations by the model, are Student's t of scale
f = exp(within + slope * distance), the slopes above and below apart. Learned is the posterior mean;
what few records leave open of a slope lowers the degrees of freedom with the distance: the
logarithm of the scale of a t with n of them has variance 1 / 2n. Where a normal's factor is wanted,
the slope is taken a standard deviation more. Estimates of ability are biased, too, the more the
farther an examinee is: `bias_of` is a regression through the mean of those known. Examinees of one
hold-out share what is wrong with its model: together they count for no more than ten.

Source: Lange, Little & Taylor (1989), Journal of the American Statistical Association 84.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from app.engine.models.base import FloatArray

#: Degrees of freedom of an ability's error.
DEGREES = 5.0
#: Within so many standard deviations of their mean an examinee is like those calibrated.
WITHIN = 1.0
#: Widths grow no more beyond so many: nobody was held out farther away.
_FARTHEST = 6.0
_SHARED = 0.1  # correlation of the errors of examinees that one fit was tested on
#: Prior of `ModelError`: the model's variance is about right, and widths grow with the distance.
_WITHIN, _FARTHER = (0.05, 0.35), 0.1
_BIAS_SD = 0.2  # of the prior of the bias, about 0: that of errors' growth, and a little more
_LEAST_SCALE, _ROUNDS = 0.25, 50
#: Tails grow no heavier: with fewer degrees an error has no variance.
_FEWEST_DEGREES = 3.0
_WITHIN_GRID, _FARTHER_GRID = np.linspace(-0.7, 1.2, 39), np.linspace(0.0, 0.75, 31)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is thought of an error before any was seen.

    Attributes:
        degrees: Of freedom of its t.
        farther: Standard deviation of the prior of its slopes.
    """

    degrees: float
    farther: float


ABILITY, SCORE = Kind(DEGREES, 0.15), Kind(8.0, 0.2)


@dataclass(frozen=True, slots=True)
class ModelError:
    """How wrong the model is, in its own standard deviations.

    Attributes:
        within: Logarithm of f for examinees like those calibrated.
        above: What is added for each standard deviation that one is stronger, at least 0.
        below: The same for weaker ones.
        degrees: Of freedom.
        above_sd: What is open of `above`.
        below_sd: The same of `below`.
    """

    within: float = 0.0
    above: float = 0.1
    below: float = 0.1
    degrees: float = SCORE.degrees
    above_sd: float = 0.0
    below_sd: float = 0.0

    def at(self, position: float) -> float:
        """Factor for a normal error, with a margin for what is open of the slopes.

        Args:
            position: Of the general ability, in standard deviations of those calibrated.
        """
        slope, sd = self._slope(position)
        return float(np.exp(self.within + (slope + sd) * distance(position)))

    def spread_at(self, position: float) -> tuple[float, float]:
        """Factor f for an error that is t, and its degrees of freedom, by what is open of f.

        Args:
            position: As for `at`.
        """
        (slope, sd), away = self._slope(position), distance(position)
        open_ = 1.0 / self.degrees + 2.0 * (sd * away) ** 2
        degrees = max(1.0 / open_, min(_FEWEST_DEGREES, self.degrees))
        return float(np.exp(self.within + slope * away)), degrees if sd > 0.0 else self.degrees

    def _slope(self, position: float) -> tuple[float, float]:
        """Mean and standard deviation of the slope on the side of a position."""
        return (self.above, self.above_sd) if position > 0.0 else (self.below, self.below_sd)

    def to_dict(self) -> dict[str, float]:
        """JSON-able."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "ModelError":
        """From what `to_dict` made."""
        return cls(**{one.name: document[one.name] for one in fields(cls)})


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tests of one hold-out showed after one number of answers, each (n_examinees,).

    Attributes:
        error: Of what the model estimates.
        sd: Its standard deviation, by the model.
        position: Of the ability, in standard deviations of those known.
    """

    error: FloatArray
    sd: FloatArray
    position: FloatArray


def model_error(
    seen: Sequence[Seen], looks: int, *, margin: float = 1.0, kind: Kind = ABILITY
) -> ModelError:
    """What makes these errors likely; see the module.

    Args:
        seen: Of each hold-out, and of each number of answers.
        looks: How often each examinee was looked at: its looks count for one together.
        margin: Standard deviations that the slopes are more than their mean; 0 where what is open
            is allowed for elsewhere, and told beside them.
        kind: Of the errors.
    """
    degrees = kind.degrees
    # A t of this scale has the variance of the model, and a tenth more.
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
    mass = _mass(within + of_side[1.0] + of_side[-1.0])
    farther, open_ = {}, {}
    for side, log_mass in sides.items():
        marginal = _mass(np.logaddexp.reduce((within + of_side[-side])[:, None] + log_mass, axis=0))
        mean = float(marginal @ _FARTHER_GRID)
        sd = float(np.sqrt(marginal @ (_FARTHER_GRID - mean) ** 2))
        farther[side], open_[side] = mean + margin * sd, (1.0 - margin) * sd
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
        slope: Mean error, in standard deviations of those known.
        sd: Of that mean.
    """

    slope: float = 0.0
    sd: float = 0.0


def bias_of(seen: Sequence[Seen], looks: int, *, above: bool) -> Bias:
    """Bias of the estimates of those stronger, or weaker; see the module.

    Where nobody was seen there, that is what is thought beforehand: about none.

    Args:
        seen: As for `model_error`, errors and their standard deviations in those of the known.
        looks: As there.
        above: Of the stronger; else of the weaker.
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
    """For how much each of n examinees of one hold-out counts at each of its looks."""
    return 1.0 / (1.0 + (n - 1) * _SHARED) / looks


def distance(position: float) -> float:
    """How far beyond those calibrated an examinee is, in their standard deviations, from 0 on."""
    return min(max(abs(position) - WITHIN, 0.0), _FARTHEST)


def log_density(error: FloatArray, scale: FloatArray, degrees: float) -> FloatArray:
    """Logarithm of the density of the model's error, but for a constant.

    Args:
        error: Of the model.
        scale: f s, of a shape that goes with it.
        degrees: Of freedom.
    """
    found: FloatArray = -np.log(scale) - 0.5 * (degrees + 1.0) * np.log1p(
        (error / scale) ** 2 / degrees
    )
    return found


def _mass(log_mass: FloatArray) -> FloatArray:
    mass = np.exp(log_mass - log_mass.max())
    normalised: FloatArray = mass / mass.sum()
    return normalised
