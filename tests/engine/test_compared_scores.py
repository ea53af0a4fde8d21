import numpy as np
import pytest

from app.engine.inference.comparison import (
    OF_RELEASES,
    MeasuredScore,
    of_abilities,
    of_scores,
    shared_error,
)
from app.engine.prediction.ability import Ability


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
    assert alone.se is not None
    assert together.se == pytest.approx(alone.se * 0.5)


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
