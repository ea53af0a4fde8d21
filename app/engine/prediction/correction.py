"""Intervals of theta that hold: what tests of other examinees taught about a bank.

A factor on both halves of an interval, by the number of answers and its width; one more that grows
with the distance of examinees beyond those calibrated, and where their estimates are biased, the
interval reaches there as well. `app.engine.simulation.learning` learns it; docs/concepts.md,
"Intervals that hold", says what it assumes. The truth that is held is the weighted likelihood
estimate from the examinee's answers to the whole bank.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Any

import numpy as np

from app.engine.bank import FloatArray
from app.engine.prediction.model_error import Bias, ModelError, distance
from app.engine.prediction.placing import Place, Placing, PopulationPosition
from app.engine.state import CatState, Estimate
from app.errors import InvalidInputError

#: Tests that are learned from are no longer than this; a longer one takes the last factor, which is
#: too wide rather than too narrow.
LONGEST = 160
#: Numbers of answers at which a test is looked at: half an octave apart.
KNOTS = (5, 7, 10, 14, 20, 28, 40, 57, 80, 113, LONGEST)
#: How far from the usual width (log of the ratio) a factor still follows it.
WIDEST = 1.5
_NORMAL_95 = 1.959964
_LEAST_SPREAD = 0.1  # of thetas, logits: examinees that are all alike


#: Names of `ExtrapolationAdjustment`'s fields in stored knowledge, where they differ.
_STORED = {
    "bias_above": "leaning_above",
    "bias_below": "leaning_below",
    "bias_se_above": "doubt_above",
    "bias_se_below": "doubt_below",
    "max_bias": "adrift",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrapolationAdjustment:
    """Bias and wider intervals of examinees stronger or weaker than the calibration sample.

    Growth and bias are per standard deviation of the sample that an examinee is farther than one
    standard deviation from the sample's mean.

    Attributes:
        centre: Mean theta of the sample.
        spread: Standard deviation of its thetas, above 0.
        above: Logarithm of the factor on intervals of stronger examinees.
        below: The same for weaker ones.
        bias_above: How much theta is estimated too high, in standard deviations of the sample.
        bias_below: The same for weaker ones; below 0 theta is estimated too low.
        bias_se_above: Standard error of `bias_above`.
        bias_se_below: Of `bias_below`.
        max_bias: How far theta may be off for 95 of 100 examinees whose position in the sample is
            unknown; in standard deviations of the sample.
    """

    centre: float
    spread: float
    above: float
    below: float
    bias_above: float = 0.0
    bias_below: float = 0.0
    bias_se_above: float = 0.0
    bias_se_below: float = 0.0
    max_bias: float = 0.0

    def __post_init__(self) -> None:
        least = min(self.above, self.below, self.bias_se_above, self.bias_se_below, self.max_bias)
        if not (all(map(math.isfinite, astuple(self))) and self.spread > 0.0 and least >= 0.0):
            raise InvalidInputError(
                "An adjustment beyond the reference models takes finite numbers, a spread above 0, "
                f"growth and standard errors from 0 on, got {self}."
            )

    @classmethod
    def from_dict(cls, document: Mapping[str, float]) -> "ExtrapolationAdjustment":
        """From what `to_dict` made."""
        return cls(**{one.name: document[_STORED.get(one.name, one.name)] for one in fields(cls)})

    def to_dict(self) -> dict[str, float]:
        """JSON-able."""
        return {_STORED.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, thetas: FloatArray) -> "ExtrapolationAdjustment":
        """Of a sample with these thetas, shape (n_examinees,); without growth or bias yet."""
        spread = max(float(thetas.std()), _LEAST_SPREAD)
        return cls(centre=float(thetas.mean()), spread=spread, above=0.0, below=0.0)

    def with_bias(self, above: Bias, below: Bias) -> "ExtrapolationAdjustment":
        """The same with these biases."""
        return replace(
            self,
            bias_above=above.slope,
            bias_below=below.slope,
            bias_se_above=above.sd,
            bias_se_below=below.sd,
        )

    def position(self, theta: float, place: Place | None = None) -> float:
        """In standard deviations of those calibrated, from their mean.

        By theta, or by where score curves place the examinee if that is beyond all those calibrated
        and farther: a test for theta asks what was steep for them, and may come to its end there.
        """
        by_theta = (theta - self.centre) / self.spread
        if place is None:
            return by_theta
        if place.standing is PopulationPosition.ABOVE:
            return max(by_theta, place.position)
        if place.standing is PopulationPosition.BELOW:
            return min(by_theta, place.position)
        return by_theta

    def at(self, position: float) -> float:
        """Factor on intervals of an examinee of that position, at least 1."""
        return ModelError(0.0, self.above, self.below).at(position)

    def bias_at(self, position: float) -> tuple[float, float]:
        """How much theta of such an examinee is too high, and the standard error; logits."""
        far = distance(position) * self.spread
        if position > 0.0:
            return self.bias_above * far, self.bias_se_above * far
        return self.bias_below * far, self.bias_se_below * far


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFactor:
    """Factor on an interval by how many answers it rests on and how wide it is.

    The factor after n answers on an interval of half width h is
    `factor(n) * (h / usual(n)) ** power`, or where h is wider than usual and the power below 0 just
    `factor(n)`. Both functions of n are straight lines between their
    knots on log scales, and level beyond them.

    There a factor takes for granted that the more the model knows to be open, the more is wrong
    with it. In squares, what is wrong is as large as where h is usual, and independent of what the
    model knows: the factor is `sqrt(1 + (factor(n)^2 - 1) (usual(n) / h)^2)`, if above 1.

    Attributes:
        answers: Knots, ascending numbers of answers.
        factor: At the knots, for an interval of usual width.
        usual: Usual half width at the knots.
        power: How the factor goes with the width; 0 takes all alike.
        beyond: What is more for examinees unlike those calibrated; None where it was not learned.

    Raises:
        InvalidInputError: Knots that do not ascend, or numbers that are no factors.
    """

    answers: tuple[int, ...]
    factor: tuple[float, ...]
    usual: tuple[float, ...]
    power: float
    beyond: ExtrapolationAdjustment | None = None

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.answers, self.answers[1:], strict=False))
        alike = 0 < len(self.answers) == len(self.factor) == len(self.usual)
        if not (alike and ascending and self.answers[0] > 0):
            raise InvalidInputError(
                "An interval correction has ascending numbers of answers with a factor and a usual "
                f"width for each, got {self.answers}, {self.factor}, {self.usual}."
            )
        if not all(0 < value < math.inf for value in (*self.factor, *self.usual)):
            raise InvalidInputError(
                "The factors and usual widths of an interval correction are finite and above 0, "
                f"got {self.factor} and {self.usual}."
            )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalFactor":
        """From what `to_dict` made."""
        lists = {name: tuple(document[name]) for name in ("answers", "factor", "usual")}
        beyond = document.get("beyond")
        return cls(
            **lists,
            power=document["power"],
            beyond=beyond and ExtrapolationAdjustment.from_dict(beyond),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "answers": list(self.answers),
            "factor": list(self.factor),
            "usual": list(self.usual),
            "power": self.power,
            "beyond": self.beyond and self.beyond.to_dict(),
        }

    @property
    def adds_in_squares(self) -> bool:
        """Whether errors add in squares where a wide interval needs a smaller factor."""
        return self.beyond is not None

    def times(self, factor: float) -> "IntervalFactor":
        """The same with every interval so many times wider."""
        return replace(self, factor=tuple(factor * each for each in self.factor))

    def bias_at(self, theta: float, place: Place | None = None) -> float:
        """By how much a theta is thought to be too high, logits."""
        if self.beyond is None:
            return 0.0
        return self.beyond.bias_at(self.beyond.position(theta, place))[0]

    def at(
        self,
        answers: int,
        half: float,
        theta: float | None = None,
        place: Place | None = None,
    ) -> float:
        """The factor on an interval of half width `half` after so many answers.

        Args:
            answers: Their number.
            half: By the model.
            theta: Estimated by them; None takes an examinee like those calibrated.
            place: Where score curves put the examinee; None takes it for placed by theta.
        """
        return math.hypot(*self.parts(answers, half, theta, place))

    def parts(
        self,
        answers: int,
        half: float,
        theta: float | None,
        place: Place | None = None,
    ) -> tuple[float, float]:
        """What the factor is made of: the square root of the sum of two squares.

        Args:
            answers: As for `at`.
            half: As for `at`.
            theta: As for `at`.
            place: As for `at`.

        Returns:
            The factor by errors seen, and how many times the half width the error is of where
            the interval lies.
        """
        if not 0 < half < math.inf:
            return 1.0, 0.0
        farther, bias_se, max_bias = 1.0, 0.0, 0.0
        if self.beyond is not None and theta is not None:
            position = self.beyond.position(theta, place)
            farther = self.beyond.at(position)
            if place is not None and place.is_open:
                max_bias = self.beyond.max_bias * self.beyond.spread / half
            bias_se = _NORMAL_95 * self.beyond.bias_at(position)[1] / half
        factor = farther * self._of_the_known(answers, half)
        return math.hypot(factor, max_bias), bias_se

    def _of_the_known(self, answers: int, half: float) -> float:
        """The factor for those like the calibrated."""
        at, knots = math.log(max(answers, 1)), np.log(self.answers)
        log_factor = float(np.interp(at, knots, np.log(self.factor)))
        wider = math.log(half) - float(np.interp(at, knots, np.log(self.usual)))
        if wider > 0.0 > self.power and self.adds_in_squares and log_factor > 0.0:
            return math.sqrt(1.0 + math.expm1(2.0 * log_factor) * math.exp(-2.0 * wider))
        # Wide for so many answers are those of examinees at the ends of the scale, few of whom
        # taught: there no power shrinks a factor.
        power = self.power if wider < 0.0 else max(self.power, 0.0)
        return math.exp(log_factor + power * min(max(wider, -WIDEST), WIDEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCorrection:
    """What makes the intervals of a bank's tests hold.

    Attributes:
        theta: Of ability.
        n_examinees: How many taught it.
        placing: Places examinees among those calibrated; not kept. None takes all for placed.
    """

    theta: IntervalFactor
    n_examinees: int
    placing: Placing | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalCorrection":
        """From what `to_dict` made."""
        return cls(
            theta=IntervalFactor.from_dict(document["theta"]),
            n_examinees=document["n_examinees"],
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a version keeps it in its `knowledge`."""
        return {
            "theta": self.theta.to_dict(),
            "n_examinees": self.n_examinees,
        }

    def of_state(self, state: CatState) -> Estimate:
        """Theta of a test so far with a truer interval, wider where nobody places the examinee."""
        return self.of_estimate(state.belief.estimate(), state.n_scored, self.place_of(state))

    def place_of(self, state: CatState) -> Place | None:
        """Where the answers put the examinee; None where intervals are the same everywhere."""
        if self.placing is None or self.theta.beyond is None:
            return None
        return self.placing.of(state.responses)

    def of_estimate(self, estimate: Estimate, answers: int, place: Place | None = None) -> Estimate:
        """The same theta and standard error after so many answers with a truer interval."""
        theta, lo, hi = estimate.theta, estimate.lo, estimate.hi
        factor = self.theta.at(answers, (hi - lo) / 2, theta, place)
        middle = theta - self.theta.bias_at(theta, place)
        return replace(
            estimate,
            lo=min(middle, theta) - factor * (theta - lo),
            hi=max(middle, theta) + factor * (hi - theta),
            raw=(lo, hi),
        )


def correction_in(knowledge: Mapping[str, Any]) -> IntervalCorrection | None:
    """What a bank version knows of its tests' intervals; None where nobody has taught it."""
    stored = knowledge.get("interval_correction")
    return stored and IntervalCorrection.from_dict(stored)
