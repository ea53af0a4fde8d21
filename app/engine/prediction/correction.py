"""Correction that makes theta's intervals hold, learned from tests of other examinees.

A factor on both halves of an interval depends on the number of answers and on its width. Beyond the
reference models it grows with the distance. `app.engine.simulation.learning` learns the correction;
docs/concepts.md, "Intervals that hold", has its assumptions. The true theta is the weighted
likelihood estimate from the examinee's answers to the whole bank.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from app.engine.bank import FloatArray
from app.engine.prediction.extrapolation import growth
from app.engine.prediction.learned_curves import OPEN, LearnedCurves, Place, PopulationPosition
from app.engine.state import CatState, Estimate
from app.errors import InvalidInputError

#: Length of the tests that a correction is learned from; a longer test takes the last factor, which
#: is rather too wide than too narrow.
LONGEST = 160
#: Numbers of answers at which errors are recorded, half an octave apart.
KNOTS = (5, 7, 10, 14, 20, 28, 40, 57, 80, 113, LONGEST)
#: Largest absolute log ratio to the usual width up to which a factor follows the width.
WIDEST = 1.5
#: At the ends of the scale errors of random samples are up to this many times those of a mean of
#: scores: chosen on simulated 2PL banks of 60 to 150 items, where intervals then hold.
_ENDS_OF_SCALE = 1.25
_LEAST_SPREAD = 0.1  # of thetas, logits, where all examinees are alike

#: Fields of `IntervalFactor` with a value at each knot.
_LISTS = ("answers", "factor", "usual")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceThetas:
    """Distribution of the reference models' thetas.

    Attributes:
        centre: Mean, logits.
        spread: Standard deviation, above 0.
    """

    centre: float
    spread: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.centre) and 0.0 < self.spread < math.inf):
            raise InvalidInputError(
                "The thetas of reference models have a finite mean and a standard deviation above "
                f"0, got {self.centre!r} and {self.spread!r}."
            )

    @classmethod
    def of(cls, thetas: FloatArray) -> "ReferenceThetas":
        """Distribution of a sample of thetas, shape (n_examinees,)."""
        spread = max(float(thetas.std()), _LEAST_SPREAD)
        return cls(centre=float(thetas.mean()), spread=spread)

    def farthest(self, theta: float, place: Place | None = None) -> float:
        """How far an examinee may be from the mean, in standard deviations of the reference models.

        It is that of theta or of the position by the score curves, whichever is farther. A test for
        theta asks items that are steep within the range of the reference models, and its theta may
        stop there. A position within them does not count. An open place may be one more standard
        deviation farther.
        """
        by_theta = abs(theta - self.centre) / self.spread
        if place is None or place.standing is PopulationPosition.WITHIN:
            return by_theta
        return max(by_theta, abs(place.position) + (OPEN if place.is_open else 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFactor:
    """Factor on an interval, by its number of answers and its width.

    After n answers it is `factor(n) * (h / usual(n)) ** power` for the half width h, where the log
    of the ratio is cut to +-`WIDEST`. Between the knots, factor(n)^2 is linear in n, as is the
    variance that answers to n items of a finite bank leave of its mean; log usual(n) is linear in
    log n.

    A power below 0 would shrink the factor of an interval wider than usual. Such an interval gets
    `factor(n)` instead, which lets the model's error grow with h. It is otherwise where the thetas
    of the reference models are known and `factor(n)` is above 1. There the model's error is as
    large as at the usual width. It is independent of the error that h states and adds in squares:
    the factor is `sqrt(1 + (factor(n)^2 - 1) (usual(n) / h)^2)`.

    The factors come from tests that ask the most informative items first. As these run out, the
    rest of the bank can move theta little, and the factor falls far below 1. A test that samples
    its items leaves more open after as many answers, but about as much after answers that are as
    precise: an efficient estimate from some answers differs from that of all by the difference of
    their variances. So where the factor is below 1, an interval wider than usual has at least the
    factor of the number of answers at which its width is usual, up to 1. But at the ends of the
    scale intervals stay wide until nothing is left to ask. So if the longest tests may have asked
    all items, this factor is at most 1.25 times that of a random sample from as many.

    Source: Cochran (1977), Sampling Techniques, section 2.6, for the finite bank; Hausman (1978),
    Econometrica 46, lemma 2.1, for the difference from an efficient estimate.

    Attributes:
        answers: Knots: ascending numbers of answers.
        factor: Factors at the knots, for an interval of usual width.
        usual: Usual half width at the knots.
        power: Exponent of the width; with 0 the factor does not depend on it.
        reference: Thetas of the reference models, beyond which the factor grows; None if unknown.

    Raises:
        InvalidInputError: Knots that do not ascend, or numbers that are no factors.
    """

    answers: tuple[int, ...]
    factor: tuple[float, ...]
    usual: tuple[float, ...]
    power: float
    reference: ReferenceThetas | None = None

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
        """Inverse of `to_dict`."""
        lists = {name: tuple(document[name]) for name in _LISTS}
        beyond = document.get("beyond")
        return cls(
            **lists,
            power=document["power"],
            # Older versions also stored a growth and a bias, which no interval uses any more.
            reference=beyond and ReferenceThetas(centre=beyond["centre"], spread=beyond["spread"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        beyond = self.reference and asdict(self.reference)
        return {**lists, "power": self.power, "beyond": beyond}

    def at(
        self,
        answers: int,
        half: float,
        theta: float | None = None,
        place: Place | None = None,
        *,
        chosen: bool = False,
    ) -> float:
        """Factor on the interval of one examinee.

        Args:
            answers: Number of answers.
            half: Half width of the interval, by the model.
            theta: Estimated theta; None stands for an examinee like the reference models.
            place: Position by the score curves; None uses the position by theta.
            chosen: The test asked the most informative items first, as those that are learned from.
        """
        if not 0 < half < math.inf:
            return 1.0
        factor = self._of_the_known(answers, half)
        if factor < 1.0 and not chosen:
            factor = max(factor, self._of_sampled(answers, half))
        if self.reference is None or theta is None:
            return factor
        return factor * growth(self.reference.farthest(theta, place))

    def _of_the_known(self, answers: int, half: float) -> float:
        """Factor for examinees like the reference models."""
        knots, widths = np.log(self.answers), np.log(self.usual)
        usual = self._after(answers)
        wider = math.log(half) - float(np.interp(math.log(max(answers, 1)), knots, widths))
        if wider > 0.0 > self.power and self.reference is not None and usual > 1.0:
            return math.sqrt(1.0 + (usual**2 - 1.0) * math.exp(-2.0 * wider))
        # Intervals are wider than usual at the ends of the scale, where few examinees taught the
        # power: it does not shrink a factor there.
        power = self.power if wider < 0.0 else max(self.power, 0.0)
        return usual * math.exp(power * min(max(wider, -WIDEST), WIDEST))

    def _of_sampled(self, answers: int, half: float) -> float:
        """Factor, up to 1, for sampled items; 0 if the interval is not wider than usual."""
        knots, widths, longest = np.log(self.answers), np.log(self.usual), self.answers[-1]
        if math.log(half) <= np.interp(math.log(max(answers, 1)), knots, widths):
            return 0.0
        as_wide = np.interp(-math.log(half), np.maximum.accumulate(-widths), knots)
        left = max(1.0 - answers / longest, 0.0) if longest < LONGEST else 1.0
        most = _ENDS_OF_SCALE * math.sqrt(left)
        return min(self._after(math.exp(as_wide)), most, 1.0)

    def _after(self, answers: float) -> float:
        """Factor on an interval of usual width."""
        return math.sqrt(np.interp(answers, self.answers, np.square(self.factor)))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCorrection:
    """Correction of the intervals of a bank's tests.

    Attributes:
        theta: Factor on the intervals of theta.
        n_examinees: Number of examinees that it was learned from.
        curves: Place examinees among the reference models; not stored. None places all by theta.
    """

    theta: IntervalFactor
    n_examinees: int
    curves: LearnedCurves | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "IntervalCorrection":
        """Inverse of `to_dict`."""
        return cls(
            theta=IntervalFactor.from_dict(document["theta"]),
            n_examinees=document["n_examinees"],
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a bank version stores it in its `knowledge`."""
        return {"theta": self.theta.to_dict(), "n_examinees": self.n_examinees}

    def of_state(self, state: CatState) -> Estimate:
        """Theta of a test so far with the corrected interval."""
        return self.of_estimate(state.belief.estimate(), state.n_scored, self.place_of(state))

    def place_of(self, state: CatState) -> Place | None:
        """Place of the examinee by the score curves; None without these or `theta.reference`."""
        if self.curves is None or self.theta.reference is None:
            return None
        return self.curves.place(state.responses)

    def of_estimate(self, estimate: Estimate, answers: int, place: Place | None = None) -> Estimate:
        """The estimate after so many answers with the corrected interval."""
        theta, lo, hi = estimate.theta, estimate.lo, estimate.hi
        factor = self.theta.at(answers, (hi - lo) / 2, theta, place)
        return replace(
            estimate,
            lo=theta - factor * (theta - lo),
            hi=theta + factor * (hi - theta),
            raw=(lo, hi),
        )


def correction_in(knowledge: Mapping[str, Any]) -> IntervalCorrection | None:
    """Correction in the knowledge of a bank version; None where it was not learned."""
    stored = knowledge.get("interval_correction")
    return stored and IntervalCorrection.from_dict(stored)
