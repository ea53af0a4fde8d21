"""Prior densities that keep item parameters sane where the answers say little."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.calibration.curves import (
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


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal density.

    Attributes:
        mean: Its mean; None lets it float: the mean of the items themselves, found anew in each
            cycle (the FLOAT option of BILOG-MG).
        sd: Its standard deviation.

    Raises:
        InvalidInputError: A mean that is not finite, or an sd that is not positive.
    """

    mean: float | None
    sd: float

    def __post_init__(self) -> None:
        if (self.mean is not None and not np.isfinite(self.mean)) or not 0 < self.sd < np.inf:
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
        return (values - (values.mean() if self.mean is None else self.mean)) / self.sd


@dataclass(frozen=True, slots=True)
class Cauchy:
    """Cauchy density about 0: holds what runs away, and hardly touches what the answers say.

    Attributes:
        scale: Half of the mass lies within it.

    Raises:
        InvalidInputError: A scale that is not positive.
    """

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < np.inf:
            raise InvalidInputError(f"A Cauchy prior needs a scale > 0, got {self.scale}.")


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
        slope: On a itself, where slopes may be negative.
        difficulty: On b, in logits. Needs positive slopes. For small banks, or wide: see above.
        guessing: On logit c.
        ceiling: On the logit of (d - c) / (1 - c), which is logit d where c is small.
    """

    log_slope: Normal | None = None
    slope: Cauchy | None = None
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
        either sign have neither log a nor, near 0, a b; the heavy tails of their prior leave steep
        items alone.

        Source: the forms of BILOG-MG (log-normal slopes with a floating mean) and flexMIRT
        (logit-normal guessing); Mislevy (1986), Psychometrika 51, on why they are needed; Gelman et
        al. (2008), Annals of Applied Statistics 2, for Cauchy(0, 2.5) on logistic slopes.
        """
        normal_slope = SLOPE in family.free and not negative_slopes
        return cls(
            log_slope=Normal(None, 0.75) if normal_slope else None,
            slope=Cauchy(2.5) if negative_slopes else None,
            difficulty=None if negative_slopes else Normal(None, 10.0),
            guessing=Normal(None, USUAL_GUESSING_SD) if GUESSING in family.free else None,
            ceiling=Normal(3.0, 1.0) if CEILING in family.free else None,
        )

    def settled(self, curves: Curves) -> "Priors":
        """The same with floating means replaced by those of the items."""
        b = -curves.x[:, INTERCEPT] / curves.a if self.difficulty is not None else curves.a
        return Priors(
            log_slope=self.log_slope and self.log_slope.settled(curves.x[:, SLOPE]),
            slope=self.slope,
            difficulty=self.difficulty and self.difficulty.settled(b),
            guessing=self.guessing and self.guessing.settled(curves.x[:, GUESSING]),
            ceiling=self.ceiling and self.ceiling.settled(curves.x[:, CEILING]),
        )

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
            precision[:, column, column] += prior.sd**-2
        if self.slope is not None:
            a = x[:, SLOPE]
            pull = 2 / (self.slope.scale**2 + a**2)
            value -= np.log1p((a / self.slope.scale) ** 2)
            gradient[:, SLOPE] -= pull * a
            # Of the parabola that touches and never lies above: the true one may be negative.
            precision[:, SLOPE, SLOPE] += pull
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
            precision += direction[:, :, None] * direction[:, None, :] * prior.sd**-2
        return PriorTerms(value, gradient, precision)
