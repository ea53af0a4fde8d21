"""An ability with its error as it is stated, and how far two of them are apart.

Estimates of examinees beyond those calibrated have the bias v d_i at the distance d_i, with a
standard error w of v. That error is the bank's: of two on the same side w (d_1 - d_2) is left of
it; of two on different sides, or of versions that were taught apart, nothing cancels.
"""

import math
from dataclasses import dataclass, replace

from app.engine.prediction.correction import ExtrapolationAdjustment, IntervalFactor
from app.engine.prediction.placing import Place
from app.engine.prediction.score_model import NORMAL_95


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How far one ability is above another.

    Attributes:
        estimate: Difference of the estimates.
        middle: Difference of where the abilities are thought to be.
        sd: Standard deviation of the error of `middle`.
    """

    estimate: float
    middle: float
    sd: float

    @property
    def z(self) -> float:
        """The difference in its standard errors: 0 where nothing is known of it."""
        return self._in_sds(self.middle)

    @property
    def least_z(self) -> float:
        """The same of the smaller difference of the two; 0 where they go opposite ways.

        To tell two apart it takes what the answers say: that the one is thought to be farther off
        than estimated is no further proof that they differ.
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
    """An ability as it is stated.

    Attributes:
        theta: The estimate, logits; what people are shown.
        middle: Where it is thought to be.
        own: Standard deviation of what is the examinee's own error; infinite where nothing is
            known.
        bias_se: Standard error of the bias that was taken off `middle`.
        bias_of: Who shares that bias: what was learned of a bank's examinees, and whether it is
            about the stronger ones. None where there is none.
    """

    theta: float
    middle: float
    own: float
    bias_se: float = 0.0
    bias_of: tuple[ExtrapolationAdjustment, bool] | None = None

    @property
    def sd(self) -> float:
        """Standard deviation of the error of `middle`."""
        return math.hypot(self.own, self.bias_se)

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of its 95 % interval, about the estimate and about `middle`."""
        half = NORMAL_95 * self.sd
        return min(self.middle, self.theta) - half, max(self.middle, self.theta) + half

    def minus(self, other: "Stated") -> Gap:
        """How far it is above another on the same scale."""
        if self.bias_of is not None and self.bias_of == other.bias_of:
            bias_se = self.bias_se - other.bias_se
        else:
            bias_se = math.hypot(self.bias_se, other.bias_se)
        return Gap(
            estimate=self.theta - other.theta,
            middle=self.middle - other.middle,
            sd=math.hypot(self.own, other.own, bias_se),
        )

    def after(self, times: float) -> "Stated":
        """The same with so many times as many answers, as if they told as much as those so far."""
        return replace(self, own=self.own / math.sqrt(times))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A measured ability, as its session has it.

    Attributes:
        theta: Estimate, logits.
        se: Standard error, as the model has it; infinite where nothing is known.
        n_items: Scored answers that it stands on.
        stretch: What was learned of the intervals of tests like this one; None takes the model's
            word.
        place: Where it is among those calibrated; None takes it for placed by theta.
    """

    theta: float
    se: float
    n_items: int
    stretch: IntervalFactor | None = None
    place: Place | None = None

    def stated(self, times: float = 1.0) -> Stated:
        """As it is stated, or would be had there been `times` as many such answers."""
        se = self.se / math.sqrt(times)
        if self.stretch is None:
            return Stated(theta=self.theta, middle=self.theta, own=se)
        answers, half = round(self.n_items * times), NORMAL_95 * se
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
        """By the answers alone, without the prior that pulls theta; see `app.engine.ranking`.

        Args:
            prior: Its mean and standard deviation; None where there is none in theta.
        """
        told = self.stated()
        if prior is None or math.isinf(told.own):
            return told
        mean, sd = prior
        precision = self.se**-2 - sd**-2
        if precision <= 0:
            return replace(told, own=math.inf)
        share = precision * self.se**2  # of theta that the answers have made

        def alone(theta: float) -> float:
            return mean + (theta - mean) / share

        return replace(
            told,
            theta=alone(told.theta),
            middle=alone(told.middle),
            own=told.own / math.sqrt(share),
            bias_se=told.bias_se / share,
        )
