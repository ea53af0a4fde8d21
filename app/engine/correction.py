"""Intervals that hold: what other examinees taught about a bank, applied to a new one.

A bank's model is never quite true, so its own 95 % intervals hold less often than they say. Tests
simulated on examinees whose answers are all known tell by how much. What they teach is two numbers
for each kind of interval: the model's error is `scale` times what it says, and on top comes an
error of standard deviation `floor` that no number of answers makes smaller. Each half h of an
interval becomes sqrt((scale h)^2 + (1.96 floor)^2). How they are learned: `app.engine.learning`.

The correction holds for examinees like those it was learned from.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.engine.bank import ItemBank
from app.engine.estimation import Z_95
from app.engine.prediction import Prediction, Predictor
from app.engine.state import Belief, Estimate, Response
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far true errors go beyond what a model says of them.

    Attributes:
        scale: Factor on the model's standard error.
        floor: Standard deviation of an error that answers do not reduce.

    Raises:
        InvalidInputError: A scale that is not above 0, or a floor below 0.
    """

    scale: float
    floor: float

    def __post_init__(self) -> None:
        if not (0 < self.scale < math.inf and 0 <= self.floor < math.inf):
            raise InvalidInputError(
                "An interval correction has a scale above 0 and a floor of at least 0, got "
                f"{self.scale!r} and {self.floor!r}."
            )

    def sd(self, se: float) -> float:
        """Standard deviation of the true error where the model says `se`."""
        return math.hypot(self.scale * se, self.floor)

    def half(self, half: float) -> float:
        """Half of the true 95 % interval where the model says `half`."""
        return Z_95 * self.sd(half / Z_95)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCorrection:
    """What makes the intervals of a bank's tests hold.

    Attributes:
        theta: Of ability, logits.
        accuracy: Of the predicted whole-bank score; its floor is that before the first answer, and
            shrinks with the share of items that are not answered yet.
        n_examinees: How many taught it.
    """

    theta: Spread
    accuracy: Spread
    n_examinees: int

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalCorrection":
        """From what `to_dict` made."""
        return cls(
            theta=Spread(**document["theta"]),
            accuracy=Spread(**document["accuracy"]),
            n_examinees=document["n_examinees"],
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)

    def of_estimate(self, estimate: Estimate) -> Estimate:
        """The same theta and standard error with a truer interval."""
        theta = estimate.theta
        return replace(
            estimate,
            lo=theta - self.theta.half(theta - estimate.lo),
            hi=theta + self.theta.half(estimate.hi - theta),
            raw=(estimate.lo, estimate.hi),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLearning:
    """What was learned about tests on a bank version; kept with it as JSON.

    Attributes:
        interval_correction: None where nobody has taught one.
    """

    interval_correction: IntervalCorrection | None = None

    @classmethod
    def from_dict(cls, knowledge: Mapping[str, Any]) -> "VersionLearning":
        """From a version's `knowledge`; keys of other parts are theirs."""
        stored = knowledge.get("interval_correction")
        return cls(interval_correction=stored and IntervalCorrection.from_dict(stored))

    def predictor(self, plain: Predictor) -> Predictor:
        """The predictor with truer intervals, if anything is known about them."""
        if self.interval_correction is None:
            return plain
        return CorrectedPredictor(plain, self.interval_correction.accuracy)


@dataclass(frozen=True, slots=True)
class CorrectedPredictor:
    """Another predictor's value with a truer interval.

    Attributes:
        plain: The other predictor.
        spread: How its errors go beyond what it says.
    """

    plain: Predictor
    spread: Spread

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
        """See `app.engine.prediction.Predictor`."""
        answers = list(responses)
        left_out = set(exclude)
        counted = bank.n_items - len(left_out)
        scores = [answer.score for answer in answers if answer.item not in left_out]
        said = self.plain.predict(bank, answers, belief, exclude)
        return self.corrected(said, sum(scores) / counted, 1 - len(scores) / counted)

    def corrected(self, said: Prediction, observed: float, unseen: float) -> Prediction:
        """The prediction with a truer interval.

        Args:
            said: By the other predictor.
            observed: What the scored answers alone contribute to the whole-bank score.
            unseen: Share of the counted items that were not answered.
        """
        spread = Spread(scale=self.spread.scale, floor=self.spread.floor * unseen)
        return replace(
            said,
            lo=max(said.value - spread.half(said.value - said.lo), observed),
            hi=min(said.value + spread.half(said.hi - said.value), observed + unseen),
            raw=(said.lo, said.hi),
        )
