import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from app.engine.estimation.intervals import boundary, ever_this_far
from app.engine.prediction.ability import Stated
from app.engine.ranking.ranks import Look, Ranks
from app.engine.ranking.ranks import ranks_of as ranks_of_abilities
from app.errors import InvalidInputError

measures = st.lists(
    st.tuples(st.floats(-4, 4), st.floats(0.01, 3) | st.just(math.inf)), min_size=1, max_size=7
)


def ranks_of(thetas: Sequence[float], ses: Sequence[float], **how: Any) -> Ranks:
    """Return the ranks of examinees with these standard errors."""
    stated = [Stated(theta=t, sd=se) for t, se in zip(thetas, ses, strict=True)]
    return ranks_of_abilities(stated, **how)


def test_examinees_far_apart_are_ranked_and_close_ones_tie() -> None:
    ranks = ranks_of([0.4, 2.2, 0.5], [0.2, 0.2, 0.2])
    assert ranks.order == (1, 2, 0)
    assert ranks.groups == ((1,), (2, 0))
    assert ranks.ties == ((2, 0),)
    assert ranks.rank_ranges == ((2, 3), (1, 1), (2, 3))
    assert [pair.decided for pair in ranks.pairs] == [True, True, False]


def test_one_look_decides_a_pair_at_the_confidence() -> None:
    for apart in (1.64, 1.65):
        pair = ranks_of([apart, 0.0], [1.0, 0.0], confidence=0.95).pairs[0]
        assert pair.decided == (pair.p_above >= 0.95) == (apart > 1.645)
    p_above = ranks_of([1.65, 0.0], [1.0, 0.0]).pairs[0].p_above
    assert p_above == pytest.approx(0.95053, abs=1e-5)  # Phi(1.65)


def test_an_examinee_without_information_is_neither_above_nor_below_others() -> None:
    ranks = ranks_of([3.0, 0.0], [0.1, math.inf])
    assert ranks.ties == ((0, 1),)
    assert ranks.pairs[0].p_above == 0.5


def test_identical_examinees_tie_even_with_zero_error() -> None:
    assert ranks_of([1.0, 1.0], [0.0, 0.0]).ties == ((0, 1),)
    assert ranks_of([1.0, 0.9], [0.0, 0.0]).groups == ((0,), (1,))


@given(measures, st.booleans())
def test_ranks_lie_within_their_ranges_and_groups_cut_the_order(
    measured: list[tuple[float, float]], holm: bool
) -> None:
    thetas, ses = zip(*measured, strict=True)
    ranks = ranks_of(thetas, ses, holm=holm)
    assert sorted(ranks.order) == list(range(len(thetas)))
    assert tuple(member for group in ranks.groups for member in group) == ranks.order
    for rank, position in enumerate(ranks.order, start=1):
        lo, hi = ranks.rank_ranges[position]
        assert 1 <= lo <= rank <= hi <= len(thetas)
    assert len(ranks.neighbours) == len(thetas) - 1


@given(measures)
def test_holm_and_a_share_of_the_error_never_decide_more(
    measured: list[tuple[float, float]],
) -> None:
    thetas, ses = zip(*measured, strict=True)
    shared = [Look([Stated(theta=t, sd=se) for t, se in measured], 0.2)]

    def decided(**how: Any) -> set[tuple[int, int]]:
        pairs = ranks_of(thetas, ses, **how).pairs
        return {(pair.above, pair.below) for pair in pairs if pair.decided}

    assert decided(holm=True) <= decided()
    assert decided(looks=shared) <= decided()


def test_a_pair_has_the_p_value_of_its_best_look() -> None:
    def known(theta: float) -> Stated:
        return Stated(theta=theta, sd=math.sqrt(0.5))

    # Differences of 2 and 3 standard errors; no pair has reached the third look.
    looks = [
        Look([known(2.0), known(0.0)], 0.2),
        Look([known(3.0), known(0.0)], 0.5),
        Look([known(9.0), None], 0.3),
    ]
    (pair,) = ranks_of([1.0, 0.0], [0.5, 0.5], looks=looks).pairs
    assert pair.z == pytest.approx(3.0)
    assert pair.p_value == pytest.approx(0.0026998 / 0.5, rel=1e-4)  # 2 (1 - Phi(3))
    assert pair.decided
    (turned,) = ranks_of([0.0, 1.0], [0.5, 0.5], looks=looks).pairs
    assert (turned.above, turned.z, turned.p_value, turned.decided) == (1, 0.0, 1.0, False)


@pytest.mark.parametrize(("looks", "alpha"), [(1, 0.05), (5, 0.05), (10, 0.01), (10, 0.05 / 15)])
def test_equal_examinees_under_repeated_looks_keep_the_error_rate(looks: int, alpha: float) -> None:
    rng = np.random.default_rng(1)
    first, walks = 10, 40_000
    total = rng.normal(size=(walks, first)).sum(axis=1)
    z = boundary(alpha, looks)
    ever = np.abs(total) >= z * math.sqrt(first)
    for n in range(first + 1, first * looks + 1):
        total += rng.normal(size=walks)
        ever |= np.abs(total) >= z * math.sqrt(n)
    rate, error = ever.mean(), 3 * math.sqrt(alpha / walks)
    assert 0.7 * alpha - error < rate < alpha + error


@given(st.floats(0, 8), st.floats(0, 8), st.floats(1, 50))
def test_larger_differences_have_smaller_p_values(z: float, other: float, looks: float) -> None:
    near, far = sorted((z, other))
    assert ever_this_far(far, looks) <= ever_this_far(near, looks) <= 1.0
    assert ever_this_far(near) == pytest.approx(math.erfc(near / math.sqrt(2)))


def test_a_standing_of_nothing_is_refused() -> None:
    for thetas, ses in (([], []), ([math.nan], [1.0]), ([1.0], [-1.0])):
        with pytest.raises(InvalidInputError, match="A standing needs"):
            ranks_of(thetas, ses)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_holm_matches_adjusted_p_values_of_all_pairs(confidence: float) -> None:
    thetas, ses = [0.0, 0.6, 1.3, 2.4], [0.3, 0.35, 0.3, 0.4]
    pairs = [(j, i) for i in range(4) for j in range(i + 1, 4)]
    apart = {(j, i): (thetas[j] - thetas[i]) / math.hypot(ses[j], ses[i]) for j, i in pairs}
    p_values = {pair: 2 * norm.sf(z) for pair, z in apart.items()}
    ordered = sorted(pairs, key=lambda pair: p_values[pair])
    adjusted = np.maximum.accumulate(
        [(len(pairs) - k) * p_values[pair] for k, pair in enumerate(ordered)]
    )
    above = {pair for pair, p in zip(ordered, adjusted, strict=True) if p <= 1 - confidence}
    assert 0 < len(above) < len(pairs)
    for _ in range(2):  # above a member that is above a third
        above |= {(i, k) for i, j in above for j_, k in above if j == j_}
    ranks = ranks_of(thetas, ses, confidence=confidence, holm=True)
    assert {(pair.above, pair.below) for pair in ranks.pairs if pair.decided} == above
    for pair in ranks.pairs:
        key = pair.above, pair.below
        assert (pair.z, pair.p_value) == pytest.approx((apart[key], p_values[key]))
        assert pair.p_above == pytest.approx(norm.cdf(apart[key]))
    for i, (best, worst) in enumerate(ranks.rank_ranges):
        assert best == 1 + sum(below == i for _, below in above)
        assert worst == 4 - sum(one == i for one, _ in above)


@pytest.mark.parametrize("looks", [1.5, 10.0])
def test_boundary_crossings_follow_siegmund(looks: float) -> None:
    def crossing(z: float) -> float:
        return ever_this_far(z, looks) - 2 * float(norm.sf(z))

    # Miller & Siegmund (1982), Biometrics 38: phi(b) (b - 1/b) for each unit of log information.
    for z in (1.6, 2.3, 3.5):
        expected = norm.pdf(z) * (z - 1 / z) * math.log(looks)
        assert crossing(z) == pytest.approx(expected, rel=1e-9)
    # At smaller distances the rate stays at its maximum.
    rates = [norm.pdf(z) * (z - 1 / z) for z in np.linspace(1.2, 2.0, 4001)]
    assert ever_this_far(1.4, looks) == pytest.approx(
        min(2 * norm.sf(1.4) + max(rates) * math.log(looks), 1.0), abs=1e-7
    )
