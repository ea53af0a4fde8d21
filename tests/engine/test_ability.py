"""Abilities of two examinees: intervals, differences and their decisions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.engine.inference.comparison import Verdict, abilities_above, of_abilities
from app.engine.prediction.ability import Ability, Gap
from app.engine.prediction.correction import (
    ExtrapolationAdjustment,
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.prediction.learned_curves import UNPLACED
from app.engine.state import Z_95, Estimate
from tests.values import not_none

BIASED = ExtrapolationAdjustment(
    centre=0.0,
    spread=1.0,
    above=0.1,
    below=0.1,
    bias_above=0.4,
    bias_below=-0.2,
    bias_se_above=0.2,
    bias_se_below=0.1,
)
STRETCH = IntervalFactor(answers=(5,), factor=(1.2,), usual=(1.0,), power=0.0, beyond=BIASED)
#: The same correction from another bank version, which shares no error with `STRETCH`.
ELSEWHERE = replace(STRETCH, beyond=replace(BIASED, centre=1e-9))

thetas = st.floats(-6, 6)
ses = st.floats(0.05, 1.0)
stretches = st.sampled_from([None, STRETCH, ELSEWHERE])


def ability(theta: float, se: float = 0.3, stretch: IntervalFactor | None = STRETCH) -> Ability:
    return Ability(theta=theta, se=se, n_items=30, stretch=stretch)


abilities = st.builds(ability, thetas, ses, stretches)


@given(abilities)
def test_an_ability_has_the_interval_of_its_session(one: Ability) -> None:
    half = Z_95 * one.se
    plain = Estimate(
        theta=one.theta,
        se=one.se,
        lo=one.theta - half,
        hi=one.theta + half,
        method="wle",
        at_bound=False,
    )
    if one.stretch is not None:
        known = IntervalCorrection(theta=one.stretch, n_examinees=40)
        plain = known.of_estimate(plain, one.n_items)
    assert one.stated().interval == pytest.approx((plain.lo, plain.hi))


@given(abilities, abilities, st.floats(0.5, 0.999))
def test_verdict_interval_and_p_value_of_a_difference_agree(
    first: Ability, second: Ability, confidence: float
) -> None:
    found = of_abilities(first, second, confidence=confidence)
    lo, hi = not_none(found.lo), not_none(found.hi)
    assert lo <= found.delta <= hi
    assume(abs(found.p_value - (1 - confidence)) > 1e-9)
    decided = found.verdict is not Verdict.UNDECIDED
    assert decided == (lo > 0 or hi < 0) == (found.p_value < 1 - confidence)
    if decided:
        assert (found.verdict is Verdict.ABOVE) == (first.theta > second.theta) == (lo > 0)
    assert (found.items_to_decide == 0) == decided


@given(abilities, abilities)
def test_shared_errors_only_narrow_a_difference(first: Ability, second: Ability) -> None:
    one, other = first.stated(), second.stated()
    gap, back = one.minus(other), other.minus(one)
    assert (gap.estimate, gap.middle, gap.sd) == (-back.estimate, -back.middle, back.sd)
    assert math.hypot(one.own, other.own) <= gap.sd * (1 + 1e-12)
    assert gap.sd <= math.hypot(one.sd, other.sd) * (1 + 1e-12)
    assert abs(gap.least_z) <= abs(gap.estimate) / gap.sd * (1 + 1e-12)
    assert abs(gap.least_z) <= abs(gap.z)


def test_shared_bias_cancels_only_between_examinees_equally_far_beyond() -> None:
    far, farther, within, weak = (ability(theta).stated() for theta in (3.0, 4.0, 0.5, -3.0))
    own = math.hypot(far.own, far.own)
    assert far.minus(ability(3.0).stated()).sd == pytest.approx(own)
    assert far.minus(ability(3.0, stretch=ELSEWHERE).stated()).sd > 1.2 * own
    of_pair = far.minus(farther)
    assert of_pair.sd**2 == pytest.approx(far.own**2 + farther.own**2 + 0.2**2)
    assert of_pair.middle == pytest.approx(-1.0 + 0.4)
    assert within.bias_se == 0.0
    assert far.minus(within).sd ** 2 == pytest.approx(far.sd**2 + within.own**2)
    assert far.minus(weak).sd == pytest.approx(math.hypot(far.sd, weak.sd))


@pytest.mark.parametrize("pair", [(3.0, 3.8), (3.5, 0.3), (4.0, -3.0)])
def test_intervals_cover_under_a_bias_of_unknown_slope(pair: tuple[float, float]) -> None:
    rng = np.random.default_rng(5)
    first, second = (ability(theta) for theta in pair)
    found = of_abilities(first, second)
    lo, hi = not_none(found.lo), not_none(found.hi)
    true, draws = [], 20_000
    slopes = {True: rng.normal(0.4, 0.2, draws), False: rng.normal(-0.2, 0.1, draws)}
    for one in (first, second):
        far = max(abs(one.theta) - 1.0, 0.0)
        own = one.stated().own * rng.normal(size=draws)
        true.append(one.theta - slopes[one.theta > 0.0] * far + own)
    apart = true[0] - true[1]
    inside = (lo <= apart) & (apart <= hi)
    assert 0.94 < inside.mean() < 0.965


def test_estimates_with_upward_bias_decide_less() -> None:
    strong, usual = ability(2.5), ability(1.0)
    found = of_abilities(strong, usual)
    assert found.delta == 1.5
    own = 1.2 * 0.3 * math.hypot(math.exp(0.1 * 1.5), 1.0)
    z = (1.5 - 0.4 * 1.5) / math.hypot(own, 0.2 * 1.5)
    assert found.p_value == pytest.approx(math.erfc(z / math.sqrt(2)), rel=1e-4)
    assert found.verdict is Verdict.UNDECIDED
    level = of_abilities(*(replace(one, stretch=None) for one in (strong, usual)))
    assert level.verdict is Verdict.ABOVE


def test_only_unplaced_examinees_need_larger_differences() -> None:
    stretch = replace(STRETCH, beyond=replace(BIASED, max_bias=2.0))
    placed = [Ability(theta=at, se=0.3, n_items=30, stretch=stretch) for at in (0.7, -0.7)]
    assert [one.stated().own for one in placed] == [ability(0.7).stated().own] * 2
    open_ = [replace(one, place=UNPLACED) for one in placed]
    verdicts = [of_abilities(*two).verdict for two in (placed, open_, (placed[0], open_[1]))]
    assert verdicts == [Verdict.ABOVE, Verdict.UNDECIDED, Verdict.UNDECIDED]
    nothing_learned = ability(0.7)
    assert replace(nothing_learned, place=UNPLACED).stated() == nothing_learned.stated()


@pytest.mark.parametrize(
    ("middle", "sd", "z"),
    [(1.0, 0.5, 2.0), (0.0, 0.0, 0.0), (-1.0, 0.0, -math.inf), (1.0, math.inf, 0.0)],
)
def test_a_gap_in_units_of_its_standard_error(middle: float, sd: float, z: float) -> None:
    assert Gap(estimate=middle, middle=middle, sd=sd).z == z


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_abilities_are_apart_on_a_leaderboard_where_comparisons_decide(confidence: float) -> None:
    drawn = np.random.default_rng(3).uniform((-3.0, 0.1), (3.0, 0.6), (40, 2)).tolist()
    abilities = [
        Ability(theta=theta, se=se, n_items=20, stretch=STRETCH if n % 3 else None)
        for n, (theta, se) in enumerate(drawn)
    ]
    is_above = abilities_above([one.stated() for one in abilities], confidence=confidence)
    for row, column in np.ndindex(is_above.shape):
        verdict = of_abilities(abilities[row], abilities[column], confidence=confidence).verdict
        assert is_above[row, column] == (verdict == "above")
