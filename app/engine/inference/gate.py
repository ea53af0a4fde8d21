"""Is a measured value on the right side of a threshold, surely enough to act on it?"""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from app.engine.estimation.estimators import Z_95
from app.engine.estimation.intervals import at_confidence

_NORMAL = NormalDist()


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
        ci: Interval of the value at the gate's confidence.
        p_beyond: Probability that the true value is beyond the threshold.

    All but the outcome are `None` where nothing is known.
    """

    outcome: GateOutcome
    margin: float | None
    ci: tuple[float | None, float | None]
    p_beyond: float | None


UNKNOWN = GateResult(outcome=GateOutcome.INCONCLUSIVE, margin=None, ci=(None, None), p_beyond=None)


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
    """
    if value is None or lo is None or hi is None or not all(map(math.isfinite, (value, lo, hi))):
        return UNKNOWN
    ends = at_confidence(value, lo, hi, confidence, looks=looks, degrees=degrees)
    if ends[0] <= threshold <= ends[1]:
        outcome = GateOutcome.INCONCLUSIVE
    else:
        outcome = GateOutcome.GO if (value > threshold) == above else GateOutcome.NO_GO
    margin = value - threshold if above else threshold - value
    sd = max(value - lo, hi - value) / Z_95
    return GateResult(
        outcome=outcome,
        margin=margin,
        ci=ends,
        p_beyond=_NORMAL.cdf(margin / sd) if sd > 0 else float(margin > 0),
    )
