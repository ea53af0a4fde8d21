"""Intervals of theta that hold: what tests of other examinees taught about a bank.

A factor on both halves of an interval, by the number of answers and its width; one more that grows
with the distance of examinees beyond those calibrated, and where their errors lean to one side, the
interval reaches there as well. `app.engine.simulation.learning` learns it; docs/concepts.md,
"Intervals that hold", says what it assumes. The truth that is held is the weighted likelihood
estimate from the examinee's answers to the whole bank.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """Where intervals lie, and how much wider they are, of those stronger or weaker than the known.

    All that is said of examinees above or below is for each standard deviation of those calibrated
    that one is stronger, or weaker, than a standard deviation from their mean.

    Attributes:
        centre: Mean theta of those calibrated.
        spread: Standard deviation of their thetas, above 0.
        above: Logarithm of the factor on intervals.
        below: The same for weaker ones.
        leaning_above: By how much theta is estimated too high, in standard deviations of those
            calibrated.
        leaning_below: The same for weaker ones; below 0 they are weaker than estimated.
        doubt_above: Standard deviation of `leaning_above`.
        doubt_below: Of `leaning_below`.
        adrift: How far theta may be off, for 95 of 100 and whatever the answers, of whoever may be
            like those calibrated or not; in standard deviations of those calibrated.
        unplaced: Factor on the intervals of these, at least 1; versions of before have it in the
            place of `adrift`.
    """

    centre: float
    spread: float
    above: float
    below: float
    leaning_above: float = 0.0
    leaning_below: float = 0.0
    doubt_above: float = 0.0
    doubt_below: float = 0.0
    adrift: float = 0.0
    unplaced: float = 1.0

    def __post_init__(self) -> None:
        known = all(map(math.isfinite, astuple(self)))
        least = min(self.above, self.below, self.doubt_above, self.doubt_below, self.adrift)
        if not (known and self.spread > 0.0 and least >= 0.0 and self.unplaced >= 1.0):
            raise InvalidInputError(
                "What is beyond the reference models takes finite numbers, a spread above 0, "
                f"growth and doubt from 0 on and a factor from 1 on, got {self}."
            )

    @classmethod
    def of(cls, thetas: FloatArray) -> "Beyond":
        """Of examinees with these thetas, shape (n_examinees,); nothing grows or leans yet."""
        spread = max(float(thetas.std()), _LEAST_SPREAD)
        return cls(centre=float(thetas.mean()), spread=spread, above=0.0, below=0.0)

    def with_bias(self, above: Bias, below: Bias) -> "Beyond":
        """The same with errors of theta that lean so."""
        return replace(
            self,
            leaning_above=above.slope,
            leaning_below=below.slope,
            doubt_above=above.sd,
            doubt_below=below.sd,
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
        """By how much such an examinee is thought to be estimated too high, and its sd; logits."""
        far = distance(position) * self.spread
        if position > 0.0:
            return self.leaning_above * far, self.doubt_above * far
        return self.leaning_below * far, self.doubt_below * far


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
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
        in_squares: Whether errors add in squares where a wide interval needs a smaller factor.
        beyond: What is more for examinees unlike those calibrated; None where it was not learned.

    Raises:
        InvalidInputError: Knots that do not ascend, or numbers that are no factors.
    """

    answers: tuple[int, ...]
    factor: tuple[float, ...]
    usual: tuple[float, ...]
    power: float
    beyond: Beyond | None = None
    in_squares: bool = False

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
    def from_dict(cls, document: Mapping[str, Any]) -> "Stretch":
        """From what `to_dict` made."""
        lists = {name: tuple(document[name]) for name in ("answers", "factor", "usual")}
        beyond = document.get("beyond")
        return cls(
            **lists,
            power=document["power"],
            beyond=beyond and Beyond(**beyond),
            in_squares=document.get("in_squares", False),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "answers": list(self.answers),
            "factor": list(self.factor),
            "usual": list(self.usual),
            "power": self.power,
            "beyond": self.beyond and asdict(self.beyond),
            "in_squares": self.in_squares,
        }

    def times(self, factor: float) -> "Stretch":
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
            The factor by errors seen, and how many times the half width the doubt is about where
            the interval lies.
        """
        if not 0 < half < math.inf:
            return 1.0, 0.0
        farther, doubt, adrift = 1.0, 0.0, 0.0
        if self.beyond is not None and theta is not None:
            position = self.beyond.position(theta, place)
            farther = self.beyond.at(position)
            if place is not None and place.is_open:
                farther *= self.beyond.unplaced
                adrift = self.beyond.adrift * self.beyond.spread / half
            doubt = _NORMAL_95 * self.beyond.bias_at(position)[1] / half
        factor = farther * self._of_the_known(answers, half)
        return math.hypot(factor, adrift), doubt

    def _of_the_known(self, answers: int, half: float) -> float:
        """The factor for those like the calibrated."""
        at, knots = math.log(max(answers, 1)), np.log(self.answers)
        log_factor = float(np.interp(at, knots, np.log(self.factor)))
        wider = math.log(half) - float(np.interp(at, knots, np.log(self.usual)))
        if wider > 0.0 > self.power and self.in_squares and log_factor > 0.0:
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

    theta: Stretch
    n_examinees: int
    placing: Placing | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalCorrection":
        """From what `to_dict` made."""
        return cls(
            theta=Stretch.from_dict(document["theta"]),
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
