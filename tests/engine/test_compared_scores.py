import pytest

from app.engine.inference.comparison import MeasuredScore, of_scores


def score(value: float, lo: float, hi: float, n_items: int = 50) -> MeasuredScore:
    return MeasuredScore(value=value, lo=lo, hi=hi, n_items=n_items)


def test_a_difference_counts_how_far_the_intervals_reach_towards_each_other() -> None:
    # The first may be far better than it is told: that speaks against no difference.
    found = of_scores(score(0.7, 0.67, 0.95), score(0.6, 0.35, 0.64))
    assert found.se == pytest.approx(0.05 / 1.959964)
    assert found.delta == pytest.approx(0.1)
    assert found.verdict == "above"
    assert found.lo == pytest.approx(0.05)
    assert found.hi == pytest.approx(0.1 + (0.25**2 + 0.25**2) ** 0.5)
    turned = of_scores(score(0.6, 0.35, 0.64), score(0.7, 0.67, 0.95))
    assert (turned.delta, turned.p_value) == (-found.delta, found.p_value)
    assert turned.verdict == "below"


def test_close_scores_take_more_items() -> None:
    found = of_scores(score(0.62, 0.57, 0.67), score(0.6, 0.55, 0.65))
    assert found.verdict == "undecided"
    assert found.items_to_decide is not None
    assert found.items_to_decide > 500


@pytest.mark.parametrize(("other", "verdict"), [(0.61, "below"), (0.6, "undecided")])
def test_scores_that_are_known_differ_or_do_not(other: float, verdict: str) -> None:
    found = of_scores(score(0.6, 0.6, 0.6), score(other, other, other))
    assert found.verdict == verdict
    assert found.p_value == (0.0 if verdict == "below" else 1.0)
