"""Abilities of two examinees: intervals, differences and their decisions."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.engine.design.design import Design
from app.engine.inference.comparison import Verdict, abilities_above, of_abilities
from app.engine.prediction.ability import Ability, Gap
from app.engine.prediction.correction import (
    ExtrapolationAdjustment,
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.prediction.learned_curves import UNPLACED
from app.engine.ranking.ranking import Ranking, RankingState
from app.engine.ranking.rules import RankingRules
from app.engine.state import Estimate, Response
from tests.engine.random_banks import clean_bank

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
    half = 1.959964 * one.se
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
    assert found.lo is not None
    assert found.hi is not None
    assert found.lo <= found.delta <= found.hi
    assume(abs(found.p_value - (1 - confidence)) > 1e-9)
    decided = found.verdict is not Verdict.UNDECIDED
    assert decided == (found.lo > 0 or found.hi < 0) == (found.p_value < 1 - confidence)
    if decided:
        assert (found.verdict is Verdict.ABOVE) == (first.theta > second.theta) == (found.lo > 0)
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
def test_intervals_cover_under_a_bias_of_unknown_slope(
    pair: tuple[float, float],
) -> None:
    rng = np.random.default_rng(5)
    first, second = (ability(theta) for theta in pair)
    found = of_abilities(first, second)
    lo, hi = found.lo, found.hi
    assert lo is not None
    assert hi is not None
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


BANK = clean_bank(11, 150)


def ranked(stretch: IntervalFactor) -> tuple[Ranking, RankingState]:
    """Return the standing of three examinees: two with nearly all answers right, one with half."""
    known = IntervalCorrection(theta=stretch, n_examinees=40)
    test = Design.from_dict({"preset": "ability"}).build(BANK, correction=known)
    easy = BANK.b.argsort()[:40]
    rows = [np.ones(40), np.arange(40) % 3 > 0]
    states = [
        test.replay(Response(item, float(score)) for item, score in zip(easy, row, strict=True))
        for row in rows
    ]
    rules = RankingRules(min_items=40, max_items=40)
    return Ranking(tests=(test,) * 2, rules=rules), RankingState(tuple(states))


def test_a_ranking_ties_examinees_apart_by_no_more_than_their_bias() -> None:
    plain, state = ranked(replace(STRETCH, beyond=None))
    (pair,) = plain.ranks(state).pairs
    assert (pair.above, pair.decided) == (0, True)
    thetas = [member.belief.theta for member in state.members]
    spread = (thetas[0] - thetas[1]) / 4.0
    beyond = replace(BIASED, centre=thetas[1], spread=spread, bias_above=0.9, bias_se_above=0.05)
    moved, same = ranked(replace(STRETCH, beyond=beyond))
    (pair,) = moved.ranks(same).pairs
    assert pair.above == 0  # ranked by the theta that is shown
    assert not pair.decided
    assert pair.p_above < 0.99
    # A bias that raises the stronger one further is no evidence for a larger difference.
    stronger, same = ranked(replace(STRETCH, beyond=replace(beyond, bias_above=-0.9)))
    (pair,) = stronger.ranks(same).pairs
    (level,) = ranked(replace(STRETCH, beyond=replace(beyond, bias_above=0.0)))[0].ranks(same).pairs
    assert pair.z <= level.z
    assert pair.p_above >= level.p_above


def test_only_unplaced_examinees_need_larger_differences() -> None:
    stretch = replace(STRETCH, beyond=replace(BIASED, max_bias=2.0))
    placed = [Ability(theta=at, se=0.3, n_items=30, stretch=stretch) for at in (0.7, -0.7)]
    assert [one.stated().own for one in placed] == [ability(0.7).stated().own] * 2
    open_ = [replace(one, place=UNPLACED) for one in placed]
    verdicts = [of_abilities(*two).verdict for two in (placed, open_, (placed[0], open_[1]))]
    assert verdicts == [Verdict.ABOVE, Verdict.UNDECIDED, Verdict.UNDECIDED]
    nothing_learned = ability(0.7)
    assert replace(nothing_learned, place=UNPLACED).stated() == nothing_learned.stated()


def test_the_error_of_unplaced_examinees_does_not_shrink_with_answers() -> None:
    max_bias = replace(BIASED, max_bias=2.0)
    placed = Ability(theta=0.7, se=0.3, n_items=30, stretch=replace(STRETCH, beyond=max_bias))
    open_ = replace(placed, place=UNPLACED)
    far = 2.0 * max_bias.spread / 1.959964
    for times in (1.0, 100.0):
        expected = np.hypot(placed.stated(times).own, far)
        assert open_.stated(times).own == pytest.approx(expected)


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
