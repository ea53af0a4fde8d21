"""Intervals that hold: what tests of other examinees taught about a bank, applied to a new one.

A bank's model is never quite true: items go together beyond one theta, curves are not logistic. Its
own 95 % intervals then hold less often than they say, the less so the longer the test; where a test
asks most of a small bank they hold more often. Tests simulated on examinees whose answers are all
known tell by how much: see `app.engine.simulation.learning`. What they teach is a factor on both
halves of an interval, given how many answers were in and how wide the interval is for that many,
and one more for examinees stronger or weaker than those calibrated, which grows with the distance.

What a corrected interval holds, for 95 of 100 examinees like those it was learned from, is what the
examinee's answers to the whole bank would give: their weighted likelihood estimate of theta, their
mean score. It does not tell how an examinee would do on another bank.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.p_irt import Prediction, Predictor
from app.engine.state import Belief, Estimate, Response
from app.errors import InvalidInputError

#: Tests that are learned from are no longer than this; a longer one takes the last factor, which is
#: too wide rather than too narrow.
LONGEST = 160
#: Numbers of answers at which a test is looked at: half an octave apart.
KNOTS = (5, 7, 10, 14, 20, 28, 40, 57, 80, 113, LONGEST)
#: How far from the usual width (log of the ratio) a factor still follows it.
WIDEST = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """How much wider intervals are of examinees stronger or weaker than those calibrated.

    Attributes:
        centre: Mean theta of those calibrated.
        spread: Standard deviation of their thetas, above 0.
        above: Logarithm of the factor, for each standard deviation beyond the first one that an
            examinee is stronger than their mean.
        below: The same for weaker ones.
    """

    centre: float
    spread: float
    above: float
    below: float

    def __post_init__(self) -> None:
        known = all(map(math.isfinite, (self.centre, self.spread, self.above, self.below)))
        if not (known and self.spread > 0.0 and self.above >= 0.0 and self.below >= 0.0):
            raise InvalidInputError(
                "Growth beyond those calibrated takes a spread above 0 and two numbers from 0 on, "
                f"got {self}."
            )

    def at(self, theta: float) -> float:
        """Factor on intervals of an examinee of that theta, at least 1."""
        error = ModelError(0.0, self.above, self.below)
        return error.at((theta - self.centre) / self.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Factor on an interval by how many answers it rests on and how wide it is.

    The factor after n answers on an interval of half width h is
    `factor(n) * (h / usual(n)) ** power`, or where h is wider than usual and the power below 0 just
    `factor(n)`. Both functions of n are straight lines between their
    knots on log scales, and level beyond them.

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
    beyond: Beyond | None = None

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
        return cls(**lists, power=document["power"], beyond=beyond and Beyond(**beyond))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "answers": list(self.answers),
            "factor": list(self.factor),
            "usual": list(self.usual),
            "power": self.power,
            "beyond": self.beyond and asdict(self.beyond),
        }

    def times(self, factor: float) -> "Stretch":
        """The same with every interval so many times wider."""
        return replace(self, factor=tuple(factor * each for each in self.factor))

    def at(self, answers: int, half: float, theta: float | None = None) -> float:
        """The factor on an interval of half width `half` after so many answers.

        Args:
            answers: Their number.
            half: By the model.
            theta: Estimated by them; None takes an examinee like those calibrated.
        """
        if not 0 < half < math.inf:
            return 1.0
        farther = 1.0 if self.beyond is None or theta is None else self.beyond.at(theta)
        at, knots = math.log(max(answers, 1)), np.log(self.answers)
        log_factor = float(np.interp(at, knots, np.log(self.factor)))
        beyond = math.log(half) - float(np.interp(at, knots, np.log(self.usual)))
        # Wide for so many answers are those of examinees at the ends of the scale, few of whom
        # taught: there no factor shrinks.
        power = self.power if beyond < 0.0 else max(self.power, 0.0)
        return farther * math.exp(log_factor + power * min(max(beyond, -WIDEST), WIDEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCorrection:
    """What makes the intervals of a bank's tests hold.

    Attributes:
        theta: Of ability.
        accuracy: Of the predicted whole-bank score.
        n_examinees: How many taught it.
    """

    theta: Stretch
    accuracy: Stretch
    n_examinees: int

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalCorrection":
        """From what `to_dict` made."""
        return cls(
            theta=Stretch.from_dict(document["theta"]),
            accuracy=Stretch.from_dict(document["accuracy"]),
            n_examinees=document["n_examinees"],
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a version keeps it in its `knowledge`."""
        return {
            "theta": self.theta.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "n_examinees": self.n_examinees,
        }

    def of_estimate(self, estimate: Estimate, answers: int) -> Estimate:
        """The same theta and standard error after so many answers with a truer interval."""
        theta, lo, hi = estimate.theta, estimate.lo, estimate.hi
        factor = self.theta.at(answers, (hi - lo) / 2, theta)
        return replace(
            estimate,
            lo=theta - factor * (theta - lo),
            hi=theta + factor * (hi - theta),
            raw=(lo, hi),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLearning:
    """What was learned about tests on a bank version; kept with it as JSON.

    Attributes:
        interval_correction: None where nobody has taught one.
        predictor: Takes the place of the bank's own predictor; not kept.
    """

    interval_correction: IntervalCorrection | None = None
    predictor: Predictor | None = None

    @classmethod
    def from_dict(cls, knowledge: Mapping[str, Any]) -> "VersionLearning":
        """From a version's `knowledge`; keys of other parts are theirs."""
        stored = knowledge.get("interval_correction")
        return cls(interval_correction=stored and IntervalCorrection.from_dict(stored))

    def predicting(self, own: Predictor, weights: FloatArray | None = None) -> Predictor:
        """The predictor of a bank whose own is given, with intervals that hold.

        Args:
            own: The bank's.
            weights: What each item counts in the score, shape (n_items,), summing to 1; None
                counts all alike.
        """
        plain = self.predictor or own
        if self.interval_correction is None:
            return plain
        return CorrectedPredictor(plain, self.interval_correction.accuracy, weights)


@dataclass(frozen=True, slots=True)
class CorrectedPredictor:
    """Another predictor's value with a truer interval.

    Attributes:
        plain: The other predictor.
        stretch: Of its intervals.
        weights: What each item counts in the score, shape (n_items,); None counts all alike.
    """

    plain: Predictor
    stretch: Stretch
    weights: FloatArray | None = None

    @property
    def name(self) -> str:
        """Name in results."""
        return self.plain.name

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        answers = list(responses)
        said = self.plain.predict(bank, answers, belief, exclude)
        value, lo, hi = said.value, said.lo, said.hi
        factor = self.stretch.at(len(answers), (hi - lo) / 2, belief.theta)
        # What was answered is known: the score can be no less than that, nor more than all the
        # rest right.
        counts = np.ones(bank.n_items) if self.weights is None else self.weights.copy()
        counts[list(exclude)] = 0.0
        total = float(counts.sum())
        least = sum(float(counts[answer.item]) * answer.score for answer in answers) / total
        most = least + 1 - sum(float(counts[answer.item]) for answer in answers) / total
        return replace(
            said,
            lo=min(max(value - factor * (value - lo), least), value),
            hi=max(min(value + factor * (hi - value), most), value),
            raw=(lo, hi),
        )
