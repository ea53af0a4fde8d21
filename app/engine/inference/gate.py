"""Is a measured value on the right side of a threshold, surely enough to act on it?"""

import math
from dataclasses import dataclass
from enum import StrEnum

from app.engine.estimation.intervals import at_confidence, sureness


class GateOutcome(StrEnum):
    """What a gate says."""

    GO = "go"
    NO_GO = "no_go"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A decision with what it stands on.

    Attributes:
        outcome: What to do.
        margin: How far the value is beyond the threshold, in the direction that is wanted.
        interval: Interval of the value at the gate's confidence.
        p_beyond: Probability that the true value is beyond the threshold, by the same intervals:
            a gate at a confidence goes from 0.5 + confidence / 2 on, and says no from
            0.5 - confidence / 2 down.

    All but the outcome are `None` where nothing is known.
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
        hi: Upper end.
        threshold: What it is held against.
        above: Whether to go above the threshold, else below.
        confidence: Of the interval; the same rule as of a test that stops at a cut score.
        looks: See `app.engine.estimation.intervals.at_confidence`.
        degrees: See there.
        earlier: How often the value was held against the threshold before, on fewer answers. Each
            time has half the chance to err of the one before, so that a gate that is held until it
            is decided is wrong with a probability of at most 1 - confidence, however long it takes.
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
