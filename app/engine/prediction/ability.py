"""An ability with its stated error, and the difference of two abilities.

Estimates of examinees beyond the reference models have the bias v d_i at the distance d_i, with a
standard error w of v. The bank's examinees share that error. Between two on the same side it leaves
w (d_1 - d_2); between two on different sides, or of versions that were learned apart, it does not
cancel.
"""

import math
from dataclasses import dataclass, replace

from app.engine.prediction.correction import ExtrapolationAdjustment, IntervalFactor
from app.engine.prediction.learned_curves import Place
from app.engine.state import Z_95


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Difference of two abilities, logits.

    Attributes:
        estimate: Difference of the estimates.
        middle: Difference of the estimates less their biases.
        sd: Standard error of `middle`.
    """

    estimate: float
    middle: float
    sd: float

    @property
    def z(self) -> float:
        """`middle` in standard errors; 0 where nothing is known."""
        return self._in_sds(self.middle)

    @property
    def least_z(self) -> float:
        """The smaller of both differences in standard errors; 0 where their signs differ.

        Only the answers can show that two abilities differ: a bias that moves them apart is no
        further evidence.
        """
        if self.estimate * self.middle <= 0.0:
            return 0.0
        return self._in_sds(min(self.estimate, self.middle, key=abs))

    def _in_sds(self, difference: float) -> float:
        if difference == 0.0 or math.isinf(self.sd):
            return 0.0
        return difference / self.sd if self.sd > 0 else math.copysign(math.inf, difference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """An ability with its stated error, logits.

    Attributes:
        theta: Estimate, which people are shown.
        middle: Estimate less its bias.
        own: Standard error without that of the bias; infinite where nothing is known.
        sides: Standard errors towards lower and higher values where they differ, as of a score near
            0 or 1, or with answers that have no score; `own` is the larger one. None: alike.
        bias_se: Standard error of the bias.
        bias_of: Source of the bias: the bank's adjustment, and whether it is the one of the
            stronger examinees. Abilities with the same source share the error. None without bias.
    """

    theta: float
    middle: float
    own: float
    sides: tuple[float, float] | None = None
    bias_se: float = 0.0
    bias_of: tuple[ExtrapolationAdjustment, bool] | None = None

    @property
    def sd(self) -> float:
        """Standard error of `middle`."""
        return math.hypot(self.own, self.bias_se)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the 95 % interval, which covers those about the estimate and about `middle`."""
        half = Z_95 * self.sd
        return min(self.middle, self.theta) - half, max(self.middle, self.theta) + half

    def minus(self, other: "Stated") -> Gap:
        """Difference from another ability on the same scale, by the sides that face each other."""
        if self.bias_of is not None and self.bias_of == other.bias_of:
            bias_se = self.bias_se - other.bias_se
        else:
            bias_se = math.hypot(self.bias_se, other.bias_se)
        estimate = self.theta - other.theta
        return Gap(
            estimate=estimate,
            middle=self.middle - other.middle,
            sd=math.hypot(self.side(-estimate), other.side(estimate), bias_se),
        )

    def side(self, direction: float) -> float:
        """Standard error on the side of higher values, or of lower ones if `direction` is < 0."""
        if self.sides is None or direction == 0.0:  # between equal values either side may count
            return self.own
        return self.sides[direction > 0.0]

    def after(self, times: float) -> "Stated":
        """The ability after `times` as many answers of the same information."""
        root = math.sqrt(times)
        sides = self.sides and (self.sides[0] / root, self.sides[1] / root)
        return replace(self, own=self.own / root, sides=sides)


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
        if self.stretch is None:
            return Stated(theta=self.theta, middle=self.theta, own=se)
        answers, half = round(self.n_items * times), Z_95 * se
        factor, bias_se = self.stretch.parts(answers, half, self.theta, self.place)
        beyond = self.stretch.beyond
        is_above = beyond is not None and beyond.position(self.theta, self.place) > 0.0
        return Stated(
            theta=self.theta,
            middle=self.theta - self.stretch.bias_at(self.theta, self.place),
            own=se * factor,
            bias_se=bias_se * se,
            bias_of=None if beyond is None else (beyond, is_above),
        )

    def by_answers(self, prior: tuple[float, float] | None) -> Stated:
        """The ability by the answers alone, without the prior's pull; see `app.engine.ranking`.

        Args:
            prior: Mean and standard deviation of the prior in theta; None without a prior.
        """
        stated = self.stated()
        if prior is None or math.isinf(stated.own):
            return stated
        mean, sd = prior
        precision = self.se**-2 - sd**-2
        if precision <= 0:
            return replace(stated, own=math.inf)
        share = precision * self.se**2  # weight of the answers in theta

        def alone(theta: float) -> float:
            return mean + (theta - mean) / share

        return replace(
            stated,
            theta=alone(stated.theta),
            middle=alone(stated.middle),
            own=stated.own / math.sqrt(share),
            bias_se=stated.bias_se / share,
        )
