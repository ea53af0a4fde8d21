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


_LEAST_SLOPE = 1e-3  # below, a slope of either sign is none: log |a| ends there


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal density.

    Attributes:
        mean: Its mean; None lets it float: the mean of the items themselves, found anew in each
            cycle (the FLOAT option of BILOG-MG). Where each item has one of its own, shape
            (n_items,).
        sd: Its standard deviation, or that of each item.

    Raises:
        InvalidInputError: A mean that is not finite, or an sd that is not positive.
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
        """The same with a floating mean replaced by that of the values."""
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
    """Of slopes of either sign: holds what runs away, and hardly touches what the answers say.

    With r = |a| / scale, the log density of log r is `low` log r - log(1 + r^2): the upper tail of
    a Cauchy density, and a lower one that is nearly flat. A floating scale leaves the unit of
    theta alone, which a density of fixed width would stretch where items outnumber examinees.

    Attributes:
        scale: In the unit of a; None lets it float with the items.
        low: Slope of the lower tail. The smaller, the further the floating scale lies above the
            items' slopes: 3 times at 0.2.

    Raises:
        InvalidInputError: A scale that is not positive, or `low` outside (0, 2).
    """

    scale: float | None = None
    low: float = 0.2

    def __post_init__(self) -> None:
        if (self.scale is not None and not 0 < self.scale < np.inf) or not 0 < self.low < 2:
            raise InvalidInputError(
                "A prior of steepness needs a scale > 0 (or none) and a lower tail between 0 and "
                f"2, got {self.scale}, {self.low}."
            )

    def settled(self, a: FloatArray) -> "Steepness":
        """The same with a floating scale replaced by the most probable one at these slopes.

        There the mean of 2 r^2 / (1 + r^2) equals `low`, the two tails' pulls cancelling.
        """
        if self.scale is not None:
            return self
        squares = a**2 + _LEAST_SLOPE**2
        low, high = np.log(squares.min()) - 10, np.log(squares.max()) + 10
        for _ in range(60):  # of log scale^2, by halving
            middle = (low + high) / 2
            too_low = 2 * (squares / (np.exp(middle) + squares)).mean() > self.low
            low, high = (middle, high) if too_low else (low, middle)
        return Steepness(float(np.exp(high / 2)), self.low)


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
    """Independent priors of the items; None leaves a parameter to the answers alone.

    Priors on b, and fixed means of log a, compete with N(0, 1) for the scale of theta: n examinees
    hold it with a precision of n, m items with m / sd^2. With as many items as examinees a prior of
    b ~ N(0, 3) shrinks the whole scale by a tenth, one of N(0, 10) by less than a hundredth. A
    floating mean of log a does not touch it.

    Attributes:
        log_slope: On log a. Needs positive slopes; the 1PL's common slope has none.
        slope: On |a|, where slopes may be negative.
        difficulty: On b, in logits. Needs positive slopes. For small banks, or wide: see above.
        guessing: On logit c.
        ceiling: On the logit of (d - c) / (1 - c), which is logit d where c is small.
    """

    log_slope: Normal | None = None
    slope: Steepness | None = None
    difficulty: Normal | None = None
    guessing: Normal | None = None
    ceiling: Normal | None = None

    @classmethod
    def none(cls) -> "Priors":
        """Plain maximum likelihood."""
        return cls()

    @classmethod
    def default(cls, family: Family, *, negative_slopes: bool = False) -> "Priors":
        """Weak priors for items of language model benchmarks, which leave the scale alone.

        Slopes vary more there than in human tests, so log a gets 1.5 times BILOG-MG's spread.
        Guessing has flexMIRT's spread, about a mean that the items choose: near 0 for free answers,
        near 1/k for k options; a calibration widens it to the items' own, see `spread`. The prior
        on b is so wide that it only keeps items that nobody masters from running away. Slopes of
        either sign have neither log a nor, near 0, a b; the heavy tail of their prior leaves steep
        items alone.

        Source: the forms of BILOG-MG (log-normal slopes with a floating mean) and flexMIRT
        (logit-normal guessing); Mislevy (1986), Psychometrika 51, on why they are needed; Gelman et
        al. (2008), Annals of Applied Statistics 2, for Cauchy tails on logistic slopes.
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
        """The same with floating means replaced by those of the items."""
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
        """Whether items have priors of their own, so that none can be tried as another."""
        found = (self.log_slope, self.difficulty, self.guessing, self.ceiling)
        return any(prior is not None and prior.by_item for prior in found)

    @property
    def need_positive_slopes(self) -> bool:
        """Whether a prior is on a quantity that a slope of 0 or below does not have."""
        return self.log_slope is not None or self.difficulty is not None

    def terms(self, curves: Curves) -> PriorTerms:
        """Value and derivatives at some items."""
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
            value += 0.5 * steepness.low * np.log(square) - np.log1p(square)
            down, up = 2 / squares * square / (1 + square), steepness.low / squares
            gradient[:, SLOPE] += (up - down) * a
            # Of parabolas that touch: the true second derivatives may have the other sign.
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
