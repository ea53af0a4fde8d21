"""Is one examinee better than another? Differences with their error, and what would decide them.

Three ways. On the items that both have answered, the mean difference of the scores, item by item
(`paired`): what makes an item hard cancels out, so that it needs no model. The difference of two
scores of one bank, each with its interval (`of_scores`). And the difference of two abilities on one
scale (`of_abilities`), each where it is thought to be and with the error that it is stated with.

Sources: Agresti and Min (2005), Statistics in Medicine 24 (interval of paired proportions); Miller
(2024), arXiv 2411.00640 (paired and clustered errors for evaluations of language models).
"""

import math
from collections.abc import Sequence
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
from app.engine.estimation.estimators import Z_95
from app.engine.prediction.ability import Ability
from app.errors import InvalidInputError

_NORMAL = NormalDist()
#: Chance to find a difference that is there, for which further items are counted.
POWER = 0.8
#: Common items below which they tell nothing of what two scores' errors share.
LEAST_COMMON = 10
_MOST_ALIKE = 0.99  # correlation of residuals: even a copy may answer otherwise
_SHARED = 0.5  # of it, of the scores' errors
#: Further items are counted up to so many times those there are.
_MOST_TIMES = 1000


class Verdict(StrEnum):
    """Where the first examinee stands to the second."""

    ABOVE = "above"
    BELOW = "below"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """First minus second.

    Attributes:
        delta: The difference; of abilities that of the estimates.
        se: Standard error, of where the difference is thought to be; `None` where the items show no
            spread to tell it from.
        lo: Lower end of the interval at the asked confidence; `None` as for `se`.
        hi: Upper end.
        p_value: Two-sided, of no difference at all.
        test: What gave the p-value: `mcnemar_exact` (scores of 0 and 1), `paired_t`, `cluster_t`
            (items in groups), `sign` (graded scores that all differ by the same), `z` (abilities,
            or scores of a bank).
        power: Chance that as many items again would find a difference of this size.
        items_to_decide: Further items, for each examinee, that find it with a chance of 0.8; 0 when
            it is found, `None` where no number would.
        verdict: By the p-value at the asked confidence.
    """

    delta: float
    se: float | None
    lo: float | None
    hi: float | None
    p_value: float
    test: str
    power: float | None
    items_to_decide: int | None
    verdict: Verdict


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    groups: Sequence[object] | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Mean difference of the scores on items that both have answered.

    Args:
        first: Scores in [0, 1] of the first examinee, one an item.
        second: Scores of the second on the same items.
        groups: Items of one group (a text with several questions) go together: their differences
            are not independent, and count as one. `None` for an item is a group of its own.
        confidence: Of the interval and the verdict.

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
    if groups is not None and len(_sizes(groups)) < n_items:
        return _clustered(differences, groups, confidence)
    if set(first) | set(second) <= {0.0, 1.0}:
        return _of_proportions(differences, confidence)
    delta, se = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n_items)
    if se == 0.0:
        return _constant(delta, n_items, confidence)
    return _by_t(delta, se, n_items, n_items - 1, "paired_t", confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredScore:
    """The score of an examinee on a bank, with its 95 % interval.

    Attributes:
        n_items: Scored answers that it stands on.
    """

    value: float
    lo: float
    hi: float
    n_items: int


def of_scores(
    first: MeasuredScore,
    second: MeasuredScore,
    *,
    confidence: float = 0.95,
    correlation: float = 0.0,
) -> Difference:
    """Difference of two scores over the same items.

    What counts is how far the intervals reach towards each other. Further items are counted as if
    they told as much as those so far.

    Args:
        first: One score.
        second: The other.
        confidence: Of the interval and the verdict.
        correlation: Of their errors, see `shared_error`; 0 where they are independent.
    """
    _check_confidence(confidence)
    delta = first.value - second.value
    down = _joint(first.value - first.lo, second.hi - second.value, correlation) / Z_95
    up = _joint(first.hi - first.value, second.value - second.lo, correlation) / Z_95
    level = _NORMAL.inv_cdf(0.5 + confidence / 2)
    se = down if delta > 0 else up
    known = 0.0 if delta else 1.0
    p_value = math.erfc(abs(delta) / se / math.sqrt(2)) if se > 0.0 else known
    verdict = _verdict(delta, p_value, confidence)
    n_items = max(first.n_items, second.n_items)
    return Difference(
        delta=delta,
        se=se,
        lo=delta - level * down,
        hi=delta + level * up,
        p_value=p_value,
        test="z",
        power=_power(delta, se, confidence),
        items_to_decide=_more(delta, se, n_items, confidence, verdict),
        verdict=verdict,
    )


def shared_error(first: FloatArray, second: FloatArray, n_first: int, n_second: int) -> float:
    """Correlation of the errors of two scores, by the items that both have answered.

    Two models of one family are surprised by the same items. What one score is too high by for
    such an item, the other one is, too, and it cancels from their difference. The correlation of
    the residuals tells how much; it is taken a standard error lower than it was seen (Fisher's z),
    counts for the common items alone, and by half: predictions of items not asked share less, and
    with all of it gates erred more often than they say (`benchmarks/baselines.py`).

    Args:
        first: Scores of the first examinee less what its ability lets expect, on common items.
        second: The same of the second, on the same items.
        n_first: Items that the first one's score stands on.
        n_second: Items that the second one's stands on.

    Returns:
        From 0 to below 1/2; 0 below `LEAST_COMMON` common items.
    """
    n_common = first.size
    length = math.sqrt(float(first @ first) * float(second @ second))
    if n_common < LEAST_COMMON or length == 0.0:
        return 0.0
    seen = min(float(first @ second) / length, _MOST_ALIKE)
    surely = math.tanh(max(math.atanh(max(seen, 0.0)) - 1.0 / math.sqrt(n_common - 3), 0.0))
    return _SHARED * surely * min(n_common / math.sqrt(n_first * n_second), 1.0)


def _joint(one: float, other: float, correlation: float) -> float:
    """Length of the difference of two errors."""
    return math.sqrt(max(one**2 + other**2 - 2.0 * correlation * one * other, 0.0))


#: By how much more than stated abilities of a model and of its changed release were apart in error.
OF_RELEASES = 1.5


def of_abilities(
    first: Ability, second: Ability, *, confidence: float = 0.95, factor: float = 1.0
) -> Difference:
    """Difference of two abilities on one scale, measured independently of each other.

    As an ability's own interval, that of the difference lies about where it is thought to be, and
    holds the difference of the estimates. Further items are counted as if they told as much as
    those so far.

    Args:
        first: One ability.
        second: The other.
        confidence: Of the interval and the verdict.
        factor: On the error; `OF_RELEASES` where one may follow the curves less than the other.
    """
    _check_confidence(confidence)
    gap = first.stated().minus(second.stated())
    gap = replace(gap, sd=factor * gap.sd)
    if not (math.isfinite(gap.sd) and gap.sd > 0 and math.isfinite(gap.estimate)):
        return Difference(
            delta=gap.estimate,
            se=None,
            lo=None,
            hi=None,
            p_value=1.0,
            test="z",
            power=None,
            items_to_decide=None,
            verdict=Verdict.UNDECIDED,
        )
    level = _NORMAL.inv_cdf(0.5 + confidence / 2)
    # Where both differences go opposite ways the interval holds 0 whatever the confidence.
    apart = abs(gap.middle) if gap.estimate * gap.middle > 0 else 0.0
    p_value = math.erfc(apart / gap.sd / math.sqrt(2))
    verdict = _verdict(gap.estimate, p_value, confidence)
    more: int | None = 0
    if verdict is Verdict.UNDECIDED:
        more = _further(first, second, apart / (level + _NORMAL.inv_cdf(POWER)))
    return Difference(
        delta=gap.estimate,
        se=gap.sd,
        lo=min(gap.middle - level * gap.sd, gap.estimate),
        hi=max(gap.middle + level * gap.sd, gap.estimate),
        p_value=p_value,
        test="z",
        power=_NORMAL.cdf(apart / gap.sd - level),
        items_to_decide=more,
        verdict=verdict,
    )


def _further(first: Ability, second: Ability, wanted: float) -> int | None:
    """Further items for each that bring the error of the difference down to `wanted`."""

    def is_enough(times: float) -> bool:
        return first.stated(times).minus(second.stated(times)).sd <= wanted

    if not is_enough(_MOST_TIMES):
        return None
    few, enough = 1.0, float(_MOST_TIMES)
    while enough - few > 1e-6 * few:
        middle = math.sqrt(few * enough)
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return max(1, math.ceil(max(first.n_items, second.n_items) * (enough - 1) - 1e-3))


def _of_proportions(differences: FloatArray, confidence: float) -> Difference:
    """Scores of 0 and 1: exact test, and an interval that holds for few items."""
    n_items = len(differences)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    discordant = wins + losses
    p_value = min(1.0, 2 * float(bdtr(min(wins, losses), discordant, 0.5))) if discordant else 1.0
    delta, se = (wins - losses) / n_items, float(differences.std(ddof=1)) / math.sqrt(n_items)
    # Half a pair is added to each of the four kinds (Agresti and Min 2005).
    middle = (wins - losses) / (n_items + 2)
    half = _NORMAL.inv_cdf(0.5 + confidence / 2) * math.sqrt(
        (discordant + 1) / (n_items + 2) ** 2 - middle**2 / (n_items + 2)
    )
    verdict = _verdict(delta, p_value, confidence)
    # The exact test is the stricter one: what it leaves open the interval must not exclude.
    open_at = 0.0 if verdict is Verdict.UNDECIDED else delta
    # Even if all of them went one way, fewer discordant items could not decide.
    least = math.ceil(1 - math.log2(1 - confidence)) / (discordant / n_items) if discordant else 0
    return Difference(
        delta=delta,
        se=se or None,
        lo=max(-1.0, min(middle - half, open_at)),
        hi=min(1.0, max(middle + half, open_at)),
        p_value=p_value,
        test="mcnemar_exact",
        power=_power(delta, se, confidence),
        items_to_decide=_more(delta, se, n_items, confidence, verdict, least=least),
        verdict=verdict,
    )


def _clustered(differences: FloatArray, groups: Sequence[object], confidence: float) -> Difference:
    sizes = _sizes(groups)
    if len(sizes) < 2:
        raise InvalidInputError(
            f"All {len(differences)} common items are of one group, which counts as one answer: "
            "nothing can be said of the difference."
        )
    delta = float(differences.mean())
    sums: dict[object, float] = dict.fromkeys(sizes, 0.0)
    for position, group in enumerate(groups):
        sums[_name(position, group)] += float(differences[position]) - delta
    n_groups = len(sums)
    variance = sum(total**2 for total in sums.values()) * n_groups / (n_groups - 1)
    se = math.sqrt(variance) / len(differences)
    if se == 0.0:
        return _constant(delta, n_groups, confidence)
    return _by_t(delta, se, len(differences), n_groups - 1, "cluster_t", confidence)


def _by_t(
    delta: float, se: float, n_items: int, freedom: int, test: str, confidence: float
) -> Difference:
    p_value = 2 * float(stdtr(freedom, -abs(delta) / se))
    half = float(stdtrit(freedom, 0.5 + confidence / 2)) * se
    verdict = _verdict(delta, p_value, confidence)
    return Difference(
        delta=delta,
        se=se,
        lo=delta - half,
        hi=delta + half,
        p_value=p_value,
        test=test,
        power=_power(delta, se, confidence),
        items_to_decide=_more(delta, se, n_items, confidence, verdict),
        verdict=verdict,
    )


def _constant(delta: float, n: int, confidence: float) -> Difference:
    """All differences are the same: only their sign can be tested."""
    p_value = min(1.0, 2 * 0.5**n) if delta else 1.0
    verdict = _verdict(delta, p_value, confidence)
    least = math.ceil(1 - math.log2(1 - confidence))
    more = max(0, least - n) if delta else None
    return Difference(
        delta=delta,
        se=None,
        lo=None,
        hi=None,
        p_value=p_value,
        test="sign",
        power=None,
        items_to_decide=more,
        verdict=verdict,
    )


def _verdict(delta: float, p_value: float, confidence: float) -> Verdict:
    if p_value > 1 - confidence or delta == 0:
        return Verdict.UNDECIDED
    return Verdict.ABOVE if delta > 0 else Verdict.BELOW


def _power(delta: float, se: float, confidence: float) -> float | None:
    if se == 0:
        return None
    return _NORMAL.cdf(abs(delta) / se - _NORMAL.inv_cdf(0.5 + confidence / 2))


def _more(
    delta: float,
    se: float,
    n_items: int,
    confidence: float,
    verdict: Verdict,
    *,
    least: float = 0.0,
) -> int | None:
    """Further items with which a difference of this size is found with a chance of `POWER`."""
    if verdict is not Verdict.UNDECIDED:
        return 0
    if delta == 0:
        return None
    level = _NORMAL.inv_cdf(0.5 + confidence / 2) + _NORMAL.inv_cdf(POWER)
    needed = max((level * se / delta) ** 2 * n_items, least)
    return max(1, math.ceil(needed - n_items))


def _sizes(groups: Sequence[object]) -> dict[object, int]:
    sizes: dict[object, int] = {}
    for position, group in enumerate(groups):
        name = _name(position, group)
        sizes[name] = sizes.get(name, 0) + 1
    return sizes


def _name(position: int, group: object) -> object:
    """An item without a group is one of its own."""
    return (position,) if group is None else group


def _check_confidence(confidence: float) -> None:
    if not 0.5 <= confidence < 1:
        raise InvalidInputError(f"confidence: expected 0.5 or more and below 1, got {confidence}.")
