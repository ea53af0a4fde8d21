"""Is a measured value on the right side of a threshold, at a given confidence?"""

import math
from dataclasses import dataclass
from enum import StrEnum

from app.engine.estimation.intervals import at_confidence, sureness


class GateOutcome(StrEnum):
    """Decision of a gate."""

    GO = "go"
    NO_GO = "no_go"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A decision and its evidence.

    Attributes:
        outcome: The decision.
        margin: Distance of the value beyond the threshold, in the wanted direction.
        interval: Interval of the value at the gate's confidence.
        p_beyond: Probability that the true value is beyond the threshold, by the same intervals.
            The outcome is `go` from 0.5 + confidence / 2 up, and `no_go` from
            0.5 - confidence / 2 down.

    All fields but the outcome are `None` if there is no estimate.
    """

    outcome: GateOutcome
    margin: float | None
    interval: tuple[float | None, float | None]
    p_beyond: float | None


UNKNOWN = GateResult(
    outcome=GateOutcome.INCONCLUSIVE, margin=None, interval=(None, None), p_beyond=None
)


def gate(
    value: float | None,
    lo: float | None,
    hi: float | None,
    *,
    threshold: float,
    above: bool = True,
    confidence: float = 0.95,
    looks: float = 1.0,
    degrees: float | None = None,
    earlier: int = 0,
) -> GateResult:
    """Go if the interval at `confidence` lies wholly beyond the threshold, no go if wholly short.

    Args:
        value: The estimate.
        lo: Lower end of its 95 % interval.
        hi: Upper end of its 95 % interval.
        threshold: Threshold that the value is compared with.
        above: Whether `go` means above the threshold; otherwise it means below.
        confidence: Confidence of the interval, as for a test that stops at a cut score.
        looks: Ratio of information, as of `app.engine.estimation.intervals.at_confidence`.
        degrees: Degrees of freedom, as of the same function.
        earlier: Number of earlier comparisons, on fewer answers. Each comparison may err half as
            often as the one before it. A gate that is repeated until it is decided is therefore
            wrong with a probability of at most 1 - confidence.
    """
    if value is None or lo is None or hi is None or not all(map(math.isfinite, (value, lo, hi))):
        return UNKNOWN
    share = 0.5**earlier
    ends = at_confidence(value, lo, hi, 1 - (1 - confidence) * share, looks=looks, degrees=degrees)
    if ends[0] <= threshold <= ends[1]:
        outcome = GateOutcome.INCONCLUSIVE
    else:
        outcome = GateOutcome.GO if (value > threshold) == above else GateOutcome.NO_GO
    margin = value - threshold if above else threshold - value
    above_it = sureness(value, lo, hi, threshold, looks=looks, degrees=degrees)
    risk = min(2 * min(above_it, 1 - above_it) / share, 1.0)
    is_beyond = (above_it > 0.5) == above
    return GateResult(
        outcome=outcome,
        margin=margin,
        interval=ends,
        p_beyond=1 - risk / 2 if is_beyond else risk / 2,
    )
