"""Paired comparisons: differences, their errors, and how many items would decide them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from app.engine.estimation.intervals import at_confidence
from app.engine.inference.comparison import (
    OF_RELEASES,
    MeasuredScore,
    Verdict,
    of_abilities,
    of_scores,
    paired,
    scores_above,
    shared_error,
)
from app.engine.inference.gate import GateOutcome, gate
from app.engine.prediction.ability import Ability
from app.engine.ranking.ranks import weak_order
from app.errors import InvalidInputError
from tests.values import not_none


def binary(both: int, first: int, second: int, neither: int) -> tuple[list[float], list[float]]:
    """Return scores of two examinees with so many items right for both, one or neither."""
    counts = (both, first, second, neither)
    pairs = np.repeat([(1, 1), (1, 0), (0, 1), (0, 0)], counts, axis=0)
    return pairs[:, 0].astype(float).tolist(), pairs[:, 1].astype(float).tolist()


def test_right_and_wrong_are_tested_exactly() -> None:
    # Agresti, Categorical Data Analysis, prime minister's approval: 86 left, 150 joined.
    found = paired(*binary(794, 150, 86, 570))
    assert found.test == "mcnemar_exact"
    assert found.delta == pytest.approx(0.04)
    # Agresti and Min (2005) print the plain interval of these data as (0.021, 0.059).
    assert (found.lo, found.hi) == pytest.approx((0.021, 0.059), abs=0.001)
    assert found.p_value == pytest.approx(3.7e-5, rel=0.05)
    assert found.verdict is Verdict.ABOVE
    assert found.items_to_decide == 0


@given(*[st.integers(0, 40)] * 2, st.integers(2, 80))
def test_the_interval_excludes_no_difference_where_the_exact_test_does(
    first: int, second: int, neither: int
) -> None:
    found = paired(*binary(0, first, second, neither))
    lo, hi = not_none(found.lo), not_none(found.hi)
    assert (found.verdict is Verdict.UNDECIDED) == (lo <= 0.0 <= hi)
    assert -1.0 <= lo <= found.delta <= hi <= 1.0


def test_identical_scores_give_no_difference_but_an_interval() -> None:
    found = paired(*binary(10, 0, 0, 10))
    assert (found.delta, found.p_value, found.verdict) == (0.0, 1.0, Verdict.UNDECIDED)
    assert not_none(found.lo) < -0.05
    assert not_none(found.hi) > 0.05
    assert found.items_to_decide is None


def test_graded_scores_take_the_paired_t_test() -> None:
    # A tenth of Student's sleep data (1908); R's t.test gives t = -4.0621, df = 9, p = 0.002833.
    first = [0.07, -0.16, -0.02, -0.12, -0.01, 0.34, 0.37, 0.08, 0.0, 0.2]
    second = [0.19, 0.08, 0.11, 0.01, -0.01, 0.44, 0.55, 0.16, 0.46, 0.34]
    found = paired(first, second)
    assert found.test == "paired_t"
    assert found.delta == pytest.approx(-0.158)
    assert found.p_value == pytest.approx(0.002833, abs=1e-6)
    assert (found.lo, found.hi) == pytest.approx((-0.24598858, -0.07001142))
    assert found.verdict is Verdict.BELOW
    open_ = paired([0.0, 1.0, 0.5], [0.3, 0.1, 0.9])  # by t 0.07 +- 1.79
    assert (open_.lo, open_.hi) == (-1.0, 1.0)


def test_two_groups_are_enough_and_each_counts_as_one_answer() -> None:
    told = paired([1.0, 0.8, 0.2], [0.4, 0.2, 0.5], groups=["a", "a", "b"])
    # Residuals of the differences 0.6, 0.6, -0.3 sum to 0.6 and -0.6 in the two groups.
    assert told.test == "cluster_t"
    assert told.delta == pytest.approx(0.3)
    # Groups of two and one count as 9 / 5 equal ones.
    assert told.se == pytest.approx((9 / 4 * (0.6**2 + 0.6**2)) ** 0.5 / 3)


def test_a_group_of_most_items_decides_nothing_beside_items_alone() -> None:
    first, second = [1.0] * 50 + [1.0, 0.0] * 10, [0.0] * 50 + [0.0, 1.0] * 10
    alone: list[str | None] = [None] * 20
    for groups, verdict in (
        (["text"] * 50, Verdict.UNDECIDED),
        ([f"text {i // 5}" for i in range(50)], Verdict.ABOVE),
    ):
        assert paired(first, second, groups=[*groups, *alone]).verdict is verdict


def test_a_group_of_nearly_all_items_is_not_decided_by_one_more() -> None:
    """Its t has next to no degrees of freedom, and as many more items hardly one."""
    first, second = [1.0] * 260 + [0.0] * 241, [0.0] * 250 + [1.0] * 10 + [0.0] * 241
    told = paired(first, second, groups=["text"] * 500 + [None])
    assert told.verdict is Verdict.UNDECIDED
    assert told.power == 0.0
    assert told.items_to_decide is not None
    assert told.items_to_decide > 100


def test_groups_of_one_item_change_nothing() -> None:
    first, second = [0.1, 0.5, 0.9, 0.3], [0.2, 0.1, 0.8, 0.6]
    assert paired(first, second, groups=["a", None, None, "b"]) == paired(first, second)


def test_equal_or_unknown_abilities_are_never_decided() -> None:
    one = Ability(theta=0.0, se=0.3, n_items=30)
    assert of_abilities(one, one).items_to_decide is None
    unknown = of_abilities(one, Ability(theta=0.0, se=math.inf, n_items=0))
    assert (unknown.se, unknown.p_value, unknown.verdict) == (None, 1.0, Verdict.UNDECIDED)


@pytest.mark.parametrize("confidence", [0.4, 1.0])
def test_an_invalid_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidInputError, match="confidence"):
        paired([1.0, 0.0], [0.0, 1.0], confidence=confidence)


def test_one_common_item_or_one_group_cannot_be_compared() -> None:
    with pytest.raises(InvalidInputError, match="at least 2 common items"):
        paired([1.0], [0.0])
    with pytest.raises(InvalidInputError, match="one group"):
        paired([1.0, 0.5], [0.0, 0.2], groups=["a", "a"])


@pytest.mark.parametrize(
    ("threshold", "above", "outcome"),
    [
        (0.5, True, GateOutcome.GO),
        (1.2, True, GateOutcome.INCONCLUSIVE),
        (0.8, True, GateOutcome.INCONCLUSIVE),
        (1.5, True, GateOutcome.NO_GO),
        (1.5, False, GateOutcome.GO),
        (0.5, False, GateOutcome.NO_GO),
    ],
)
def test_a_gate_goes_by_the_whole_interval(
    threshold: float, above: bool, outcome: GateOutcome
) -> None:
    found = gate(1.0, 0.608, 1.392, threshold=threshold, above=above)  # standard error 0.2
    assert found.outcome is outcome
    assert (not_none(found.margin) > 0) == ((threshold < 1.0) == above)


def test_an_interval_clipped_at_its_range_is_no_more_certain() -> None:
    assert gate(0.98, 0.94, 1.0, threshold=0.99).outcome is GateOutcome.INCONCLUSIVE
    assert gate(0.98, 0.94, 1.0, threshold=0.99).p_beyond == pytest.approx(0.31, abs=0.01)


def test_an_unknown_value_is_inconclusive() -> None:
    for lo, hi in ((None, None), (None, 1.0), (-1.0, None), (-math.inf, math.inf)):
        assert gate(0.0, lo, hi, threshold=-5).outcome is GateOutcome.INCONCLUSIVE


@given(
    value=st.floats(-3, 3),
    below=st.floats(0, 2),
    above=st.floats(0, 2),
    threshold=st.floats(-5, 5),
    confidence=st.floats(0.5, 0.999),
    looks=st.sampled_from([1.0, 2.5, 10.0]),
    degrees=st.sampled_from([None, 5.0]),
    earlier=st.integers(0, 2),
)
def test_verdict_interval_and_probability_of_a_gate_agree(
    value: float,
    below: float,
    above: float,
    threshold: float,
    confidence: float,
    looks: float,
    degrees: float | None,
    earlier: int,
) -> None:
    found = gate(
        value,
        value - below,
        value + above,
        threshold=threshold,
        confidence=confidence,
        looks=looks,
        degrees=degrees,
        earlier=earlier,
    )
    lo, hi = map(not_none, found.interval)
    p_beyond, surest = not_none(found.p_beyond), 0.5 + confidence / 2
    if abs(p_beyond - surest) > 1e-6:
        assert (p_beyond > surest) == (lo > threshold) == (found.outcome is GateOutcome.GO)
    if abs(p_beyond - (1 - surest)) > 1e-6:
        no_go = found.outcome is GateOutcome.NO_GO
        assert (p_beyond < 1 - surest) == (hi < threshold) == no_go


def test_a_gates_probability_is_about_where_its_interval_lies() -> None:
    """The estimate is 2.5; the interval 1.4 to 2.6 has its middle at 2.0."""
    found = gate(2.5, 1.4, 2.6, threshold=1.6)
    assert found.outcome is GateOutcome.INCONCLUSIVE
    assert found.p_beyond == pytest.approx(0.9043, abs=1e-4)  # Phi(0.4 / 0.6 * 1.96)


def test_the_probability_of_a_gate_is_calibrated() -> None:
    first, second = (gate(0.5, 0.1, 0.9, threshold=0.05, earlier=n) for n in (0, 1))
    assert (first.outcome, second.outcome) == (GateOutcome.GO, GateOutcome.INCONCLUSIVE)
    assert 1 - not_none(second.p_beyond) == pytest.approx(2 * (1 - not_none(first.p_beyond)))


@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_a_moved_interval_has_its_errors_about_its_middle(confidence: float) -> None:
    """Corrections moved the interval to 1.4 to 2.6 at 95 %; the estimate is 2.5."""
    lo, hi = at_confidence(2.5, 1.4, 2.6, confidence)
    about = at_confidence(2.0, 1.4, 2.6, confidence)
    assert lo <= about[0] + 1e-12
    assert hi >= about[1] - 1e-12
    assert lo < 2.5 < hi


def test_tails_that_are_heavy_widen_a_gate_beyond_95_percent() -> None:
    ends = [
        gate(0.5, 0.4, 0.6, threshold=0, confidence=0.99, degrees=k).interval for k in (None, 5.0)
    ]
    assert ends[0] == pytest.approx((0.369, 0.631), abs=1e-3)
    assert ends[1] == pytest.approx((0.343, 0.657), abs=1e-3)
    within = gate(0.5, 0.4, 0.6, threshold=0, confidence=0.8, degrees=5.0).interval
    assert within == pytest.approx((0.435, 0.565), abs=1e-3)  # the normal one is wider


@pytest.mark.parametrize(
    "counts", [(20, 9, 6, 15), (3, 7, 1, 2), (40, 0, 3, 1), (5, 2, 2, 5), (0, 3, 0, 3)]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_binary_scores_are_compared_from_their_counts(
    counts: tuple[int, int, int, int], confidence: float
) -> None:
    _, wins, losses, _ = counts
    n = sum(counts)
    found = paired(*binary(*counts), confidence=confidence)
    z = norm.ppf(0.5 + confidence / 2)
    assert found.p_value == pytest.approx(binomtest(wins, wins + losses).pvalue)
    # Half a pair is added to each of the four kinds: shares of a multinomial of n + 2.
    p, q = (wins + 0.5) / (n + 2), (losses + 0.5) / (n + 2)
    half = z * ((p + q - (p - q) ** 2) / (n + 2)) ** 0.5
    lo = p - q - half if found.p_value <= 1 - confidence else min(p - q - half, 0.0)
    assert (found.lo, found.hi) == pytest.approx((lo, p - q + half))
    delta = (wins - losses) / n
    se = (((wins + losses) / n - delta**2) / (n - 1)) ** 0.5
    assert (found.delta, found.se) == pytest.approx((delta, se))
    assert found.power == pytest.approx(norm.sf(z - abs(delta) / se))
    if delta == 0.0:
        assert found.items_to_decide is None
    elif found.p_value <= 1 - confidence:
        assert found.items_to_decide == 0
    else:
        needed = ((z + norm.ppf(0.8)) * se / delta) ** 2 * n
        least = next(k for k in range(2, 20) if binomtest(0, k).pvalue <= 1 - confidence)
        needed = max(needed, least * n / (wins + losses))
        assert found.items_to_decide == max(1, math.ceil(needed - n))


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_equal_differences_are_tested_by_their_sign(confidence: float) -> None:
    least = next(k for k in range(2, 20) if binomtest(0, k).pvalue <= 1 - confidence)
    for n in (2, 4, least - 1, least, 9):
        found = paired([0.75] * n, [0.5] * n, confidence=confidence)
        assert found.p_value == pytest.approx(binomtest(0, n).pvalue)
        assert (found.test, found.delta, found.se) == ("sign", 0.25, None)
        assert found.items_to_decide == max(0, least - n)
        assert (found.verdict is Verdict.ABOVE) == (n >= least)
    nothing = paired([0.5] * 3, [0.5] * 3)
    assert (nothing.p_value, nothing.items_to_decide) == (1.0, None)


def test_a_difference_of_abilities_uses_the_normal_distribution() -> None:
    one, other = (Ability(theta=theta, se=0.3, n_items=n) for theta, n in ((0.5, 40), (0.0, 20)))
    found = of_abilities(one, other, confidence=0.9)
    se, z = 0.3 * 2**0.5, norm.ppf(0.95)
    assert (found.lo, found.hi) == pytest.approx((0.5 - z * se, 0.5 + z * se))
    assert found.p_value == pytest.approx(2 * norm.sf(0.5 / se))
    assert found.power == pytest.approx(norm.sf(z - 0.5 / se))
    times = ((z + norm.ppf(0.8)) * se / 0.5) ** 2
    assert found.items_to_decide == math.ceil(40 * (times - 1))
    close, far = (Ability(theta=theta, se=0.3, n_items=40) for theta in (0.034, 0.033))
    zero = Ability(theta=0.0, se=0.3, n_items=40)
    # At most 996 times as many items can decide; 1,057 times as many cannot.
    assert of_abilities(close, zero, confidence=0.8).items_to_decide is not None
    assert of_abilities(far, zero, confidence=0.9).items_to_decide is None


def test_a_difference_of_scores_counts_the_items_of_the_longer_test() -> None:
    one, other = score(0.62, 0.57, 0.68), score(0.6, 0.56, 0.65, n_items=80)
    found = of_scores(one, other, confidence=0.9)
    z = norm.ppf(0.95)
    se, up = math.hypot(0.05, 0.05) / norm.ppf(0.975), math.hypot(0.06, 0.04) / norm.ppf(0.975)
    assert (found.lo, found.hi) == pytest.approx((0.02 - z * se, 0.02 + z * up))
    assert found.p_value == pytest.approx(2 * norm.sf(0.02 / se))
    assert found.power == pytest.approx(norm.sf(z - 0.02 / se))
    needed = 80 * ((z + norm.ppf(0.8)) * se / 0.02) ** 2
    assert found.items_to_decide == math.ceil(needed - 80)


def score(value: float, lo: float, hi: float, n_items: int = 50) -> MeasuredScore:
    return MeasuredScore(value=value, lo=lo, hi=hi, n_items=n_items)


def test_a_difference_counts_how_far_the_intervals_reach_towards_each_other() -> None:
    # The first score may be far higher than stated, which is no evidence for no difference.
    found = of_scores(score(0.7, 0.67, 0.95), score(0.6, 0.35, 0.64))
    assert found.se == pytest.approx(0.05 / 1.959964)
    assert found.delta == pytest.approx(0.1)
    assert found.verdict == "above"
    assert found.lo == pytest.approx(0.05)
    assert found.hi == pytest.approx(0.1 + (0.25**2 + 0.25**2) ** 0.5)
    turned = of_scores(score(0.6, 0.35, 0.64), score(0.7, 0.67, 0.95))
    assert (turned.delta, turned.p_value) == (-found.delta, found.p_value)
    assert turned.verdict == "below"


@pytest.mark.parametrize(("other", "verdict"), [(0.61, "below"), (0.6, "undecided")])
def test_known_scores_differ_or_are_equal(other: float, verdict: str) -> None:
    found = of_scores(score(0.6, 0.6, 0.6), score(other, other, other))
    assert found.verdict == verdict
    assert found.p_value == (0.0 if verdict == "below" else 1.0)


def test_shared_errors_of_two_scores_cancel_in_their_difference() -> None:
    one, other = score(0.62, 0.52, 0.72), score(0.6, 0.5, 0.7)
    alone, together = of_scores(one, other), of_scores(one, other, correlation=0.75)
    assert together.delta == alone.delta
    # Variance of the difference: 1 + 1 - 2 * 0.75, variances less twice the covariance.
    assert together.se == pytest.approx(not_none(alone.se) * 0.5)


def test_shared_error_is_the_correlation_of_residuals() -> None:
    first = np.tile([0.4, -0.6, 0.3, -0.2], 7)
    assert shared_error(first, first, 28, 28) == pytest.approx(
        0.5 * np.tanh(np.arctanh(0.99) - 1 / 5), abs=1e-12
    )
    # The residuals correlate by 21 / sqrt(14 * 126) = 1/2, whatever their size.
    alike, larger = np.tile([1.0, 1.0, 0.0, 0.0], 7), np.tile([3.0, 0.0, 3.0, 0.0], 7)
    assert shared_error(alike, larger, 28, 28) == pytest.approx(
        0.5 * np.tanh(np.arctanh(0.5) - 1 / 5)
    )
    half = shared_error(first, first, 56, 56)
    assert half == pytest.approx(shared_error(first, first, 28, 28) / 2)
    assert shared_error(first, np.tile([1.0, 1.0, 0.0, -1.0], 7), 28, 28) == 0.0
    assert shared_error(first, -first, 28, 28) == 0.0
    few = first[:9]
    assert shared_error(few, few, 9, 9) == shared_error(0 * first, first, 28, 28) == 0.0


def test_abilities_of_a_release_are_told_apart_by_half_as_much_error_again() -> None:
    one, other = (Ability(theta=theta, se=0.3, n_items=40) for theta in (1.0, 0.0))
    stated, wider = of_abilities(one, other), of_abilities(one, other, factor=OF_RELEASES)
    assert stated.verdict == "above"
    assert wider.se == pytest.approx(1.5 * (0.3**2 + 0.3**2) ** 0.5)
    assert wider.verdict == "undecided"


@pytest.mark.parametrize("confidence", [0.95, 0.975, 0.99, 0.999])
def test_a_comparison_and_a_gate_agree_beyond_95_percent(confidence: float) -> None:
    first = MeasuredScore(value=0.7, lo=0.6, hi=0.95, n_items=20, degrees=5.0)
    other = score(0.6, 0.52, 0.7)
    at_95, found = (of_scores(first, other, confidence=level) for level in (0.95, confidence))
    told = gate(at_95.delta, at_95.lo, at_95.hi, threshold=0.0, confidence=confidence, degrees=5.0)
    assert (found.lo, found.hi) == pytest.approx(told.interval)
    assert (found.test, of_scores(other, other).test) == ("t", "z")
    assert (found.verdict == "undecided") == (told.outcome == "inconclusive")


@given(
    value=st.floats(-0.5, 0.5), sides=st.tuples(*[st.floats(0.01, 0.5)] * 4),
    confidence=st.floats(0.6, 0.999), degrees=st.sampled_from((None, 5.0)),
)  # fmt: skip
def test_a_difference_of_scores_is_decided_when_its_interval_excludes_zero(
    value: float, sides: tuple[float, ...], confidence: float, degrees: float | None
) -> None:
    assume(abs(value) > 1e-6)
    first = MeasuredScore(
        value=value, lo=value - sides[0], hi=value + sides[1], n_items=9, degrees=degrees
    )
    found = of_scores(first, score(0.0, -sides[2], sides[3]), confidence=confidence)
    assert found.lo is not None
    assert found.hi is not None
    assume(min(abs(found.lo), abs(found.hi)) > 1e-9)
    assert (found.verdict == "undecided") == (found.lo < 0 < found.hi)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_scores_are_apart_on_a_leaderboard_where_comparisons_decide(confidence: float) -> None:
    rng = np.random.default_rng(3)
    sides = (0.3 * rng.random((40, 2)) + 0.01).tolist()
    scores = [
        MeasuredScore(value=v, lo=v - d, hi=v + u, n_items=9, degrees=5.0 if v > 0.5 else None)
        for v, (d, u) in zip(rng.random(40).tolist(), sides, strict=True)
    ]
    scores += [score(0.4, 0.4, 0.4), score(0.6, 0.6, 0.6), score(0.6, 0.6, 0.6)]
    is_above = scores_above(scores, confidence=confidence)
    for row, column in np.ndindex(is_above.shape):
        verdict = of_scores(scores[row], scores[column], confidence=confidence).verdict
        assert is_above[row, column] == (verdict == "above")


def test_groups_of_a_leaderboard_separate_decided_pairs_only() -> None:
    # Five right answers of five, and three models whose scores are known.
    wide, known = score(0.825, 0.388, 0.975), (0.8, 0.527, 0.3)
    scores = [wide, *(score(value, value, value) for value in known)]
    found = weak_order([one.value for one in scores], scores_above(scores))
    assert found.order == (0, 1, 2, 3)
    assert found.groups == ((0, 1, 2), (3,))
    assert found.rank_ranges == ((1, 3), (1, 2), (2, 3), (4, 4))
