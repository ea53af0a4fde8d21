"""An ability with its stated error, and the difference of two abilities."""

import math
from dataclasses import dataclass, replace

from app.engine.prediction.correction import IntervalFactor
from app.engine.prediction.learned_curves import Place
from app.engine.state import Z_95


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Difference of two abilities, logits.

    Attributes:
        estimate: Difference of the estimates.
        sd: Standard error of `estimate`.
    """

    estimate: float
    sd: float

    @property
    def z(self) -> float:
        """`estimate` in standard errors; 0 where nothing is known."""
        if self.estimate == 0.0 or math.isinf(self.sd):
            return 0.0
        if self.sd > 0:
            return self.estimate / self.sd
        return math.copysign(math.inf, self.estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An ability with its stated error, logits.

    Attributes:
        theta: Estimate.
        sd: Standard error; infinite where nothing is known.
        sides: Standard errors towards lower and higher values where they differ, as of a score near
            0 or 1, or with answers that have no score; `sd` is the larger one. None: alike.
    """

    theta: float
    sd: float
    sides: tuple[float, float] | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval."""
        half = Z_95 * self.sd
        return self.theta - half, self.theta + half

    def minus(self, other: "Stated") -> Gap:
        """Difference from another ability on the same scale, by the sides that face each other."""
        estimate = self.theta - other.theta
        return Gap(estimate=estimate, sd=math.hypot(self.side(-estimate), other.side(estimate)))

    def side(self, direction: float) -> float:
        """Standard error on the side of higher values, or of lower ones if `direction` is < 0."""
        if self.sides is None or direction == 0.0:  # between equal values either side may count
            return self.sd
        return self.sides[direction > 0.0]

    def after(self, times: float) -> "Stated":
        """The ability after `times` as many answers of the same information."""
        root = math.sqrt(times)
        sides = self.sides and (self.sides[0] / root, self.sides[1] / root)
        return replace(self, sd=self.sd / root, sides=sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A measured ability of a session.

    Attributes:
        theta: Estimate, logits.
        se: Standard error by the model; infinite where nothing is known.
        n_items: Number of scored answers.
        stretch: Factor on the intervals of such tests; None leaves the model's standard error.
        place: Place among the reference models; None uses the position by theta.
    """

    theta: float
    se: float
    n_items: int
    stretch: IntervalFactor | None = None
    place: Place | None = None

    def stated(self, times: float = 1.0) -> Stated:
        """The ability with its stated error, after `times` as many such answers."""
        se = self.se / math.sqrt(times)
        factor = 1.0
        if self.stretch is not None:
            answers = round(self.n_items * times)
            factor = self.stretch.at(answers, Z_95 * se, self.theta, self.place)
        return Stated(theta=self.theta, sd=se * factor)

    def by_answers(self, prior: tuple[float, float] | None) -> Stated:
        """The ability by the answers alone, without the prior's pull; see `app.engine.ranking`.

        Args:
            prior: Mean and standard deviation of the prior in theta; None without a prior.
        """
        stated = self.stated()
        if prior is None or math.isinf(stated.sd):
            return stated
        mean, sd = prior
        precision = self.se**-2 - sd**-2
        if precision <= 0:
            return replace(stated, sd=math.inf)
        share = precision * self.se**2  # weight of the answers in theta
        return Stated(theta=mean + (stated.theta - mean) / share, sd=stated.sd / math.sqrt(share))
