"""Is one examinee better than another? Differences, their errors, and the items that decide.

There are three comparisons. `paired` takes the mean difference of the scores on the items that both
answered. The items' difficulties cancel out, so it needs no response model. `of_scores` takes the
difference of two scores on one bank, each with its interval. `of_abilities` takes the difference of
two abilities on one scale, with their stated errors.

Sources: Agresti and Min (2005), Statistics in Medicine 24 (interval of paired proportions); Miller
(2024), arXiv 2411.00640 (paired and clustered errors for evaluations of language models); Kish
(1965), Survey Sampling (groups of unequal sizes).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from scipy.special import (
    bdtr,
    stdtr,
    stdtrit,
)

from app.engine.bank import FloatArray
from app.engine.estimation.intervals import ratio_of, risk_of
from app.engine.models.base import BoolArray
from app.engine.prediction.ability import Ability, Stated
from app.engine.state import Z_95
from app.errors import InvalidInputError

_NORMAL = NormalDist()
#: Power for which the number of further items is computed.
POWER = 0.8
#: Smallest number of common items from which the correlation of two errors is estimated.
LEAST_COMMON = 10
_MOST_ALIKE = 0.99  # upper bound of the residuals' correlation: even a copy may answer differently
_SHARED = 0.5  # share of the residuals' correlation that the errors of the scores have
#: The number of further items is searched up to this multiple of the present number.
_MOST_TIMES = 1000


class Verdict(StrEnum):
    """Order of the first examinee relative to the second."""

    ABOVE = "above"
    BELOW = "below"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference between two examinees, first minus second.

    Attributes:
        delta: The difference; for abilities, the difference of the estimates.
        se: Standard error of the difference; `None` if the items show no spread.
        lo: Lower end of the interval at the requested confidence; `None` if `se` is.
        hi: Upper end of the interval; `None` if `se` is.
        p_value: Two-sided p-value of the hypothesis that there is no difference.
        test: Test of the p-value: `mcnemar_exact` (scores of 0 and 1), `paired_t`, `cluster_t`
            (items in groups), `sign` (graded scores whose differences are all equal), `z`
            (abilities, or scores of a bank with normal errors), `t` (other scores of a bank).
        power: Probability that as many new items would detect a difference of this size.
        items_to_decide: Further items for each examinee that detect it with probability 0.8; 0 if
            it is detected already, `None` if no number of items would.
        verdict: Decision by the p-value at the requested confidence.
    """

    delta: float
    se: float | None = None
    lo: float | None = None
    hi: float | None = None
    p_value: float
    test: str
    power: float | None = None
    items_to_decide: int | None
    verdict: Verdict


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    groups: Sequence[object] | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Mean difference of the scores on items that both examinees answered.

    Args:
        first: Scores of the first examinee, in [0, 1], one for each item.
        second: Scores of the second examinee on the same items.
        groups: Group of each item, such as the text that several questions share. Differences
            within a group are dependent and count as one. An item with `None` is its own group.
        confidence: Confidence of the interval and the verdict.

    Raises:
        InvalidInputError: Fewer than two items, unequal lengths, or all items in one group.
    """
    n_items = len(first)
    if n_items < 2 or len(second) != n_items:
        raise InvalidInputError(
            f"A paired comparison needs at least 2 common items, got {n_items} and {len(second)} "
            "scores."
        )
    _check_confidence(confidence)
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    # An item without a group is a group of its own.
    keys = [(i,) if group is None else group for i, group in enumerate(groups)] if groups else []
    if groups is not None and len(set(keys)) < n_items:
        return _clustered(differences, keys, confidence)
    if set(first) | set(second) <= {0.0, 1.0}:
        return _of_proportions(differences, confidence)
    delta, se = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n_items)
    if se == 0.0:
        return _constant(delta, n_items, confidence)
    p_value, half = _by_t(delta, se, n_items - 1, confidence)
    ends = max(delta - half, -1.0), min(delta + half, 1.0)
    return _difference(delta, se, ends, p_value, "paired_t", n_items, confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredScore:
    """The score of an examinee on a bank, with its 95 % interval.

    Attributes:
        n_items: Number of scored answers behind the score.
        degrees: Degrees of freedom if the error follows Student's t; None if it is normal.
    """

    value: float
    lo: float
    hi: float
    n_items: int
    degrees: float | None = None


def of_scores(
    first: MeasuredScore,
    second: MeasuredScore,
    *,
    confidence: float = 0.95,
    correlation: float = 0.0,
) -> Difference:
    """Difference of two scores over the same items.

    The verdict uses the sides of the two intervals that face each other. Beyond 95 % the interval
    is that of `app.engine.estimation.intervals.at_confidence`, with the heavier tails of the two.
    The number of further items assumes that they are as informative as the items so far.

    Args:
        first: Score of the first examinee.
        second: Score of the second examinee.
        confidence: Confidence of the interval and the verdict.
        correlation: Correlation of the two errors by `shared_error`; 0 if they are independent.
    """
    _check_confidence(confidence)
    delta = first.value - second.value
    down = _joint(first.value - first.lo, second.hi - second.value, correlation)
    up = _joint(first.hi - first.value, second.value - second.lo, correlation)
    degrees = first.degrees or second.degrees
    ratio, half = ratio_of(confidence, degrees=degrees), (down + up) / 2
    below, above = _sides(np.array([down, up]), half, ratio).tolist()
    ends = delta - below, delta + above
    facing, distance = down if delta > 0 else up, abs(delta)
    if distance > facing:
        wider = max(facing, half)
        to_zero = 1 + (distance - facing) / wider if wider > 0.0 else math.inf
    else:
        to_zero = distance / facing if facing > 0.0 else 0.0
    p_value, n_items = risk_of(to_zero, degrees=degrees), max(first.n_items, second.n_items)
    test = "z" if degrees is None else "t"
    return _difference(delta, facing / Z_95, ends, p_value, test, n_items, confidence)


def _sides(at_95: FloatArray, half: float | FloatArray, ratio: float) -> FloatArray:
    """Lengths of sides of intervals, from those at 95 % and the intervals' half-widths."""
    return ratio * at_95 if ratio <= 1.0 else at_95 + (ratio - 1.0) * np.maximum(at_95, half)


def scores_above(scores: Sequence[MeasuredScore], *, confidence: float = 0.95) -> BoolArray:
    """Whether `of_scores` decides that the score of a row is above that of a column."""
    value, lo, hi = (
        np.array([getattr(score, end) for score in scores]) for end in ("value", "lo", "hi")
    )
    down = np.hypot.outer(value - lo, hi - value)
    half, is_above = (down + down.T) / 2, np.zeros(down.shape, dtype=np.bool_)
    delta = np.subtract.outer(value, value)
    degrees = np.array([score.degrees or 0.0 for score in scores])
    degrees = np.where(degrees[:, None] > 0.0, degrees[:, None], degrees)
    for tails in np.unique(degrees).tolist():
        ratio = ratio_of(confidence, degrees=tails or None)
        is_above |= (degrees == tails) & (delta > _sides(down, half, ratio))
    return is_above


def shared_error(first: FloatArray, second: FloatArray, n_first: int, n_second: int) -> float:
    """Correlation of the errors of two scores, estimated on the items that both answered.

    Two models of one family deviate from the curves on the same items. Such an item moves both
    scores the same way, so that its error cancels in the difference. The correlation of the
    residuals measures this. The estimate is lowered by one standard error (Fisher's z), scaled to
    the share of common items, and halved: predictions of items not asked share less of the error.
    Without halving, gates erred more often than they claim (`benchmarks/baselines.py`).

    Args:
        first: Residuals of the first examinee (score minus expected score) on the common items.
        second: Residuals of the second examinee on the same items.
        n_first: Number of items behind the first score.
        n_second: Number of items behind the second score.

    Returns:
        Correlation from 0 to below 1/2; 0 with fewer than `LEAST_COMMON` common items.
    """
    n_common = first.size
    length = math.sqrt(float(first @ first) * float(second @ second))
    if n_common < LEAST_COMMON or length == 0.0:
        return 0.0
    observed = min(float(first @ second) / length, _MOST_ALIKE)
    lowered = math.tanh(max(math.atanh(max(observed, 0.0)) - 1.0 / math.sqrt(n_common - 3), 0.0))
    return _SHARED * lowered * min(n_common / math.sqrt(n_first * n_second), 1.0)


def _joint(one: float, other: float, correlation: float) -> float:
    """Standard deviation of the difference of two correlated errors."""
    return math.sqrt(max(one**2 + other**2 - 2.0 * correlation * one * other, 0.0))


#: Ratio of observed to stated error of the ability difference between a model and its new release.
OF_RELEASES = 1.5


def of_abilities(
    first: Ability, second: Ability, *, confidence: float = 0.95, factor: float = 1.0
) -> Difference:
    """Difference of two abilities on one scale, measured independently of each other.

    The number of further items assumes that they are as informative as the items so far.

    Args:
        first: Ability of the first examinee.
        second: Ability of the second examinee.
        confidence: Confidence of the interval and the verdict.
        factor: Factor on the error; `OF_RELEASES` if one may follow the curves less than the other.
    """
    _check_confidence(confidence)
    gap = first.stated().minus(second.stated())
    gap = replace(gap, sd=factor * gap.sd)
    if not (math.isfinite(gap.sd) and gap.sd > 0 and math.isfinite(gap.estimate)):
        undecided = Verdict.UNDECIDED
        return Difference(
            delta=gap.estimate, p_value=1.0, test="z", items_to_decide=None, verdict=undecided
        )
    level = _NORMAL.inv_cdf(0.5 + confidence / 2)
    distance = abs(gap.estimate)
    p_value = math.erfc(distance / gap.sd / math.sqrt(2))
    verdict = _verdict(gap.estimate, p_value, confidence)
    more: int | None = 0
    if verdict is Verdict.UNDECIDED:
        wanted = distance / (level + _NORMAL.inv_cdf(POWER)) / factor
        more = _further(first, second, wanted)
    return Difference(
        delta=gap.estimate,
        se=gap.sd,
        lo=gap.estimate - level * gap.sd,
        hi=gap.estimate + level * gap.sd,
        p_value=p_value,
        test="z",
        power=_NORMAL.cdf(distance / gap.sd - level),
        items_to_decide=more,
        verdict=verdict,
    )


def abilities_above(abilities: Sequence[Stated], *, confidence: float = 0.95) -> BoolArray:
    """Whether `of_abilities` decides that the ability of a row is above that of a column."""
    level = _NORMAL.inv_cdf(0.5 + confidence / 2)
    is_above = np.zeros((len(abilities), len(abilities)), dtype=np.bool_)
    for row, first in enumerate(abilities):
        for column, second in enumerate(abilities):
            if first.theta > second.theta:
                gap = first.minus(second)
                is_above[row, column] = gap.estimate >= level * gap.sd > 0.0
    return is_above


def _further(first: Ability, second: Ability, wanted: float) -> int | None:
    """Further items for each examinee that lower the error of the difference to `wanted`."""

    def is_enough(times: float) -> bool:
        return first.stated(times).minus(second.stated(times)).sd <= wanted

    return _more(is_enough, max(first.n_items, second.n_items))


def _more(is_enough: Callable[[float], bool], n_items: int) -> int | None:
    """Further items, of `n_items` times the least factor that is enough; None if none is."""
    if not is_enough(_MOST_TIMES):
        return None
    few, enough = 1.0, float(_MOST_TIMES)
    while enough - few > 1e-6 * few:
        middle = math.sqrt(few * enough)
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return max(1, math.ceil(n_items * (enough - 1) - 1e-3))


def _of_proportions(differences: FloatArray, confidence: float) -> Difference:
    """Difference for scores of 0 and 1: exact test, and an interval that is valid for few items."""
    n_items = len(differences)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    discordant = wins + losses
    p_value = min(1.0, 2 * float(bdtr(min(wins, losses), discordant, 0.5)))
    delta, se = (wins - losses) / n_items, float(differences.std(ddof=1)) / math.sqrt(n_items)
    # Half a pair is added to each of the four cells (Agresti and Min 2005).
    middle = (wins - losses) / (n_items + 2)
    half = _NORMAL.inv_cdf(0.5 + confidence / 2) * math.sqrt(
        (discordant + 1) / (n_items + 2) ** 2 - middle**2 / (n_items + 2)
    )
    verdict = _verdict(delta, p_value, confidence)
    # The exact test is stricter: the interval must not exclude 0 if the test is not significant.
    open_at = 0.0 if verdict is Verdict.UNDECIDED else delta
    # With fewer discordant items no result is significant, even if all go the same way.
    least = math.ceil(1 - math.log2(1 - confidence)) * n_items / max(discordant, 1)
    ends = max(-1.0, min(middle - half, open_at)), min(1.0, max(middle + half, open_at))
    found = _difference(delta, se, ends, p_value, "mcnemar_exact", n_items, confidence, least)
    return replace(found, se=se or None)


def _clustered(differences: FloatArray, keys: Sequence[object], confidence: float) -> Difference:
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    if len(places) < 2:
        raise InvalidInputError(
            f"All {len(differences)} common items belong to one group, which counts as one "
            "answer: a difference needs items of at least 2 groups."
        )
    delta, group = float(differences.mean()), [places[key] for key in keys]
    sums, sizes = np.bincount(group, differences - delta), np.bincount(group)
    # Groups of unequal sizes tell as much as fewer equal ones (Kish 1965): a large group decides
    # the mean nearly alone, whatever the number of the others.
    n_alike = len(differences) ** 2 / float(sizes @ sizes)
    se = math.sqrt(float(sums @ sums) * n_alike / (n_alike - 1)) / len(differences)
    if se == 0.0:
        return _constant(delta, len(places), confidence)
    p_value, half = _by_t(delta, se, n_alike - 1, confidence)

    def is_enough(times: float) -> bool:
        # Of few groups, t is far from normal: more items help by more groups, too.
        level = float(stdtrit(times * n_alike - 1, 0.5 + confidence / 2))
        return (level + _NORMAL.inv_cdf(POWER)) * se <= abs(delta) * math.sqrt(times)

    verdict, more = _verdict(delta, p_value, confidence), 0 if delta else None
    if verdict is Verdict.UNDECIDED and delta:
        more = _more(is_enough, len(differences))
    return Difference(
        delta=delta,
        se=se,
        lo=max(delta - half, -1.0),
        hi=min(delta + half, 1.0),
        p_value=p_value,
        test="cluster_t",
        power=_NORMAL.cdf((abs(delta) - half) / se),
        items_to_decide=more,
        verdict=verdict,
    )


def _by_t(delta: float, se: float, degrees: float, confidence: float) -> tuple[float, float]:
    """The p-value of a difference whose error follows Student's t, and its half-width."""
    half = float(stdtrit(degrees, 0.5 + confidence / 2)) * se
    return 2 * float(stdtr(degrees, -abs(delta) / se)), half


def _constant(delta: float, n: int, confidence: float) -> Difference:
    """Difference where all items have the same one: only its sign can be tested."""
    p_value = 2 * 0.5**n if delta else 1.0
    verdict = _verdict(delta, p_value, confidence)
    least = math.ceil(1 - math.log2(1 - confidence))
    more = max(0, least - n) if delta else None
    return Difference(
        delta=delta, p_value=p_value, test="sign", items_to_decide=more, verdict=verdict
    )


def _difference(
    delta: float,
    se: float,
    ends: tuple[float, float],
    p_value: float,
    test: str,
    n_items: int,
    confidence: float,
    least: float = 0.0,
) -> Difference:
    """The difference, with its power and the further items (`least` in all) that decide it."""
    verdict, level = _verdict(delta, p_value, confidence), _NORMAL.inv_cdf(0.5 + confidence / 2)
    more: int | None = 0
    if verdict is Verdict.UNDECIDED and delta == 0:
        more = None
    elif verdict is Verdict.UNDECIDED:
        needed = max(((level + _NORMAL.inv_cdf(POWER)) * se / delta) ** 2 * n_items, least)
        more = max(1, math.ceil(needed - n_items))
    return Difference(
        delta=delta,
        se=se,
        lo=ends[0],
        hi=ends[1],
        p_value=p_value,
        test=test,
        power=None if se == 0 else _NORMAL.cdf(abs(delta) / se - level),
        items_to_decide=more,
        verdict=verdict,
    )


def _verdict(delta: float, p_value: float, confidence: float) -> Verdict:
    if p_value > 1 - confidence or delta == 0:
        return Verdict.UNDECIDED
    return Verdict.ABOVE if delta > 0 else Verdict.BELOW


def _check_confidence(confidence: float) -> None:
    if not 0.5 <= confidence < 1:
        raise InvalidInputError(f"confidence: expected 0.5 or more and below 1, got {confidence}.")
