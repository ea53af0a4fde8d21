"""A test beside one of random questions, from the events of both."""

from typing import Any

from app.cli.terminal.side_by_side import SideBySide
from app.engine.prediction.sample_size import sample_interval
from app.records.fields import interval


def updated(items: int, mean: float, score: tuple[float, float, float] | None) -> dict[str, Any]:
    told = score and {"value": score[0], "interval": interval(*score[1:])}
    return {
        "estimate": {"theta": None, "se": None, "interval": None},
        "score": told,
        "progress": {"items": items, "scored": items, "mean": mean, "expected_items": None},
        "usage": {"usd": 0.0},
    }


def test_it_says_how_many_random_questions_were_as_exact() -> None:
    shown = SideBySide(n_items=360)
    shown.take("chosen", "estimate.updated", updated(4, 0.5, None))
    assert shown.verdict() is None
    shown.take("chosen", "estimate.updated", updated(20, 0.5, (0.7, 0.58, 0.82)))
    lines = [
        shown.take("random", "estimate.updated", updated(n, 0.7, (0.7, 0.69, 0.71)))
        for n in range(1, 61)
    ]
    lo, hi = sample_interval(0.7, 20, 360)
    assert [line for line in lines if line][1] == (
        f"20 random questions: score 70.0 %, {100 * lo:.1f} % to {100 * hi:.1f} %"
    )
    needed = next(n for n in range(1, 61) if _width(n) <= 0.82 - 0.58)
    assert shown.verdict() == (
        "The same model beside it, by the mean of random questions: it took "
        f"{needed} to be as exact as with these 20."
    )


def test_random_questions_that_were_never_as_exact_say_how_far_off_they_are() -> None:
    shown = SideBySide(n_items=360)
    shown.take("chosen", "estimate.updated", updated(20, 0.5, (0.7, 0.65, 0.75)))
    shown.take("random", "estimate.updated", updated(60, 0.7, None))
    times = f"{_width(60) / 0.1:.1f}"
    assert f"after 60 the interval is {times} times as wide as with 20." in str(shown.verdict())


def _width(n: int) -> float:
    lo, hi = sample_interval(0.7, n, 360)
    return hi - lo
