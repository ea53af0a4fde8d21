"""Abilities of two examinees: intervals, differences and their decisions."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.engine.inference.comparison import Verdict, abilities_above, of_abilities
from app.engine.prediction.ability import Ability, Gap
from app.engine.prediction.correction import (
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.state import Z_95, Estimate
from tests.engine.corrections import level_factor
from tests.values import not_none

STRETCH = level_factor(1.2)

thetas = st.floats(-6, 6)
ses = st.floats(0.05, 1.0)
stretches = st.sampled_from([None, STRETCH])


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


def test_errors_of_a_difference_add_in_squares_and_grow_beyond_the_references() -> None:
    strong, usual = ability(3.5), ability(1.0)
    gap, back = (one.stated().minus(other.stated()) for one, other in permutations((strong, usual)))
    assert (gap.estimate, gap.sd) == (-back.estimate, back.sd)
    assert gap.estimate == 2.5
    assert gap.sd == pytest.approx(1.2 * 0.3 * math.hypot(math.exp(0.2 * 2.5), 1.0))
    found = of_abilities(strong, usual)
    assert found.p_value == pytest.approx(math.erfc(2.5 / gap.sd / math.sqrt(2)))


@pytest.mark.parametrize(
    ("estimate", "sd", "z"),
    [(1.0, 0.5, 2.0), (0.0, 0.0, 0.0), (-1.0, 0.0, -math.inf), (1.0, math.inf, 0.0)],
)
def test_a_gap_in_units_of_its_standard_error(estimate: float, sd: float, z: float) -> None:
    assert Gap(estimate=estimate, sd=sd).z == z


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
