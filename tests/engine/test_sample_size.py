import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import hypergeom

from app.engine.prediction.sample_size import (
    equivalent_random_items,
    items_for,
    margin_after,
    sample_interval,
)


def margin_of(p: float, n: float, n_items: int) -> float:
    return 1.959964 * math.sqrt(p * (1 - p) / n * (n_items - n) / (n_items - 1))


@pytest.mark.parametrize(
    ("p", "n", "n_items"), [(0.5, 50, 193), (0.8, 490, 5600), (0.1, 7, 10), (0.0, 60, 280)]
)
def test_a_sample_size_gives_back_its_own_interval(p: float, n: int, n_items: int) -> None:
    lo, hi = sample_interval(p, n, n_items)
    assert equivalent_random_items(p, (hi - lo) / 2, n_items) == n


@pytest.mark.parametrize("sd", [0.05, 0.2])
def test_scores_in_between_take_as_many_items_as_their_own_spread_demands(sd: float) -> None:
    """The half width of a random sample's mean is 1.96 sd / sqrt(n) in a large bank."""
    scores = np.clip(np.random.default_rng(1).normal(0.55, sd, 4000), 0.0, 1.0)
    found = equivalent_random_items(0.55, 1.959964 * sd / math.sqrt(400), 10**9, scores)
    assert found == pytest.approx(400, abs=15)
    whole = np.array([0.0, 1.0, 1.0])
    assert equivalent_random_items(0.6, 0.1, 193, whole) == equivalent_random_items(0.6, 0.1, 193)


def test_the_size_is_bounded_by_the_bank_and_by_one() -> None:
    assert equivalent_random_items(0.4, 0.0, 193) == 193
    assert equivalent_random_items(0.4, 0.9, 193) == 1


def _excess(n: float, n_items: int, margin: float) -> float:
    return margin_of(0.6, n, n_items) - margin


def test_a_narrower_interval_takes_more_items_and_never_more_than_all() -> None:
    at = margin_of(0.6, 50, 193)
    assert items_for(at, reached=at, n_asked=50, n_items=193) == 50
    for n_asked, n_items in ((50, 193), *((3, n) for n in range(6, 60, 3))):
        reached = margin_of(0.6, n_asked, n_items)
        half = items_for(reached / 2, reached=reached, n_asked=n_asked, n_items=n_items)
        exact = brentq(_excess, 1, n_items, args=(n_items, reached / 2))
        then = margin_after(half, reached=reached, n_asked=n_asked, n_items=n_items)
        assert then == pytest.approx(margin_of(0.6, half, n_items), abs=1e-12)
        assert half == math.ceil(exact - 1e-6)
    assert items_for(1e-6, reached=at, n_asked=50, n_items=193) == 193
    assert items_for(2.0, reached=at, n_asked=50, n_items=193) == 1
    assert items_for(0.03, reached=0.0, n_asked=193, n_items=193) == 193
    assert margin_after(193, reached=0.0, n_asked=193, n_items=193) == 0.0


@pytest.mark.parametrize("n", [5, 20, 60, 200])
def test_a_sample_interval_holds_whatever_the_score(n: int) -> None:
    n_items = 360
    for right in range(18, n_items, 18):
        among = np.arange(n + 1)
        ends = [sample_interval(k / n, n, n_items) for k in among]
        holds = [lo <= right / n_items <= hi for lo, hi in ends]
        assert hypergeom(n_items, right, n).pmf(among)[holds].sum() > 0.91


def test_a_sample_interval_in_a_small_bank_adds_answers_for_the_part_not_asked() -> None:
    # 24 of 60 were asked and 36 of 59 others are open: variance and added answers shrink.
    left = 36 / 59
    right, wrong = 18 + 2 * left, 6 + 2 * left
    share = right / (right + wrong)
    half = 1.959964 * math.sqrt(right * wrong / (right + wrong) ** 3 * left)
    assert sample_interval(0.75, 24, 60) == pytest.approx((share - half, share + half))
    assert sample_interval(1.0, 2, 60)[1] == sample_interval(1.0, 1, 1)[1] == 1.0
    assert sample_interval(0.0, 2, 60)[0] == 0.0
