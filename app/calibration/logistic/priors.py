"""Prior densities that keep item parameters sane where the answers say little."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.calibration.logistic.curves import (
    CEILING,
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    SLOPE,
    Curves,
    Family,
)
from app.engine.models.base import FloatArray
from app.errors import InvalidInputError

USUAL_GUESSING_SD = 0.5
"""flexMIRT's spread of logit c, right for items that all have the same number of options."""


# Slope of the lower tail of `Steepness`: the smaller, the further a floating scale lies above the
# items' slopes. At 0.2 it is 3 times as large.
_LOWER_TAIL = 0.2
_LEAST_SLOPE = 1e-3  # |a| enters as sqrt(a^2 + this^2), whose logarithm is finite at a = 0


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal density.

    Attributes:
        mean: Mean, or means of the items, shape (n_items,). None is a floating mean: the mean of
            the items' own values, computed anew in each cycle (the FLOAT option of BILOG-MG).
        sd: Standard deviation, or standard deviations of the items, shape (n_items,).

    Raises:
        InvalidInputError: A mean that is not finite, or an sd that is not positive and finite.
    """

    mean: float | FloatArray | None
    sd: float | FloatArray

    def __post_init__(self) -> None:
        known = self.mean is None or np.isfinite(self.mean).all()
        if not (known and np.all(np.greater(self.sd, 0)) and np.isfinite(self.sd).all()):
            raise InvalidInputError(
                f"A prior needs a finite mean (or none) and an sd > 0, got {self.mean}, {self.sd}."
            )

    def settled(self, values: FloatArray) -> "Normal":
        """Replace a floating mean by the mean of the values."""
        if self.mean is not None or len(values) == 0:
            return self
        return Normal(float(values.mean()), self.sd)

    def standardise(self, values: FloatArray) -> FloatArray:
        """(values - mean) / sd."""
        mean = self.settled(values).mean
        standard: FloatArray = (values - (0.0 if mean is None else mean)) / self.sd  # None: none
        return standard

    @property
    def by_item(self) -> bool:
        """Whether each item has a density of its own."""
        return isinstance(self.mean, np.ndarray)


@dataclass(frozen=True, slots=True)
class Steepness:
    """Weak prior on slopes of either sign, which keeps them from running away.

    With r = |a| / scale, the log density of log r is 0.2 log r - log(1 + r^2): the upper tail of
    a Cauchy density, and a lower tail that is nearly flat. A floating scale does not affect the
    unit of theta. A density of fixed width would stretch it if items outnumber examinees.

    Attributes:
        scale: Scale of |a|; None is a floating scale, which follows the items.

    Raises:
        InvalidInputError: A scale that is not positive.
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale < np.inf:
            raise InvalidInputError(
                f"A prior of steepness needs a scale > 0 (or none), got {self.scale}."
            )

    def settled(self, a: FloatArray) -> "Steepness":
        """Replace a floating scale by the most probable scale at these slopes.

        At that scale the mean of 2 r^2 / (1 + r^2) equals 0.2: the pulls of both tails cancel.
        """
        if self.scale is not None:
            return self
        squares = a**2 + _LEAST_SLOPE**2
        low, high = np.log(squares.min()) - 10, np.log(squares.max()) + 10
        for _ in range(60):  # of log scale^2, by halving
            middle = (low + high) / 2
            too_low = 2 * (squares / (np.exp(middle) + squares)).mean() > _LOWER_TAIL
            low, high = (middle, high) if too_low else (low, middle)
        return Steepness(float(np.exp(high / 2)))


class PriorTerms(NamedTuple):
    """Log prior density of each item up to a constant, and its derivatives in the coordinates."""

    value: FloatArray
    """Shape (n_items,)."""
    gradient: FloatArray
    """Shape (n_items, 4)."""
    precision: FloatArray
    """Gauss-Newton form of the negative Hessian, never indefinite; shape (n_items, 4, 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """Independent priors of the item parameters; None means no prior.

    Priors on b, and fixed means of log a, compete with N(0, 1) for the scale of theta: n examinees
    hold it with a precision of n, m items with m / sd^2. With as many items as examinees, a prior
    b ~ N(0, 3) shrinks the scale by a tenth, and N(0, 10) by less than a hundredth. A floating mean
    of log a has no such effect.

    Attributes:
        log_slope: Prior on log a. Needs positive slopes; the 1PL's common slope takes none.
        slope: Prior on |a|, for slopes that may be negative.
        difficulty: Prior on b, logits. Needs positive slopes, and a small bank or a wide sd.
        guessing: Prior on logit c.
        ceiling: Prior on the logit of (d - c) / (1 - c), which is about logit d if c is small.
    """

    log_slope: Normal | None = None
    slope: Steepness | None = None
    difficulty: Normal | None = None
    guessing: Normal | None = None
    ceiling: Normal | None = None

    @classmethod
    def none(cls) -> "Priors":
        """No priors: maximum likelihood."""
        return cls()

    @classmethod
    def default(cls, family: Family, *, negative_slopes: bool = False) -> "Priors":
        """Weak priors for items of language model benchmarks, without effect on the scale.

        Slopes vary more in benchmarks than in human tests: log a gets 1.5 times BILOG-MG's spread.
        Guessing gets flexMIRT's spread about a floating mean, which is near 0 for free answers and
        near 1/k for k options; a calibration widens it to the items' own spread (`guessing_prior`).
        The prior on b is wide: it only keeps items that nobody answers right from running away.
        With `negative_slopes`, log a does not exist, nor b at a = 0; the prior on |a| replaces both
        priors, and its heavy tail hardly affects steep items.

        Source: BILOG-MG (log-normal slopes with a floating mean) and flexMIRT (logit-normal
        guessing) for the forms; Mislevy (1986), Psychometrika 51, on why priors are needed; Gelman
        et al. (2008), Annals of Applied Statistics 2, for Cauchy tails on logistic slopes.
        """
        normal_slope = SLOPE in family.free and not negative_slopes
        return cls(
            log_slope=Normal(None, 0.75) if normal_slope else None,
            slope=Steepness() if negative_slopes else None,
            difficulty=None if negative_slopes else Normal(None, 10.0),
            guessing=Normal(None, USUAL_GUESSING_SD) if GUESSING in family.free else None,
            ceiling=Normal(3.0, 1.0) if CEILING in family.free else None,
        )

    def settled(self, curves: Curves) -> "Priors":
        """Replace floating means, and a floating scale, by those of the items."""
        b = -curves.x[:, INTERCEPT] / curves.a if self.difficulty is not None else curves.a
        return Priors(
            log_slope=self.log_slope and self.log_slope.settled(curves.x[:, SLOPE]),
            slope=self.slope and self.slope.settled(curves.x[:, SLOPE]),
            difficulty=self.difficulty and self.difficulty.settled(b),
            guessing=self.guessing and self.guessing.settled(curves.x[:, GUESSING]),
            ceiling=self.ceiling and self.ceiling.settled(curves.x[:, CEILING]),
        )

    @property
    def by_item(self) -> bool:
        """Whether each item has priors of its own, which rules out a common grid of curves."""
        found = (self.log_slope, self.difficulty, self.guessing, self.ceiling)
        return any(prior is not None and prior.by_item for prior in found)

    @property
    def need_positive_slopes(self) -> bool:
        """Whether there is a prior on log a or b, which need a slope above 0."""
        return self.log_slope is not None or self.difficulty is not None

    def terms(self, curves: Curves) -> PriorTerms:
        """Log prior density and its derivatives at the given items."""
        x = curves.x
        n_items = len(x)
        value = np.zeros(n_items)
        gradient = np.zeros((n_items, N_COORDINATES))
        precision = np.zeros((n_items, N_COORDINATES, N_COORDINATES))
        for column, prior in (
            (SLOPE, self.log_slope),
            (GUESSING, self.guessing),
            (CEILING, self.ceiling),
        ):
            if prior is None:
                continue
            z = prior.standardise(x[:, column])
            value -= 0.5 * z**2
            gradient[:, column] -= z / prior.sd
            precision[:, column, column] += np.square(1 / prior.sd)
        if self.slope is not None:
            a = x[:, SLOPE]
            steepness, squares = self.slope.settled(a), a**2 + _LEAST_SLOPE**2
            square = squares / np.square(steepness.scale or np.nan)
            value += 0.5 * _LOWER_TAIL * np.log(square) - np.log1p(square)
            down, up = 2 / squares * square / (1 + square), _LOWER_TAIL / squares
            gradient[:, SLOPE] += (up - down) * a
            # Curvature of touching parabolas, as the second derivative may have the wrong sign.
            precision[:, SLOPE, SLOPE] += up + down
        if self.difficulty is not None:
            # b = -intercept / a, so db/d(log a) = -b and db/d(intercept) = -1/a.
            prior = self.difficulty
            a = curves.a
            b = -x[:, INTERCEPT] / a
            z = prior.standardise(b)
            direction = np.zeros((n_items, N_COORDINATES))
            direction[:, SLOPE] = -b
            direction[:, INTERCEPT] = -1 / a
            value -= 0.5 * z**2
            gradient -= (z / prior.sd)[:, None] * direction
            scaled = direction / np.reshape(prior.sd, (-1, 1))
            precision += scaled[:, :, None] * scaled[:, None, :]
        return PriorTerms(value, gradient, precision)
