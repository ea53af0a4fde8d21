"""Intervals at another confidence than 95 %, and intervals for repeated looks.

A test may compare an estimate with a threshold after every answer and stop once the interval
excludes it. With each further look the risk that some interval errs grows, so the intervals must
be wider. `looks` is the ratio of the information at the last look to that at the first. If theta
equals the threshold (or two examinees are equal), the interval lies above it at *any* look with a
probability of at most 1 - confidence, and likewise below it.

Source: Siegmund (1985), Sequential Analysis, section 4.3; Jennison & Turnbull (1989), Journal of
the Royal Statistical Society B 51, for repeated confidence intervals.
"""

import math
from functools import lru_cache
from statistics import NormalDist

from scipy.special import stdtr, stdtrit

from app.engine.state import Z_95

_NORMAL = NormalDist()
_ROUNDING = 1e-9
#: z at which phi(z) (z - 1/z) is largest: z^4 - 2 z^2 = 1. For a smaller z crossings overlap, and
#: their rate is kept constant.
_RAREST_COMMON = math.sqrt(1 + math.sqrt(2))


def at_confidence(
    value: float,
    lo: float,
    hi: float,
    confidence: float,
    *,
    looks: float = 1.0,
    degrees: float | None = None,
) -> tuple[float, float]:
    """Ends of the interval at a confidence, from those at 95 %.

    At 95 % and one look the ends do not change. A narrower interval takes its width from the wider
    side: the other end may be near only because the scale ends there, and must not come nearer. An
    interval that is not centred at its estimate, because the estimate is biased, has errors about
    its middle. The ends then cover errors about the estimate and errors about the middle.

    Args:
        value: The estimate.
        lo: Lower end of its 95 % interval.
        hi: Upper end of its 95 % interval.
        confidence: Confidence of the new interval, in [0.5, 1).
        looks: Ratio of the information at the last look to that at the first; 1 for one look.
        degrees: Degrees of freedom if the error follows Student's t; None if it is normal.
    """
    ratio = ratio_of(confidence, looks, degrees)
    if abs(ratio - 1.0) < _ROUNDING:
        return lo, hi
    middle = (lo + hi) / 2.0
    if ratio > 1.0:
        return (
            min(centre - ratio * (centre - lo) for centre in (value, middle)),
            max(centre + ratio * (hi - centre) for centre in (value, middle)),
        )
    half, own = ratio * max(value - lo, hi - value), ratio * (hi - lo) / 2.0
    return max(lo, min(value - half, middle - own)), min(hi, max(value + half, middle + own))


def ratio_of(confidence: float, looks: float = 1.0, degrees: float | None = None) -> float:
    """Ratio of the half-width to that of a 95 % interval."""
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    if looks > 1.0:
        z = max(z, boundary(2 * (1 - confidence), looks))
    ratio = z / Z_95
    if degrees is None:
        return ratio
    # Above 95 % the tails of t are heavier than the normal's; below, the normal is the wider one.
    heavy = float(stdtrit(degrees, _NORMAL.cdf(z)) / stdtrit(degrees, _NORMAL.cdf(Z_95)))
    return max(ratio, heavy)


#: Upper bound of the ratio of widths, beyond any confidence; a larger one may overflow.
_SURE = 1e100


def sureness(
    value: float,
    lo: float,
    hi: float,
    threshold: float,
    *,
    looks: float = 1.0,
    degrees: float | None = None,
) -> float:
    """Probability that the true value is above a threshold, consistent with `at_confidence`.

    The interval at a confidence lies wholly above the threshold if this is more than
    0.5 + confidence / 2, and wholly below if it is less than 0.5 - confidence / 2. It is 0.5 for a
    threshold between the estimate and the middle of its interval. Its other arguments are those of
    `at_confidence`.
    """
    above = _reach(value, lo, hi, threshold)
    if above > 0.0:
        return 1.0 - risk_of(above, looks, degrees) / 2.0
    return risk_of(_reach(-value, -hi, -lo, -threshold), looks, degrees) / 2.0


def _reach(value: float, lo: float, hi: float, threshold: float) -> float:
    """Width ratio that puts the lower end at a threshold; 0 unless it is below value and middle."""
    middle = (lo + hi) / 2.0
    if threshold >= min(value, middle):
        return 0.0
    if threshold < lo:
        return min(
            (centre - threshold) / (centre - lo) if centre > lo else math.inf
            for centre in (value, middle)
        )
    half, own = max(value - lo, hi - value), (hi - lo) / 2.0
    return min((value - threshold) / half, (middle - threshold) / own)


def risk_of(ratio: float, looks: float = 1.0, degrees: float | None = None) -> float:
    """1 - confidence of the interval that is `ratio` times as wide: the inverse of `ratio_of`."""
    tail = math.erfc(ratio * Z_95 / math.sqrt(2)) / 2
    if degrees is not None:
        usual = stdtrit(degrees, _NORMAL.cdf(Z_95))
        tail = max(tail, float(stdtr(degrees, -min(ratio, _SURE) * usual)))
    if looks <= 1.0:
        return 2 * tail
    z = -_NORMAL.inv_cdf(tail) if tail > 0.0 else math.inf
    return max(2 * tail, ever_this_far(max(z, 0.0), looks) / 2)


def ever_this_far(z: float, looks: float = 1.0) -> float:
    """Probability that the difference of two equals, in standard errors, ever reaches z.

    It is 2 (1 - Phi(z)) at the first look, plus the rate phi(z) (z - 1/z) at which the process
    crosses z per unit of log information. It is exact for one look. For looks after every answer it
    is at most a quarter too large, on the safe side (the process has jumps).

    Args:
        z: Level in standard errors, at least 0.
        looks: Ratio of the information at the last look to that at the first, at least 1.
    """
    if math.isinf(z):
        return 0.0
    level = max(z, _RAREST_COMMON)
    density = math.exp(-level * level / 2) / math.sqrt(2 * math.pi)
    crossing = density * (level - 1 / level) * math.log(looks)
    return min(math.erfc(z / math.sqrt(2)) + crossing, 1.0)


@lru_cache(maxsize=64)  # every step of a test calls it with the same arguments
def boundary(alpha: float, looks: float = 1.0) -> float:
    """The z that two equals ever reach with probability alpha: inverse of `ever_this_far`."""
    lo, hi = 0.0, 40.0
    for _ in range(60):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if ever_this_far(middle, looks) > alpha else (lo, middle)
    return hi
