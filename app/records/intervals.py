"""Intervals as JSON: `{"lo": 0.61, "hi": 0.69, "level": 0.95}`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

IntervalJson = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a true value lies.

    Attributes:
        lo: Lower end; None is an open one.
        hi: Upper end.
        level: How often such intervals hold.
    """

    lo: float | None
    hi: float | None
    level: float


def interval(lo: float | None, hi: float | None, level: float = 0.95) -> IntervalJson | None:
    """The JSON of an interval; None stands for one without ends.

    Args:
        lo: Lower end; None and infinity are an open one.
        hi: Upper end.
        level: How often such intervals hold.
    """
    first, last = finite(lo), finite(hi)
    if first is None and last is None:
        return None
    return {"lo": first, "hi": last, "level": level}


def ends(told: Mapping[str, float | None] | None) -> tuple[float | None, float | None]:
    """Both ends of such JSON; None where there are none."""
    return (None, None) if told is None else (told["lo"], told["hi"])


def finite(value: float | None) -> float | None:
    """As JSON, which has no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
