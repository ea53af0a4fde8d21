"""Intervals at another confidence than 95 %, and intervals that are looked at again and again.

Who compares an estimate with a threshold after every answer, and stops once it is clear, finds it
clear too often: one of the looks errs. Over all looks the interval must be wider. For `looks`, the
ratio of the information at the last look to that at the first, it is the interval that two equals
(or an estimate and its threshold) leave on one side at *any* look with a probability of at most
1 - confidence.

Source: Siegmund (1985), Sequential Analysis, section 4.3; Jennison & Turnbull (1989), Journal of
the Royal Statistical Society B 51, for repeated confidence intervals.
"""

import math
from functools import lru_cache
from statistics import NormalDist

from scipy.special import stdtr, stdtrit

from app.engine.estimation.estimators import Z_95

_NORMAL = NormalDist()
_ROUNDING = 1e-9
#: Where phi(z) (z - 1/z) is largest, z^4 - 2 z^2 = 1: nearer, crossings are too common to be told
#: apart, and their rate is held.
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

    At 95 %, and one look, they are what they were. A narrower interval is made from the wider side:
    an end may be where it is because the measure ends there, and must not come nearer for it. An
    interval that lies beside its estimate, which is thought to err to one side, has errors about
    its middle: the ends hold those about the estimate and those about the middle.

    Args:
        value: The estimate.
        lo: Lower end of its 95 % interval.
        hi: Upper end.
        confidence: From 0.5 on, below 1.
        looks: Ratio of the information at the last look to that at the first; 1 for one look.
        degrees: Of Student's t, where the error's tails are as heavy as its; None is normal.
    """
    ratio = _ratio(confidence, looks, degrees)
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


def _ratio(confidence: float, looks: float, degrees: float | None) -> float:
    """Of the half width to that of a 95 % interval."""
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    if looks > 1.0:
        z = max(z, boundary(2 * (1 - confidence), looks))
    ratio = z / Z_95
    if degrees is None:
        return ratio
    # Beyond 95 % the tails are heavier than the normal's, and before that the middle is narrower.
    heavy = float(stdtrit(degrees, _NORMAL.cdf(z)) / stdtrit(degrees, _NORMAL.cdf(Z_95)))
    return max(ratio, heavy)


#: Times as wide that no interval is at any confidence; more may overflow.
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
    """Probability that what is estimated is above a threshold, as sure as `at_confidence` is.

    The interval at a confidence lies wholly above the threshold where this is more than
    0.5 + confidence / 2, and wholly below where it is less than 0.5 - confidence / 2. Between an
    estimate and the middle of its interval, to either of which errors may belong, it is 0.5.

    Args:
        value: As of `at_confidence`, and so are those that follow.
        lo: From `value` down.
        hi: From `value` up.
        threshold: What it is held against.
        looks: As there.
        degrees: As there.
    """
    above = _reach(value, lo, hi, threshold)
    if above > 0.0:
        return 1.0 - _risk(above, looks, degrees) / 2.0
    return _risk(_reach(-value, -hi, -lo, -threshold), looks, degrees) / 2.0


def _reach(value: float, lo: float, hi: float, threshold: float) -> float:
    """Ratio at which the lower end of the interval is at the threshold; 0 where it is above it."""
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


def _risk(ratio: float, looks: float, degrees: float | None) -> float:
    """1 - confidence of the interval that is so many times as wide: the inverse of `_ratio`."""
    tail = math.erfc(ratio * Z_95 / math.sqrt(2)) / 2
    if degrees is not None:
        usual = stdtrit(degrees, _NORMAL.cdf(Z_95))
        tail = max(tail, float(stdtr(degrees, -min(ratio, _SURE) * usual)))
    if looks <= 1.0:
        return 2 * tail
    z = -_NORMAL.inv_cdf(tail) if tail > 0.0 else math.inf
    return max(2 * tail, ever_this_far(max(z, 0.0), looks) / 2)


def ever_this_far(z: float, looks: float = 1.0) -> float:
    """Probability that the distance of two equals, in standard errors, ever reaches z.

    2 (1 - Phi(z)) at the first look, plus the rate phi(z) (z - 1/z) at which the process crosses z
    while the logarithm of the information grows. Exact for one look; for looks after every answer
    it errs, if at all, on the safe side by less than a quarter (the process has jumps).

    Args:
        z: At least 0.
        looks: Ratio of the information at the last look to that at the first, at least 1.
    """
    if math.isinf(z):
        return 0.0
    level = max(z, _RAREST_COMMON)
    density = math.exp(-level * level / 2) / math.sqrt(2 * math.pi)
    crossing = density * (level - 1 / level) * math.log(looks)
    return min(math.erfc(z / math.sqrt(2)) + crossing, 1.0)


@lru_cache(maxsize=64)  # asked for at every step, always the same
def boundary(alpha: float, looks: float = 1.0) -> float:
    """The z that two equals ever reach with probability alpha: the inverse of `ever_this_far`."""
    lo, hi = 0.0, 40.0
    for _ in range(60):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if ever_this_far(middle, looks) > alpha else (lo, middle)
    return hi
