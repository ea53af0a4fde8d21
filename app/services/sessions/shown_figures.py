"""When a test's figures are told at all: from a stated number of marked answers on.

An estimate exists after any answer, and before the first: it is the prior then. Nobody asks for
that. Intervals that hold are learned from tests that are looked at after `MIN_MARKED` answers at
the earliest (`app.engine.prediction.correction`): after fewer, nobody has checked how often they
hold. Theta, its error and interval, the predicted score and the profile are null before, and the
reason is given. What was answered stays in the session, item by item.

Theta has one more condition. From fewer than 20 reference models nobody can learn how often its
intervals hold, and they hold far too seldom: theta is withheld, and the score stands.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app.engine.prediction.correction import KNOTS

#: Marked answers from which on a result is told.
MIN_MARKED = KNOTS[0]
#: Parts of a session's figures that are a result.
_RESULTS = ("score", "profile")


def no_result(marked: int) -> str | None:
    """Why there is no result after so many marked answers; None where there is one."""
    if marked >= MIN_MARKED:
        return None
    return f"Needs at least {MIN_MARKED} scored answers, has {marked}."


def right_in(scores: Sequence[float]) -> dict[str, float | int | None]:
    """How many answers are right, where all are right or wrong, and their mean score.

    Both are null without a scored answer, the number also where one has a score in between.
    """
    if not scores:
        return {"right": None, "mean": None}
    whole = all(score in (0.0, 1.0) for score in scores)
    return {"right": int(sum(scores)) if whole else None, "mean": sum(scores) / len(scores)}


def shown(figures: Mapping[str, Any], withheld: str | None = None) -> dict[str, Any]:
    """A session's figures as people may read them: without a result that has nothing under it.

    Args:
        figures: All of them.
        withheld: Why theta is not told; see `LoadedVersion.theta_withheld`.
    """
    estimate = figures["estimate"]
    reason = no_result(figures["progress"]["scored"])
    if reason is None and withheld is None:
        return {**figures, "estimate": {**estimate, "reason": None}}
    nothing: dict[str, Any] = {
        "theta": None,
        "se": None,
        "interval": None,
        "interval_raw": None,
        "at_bound": False,
        "reason": reason or withheld,
    }
    if reason is None:
        return {**figures, "estimate": {**estimate, **nothing}}
    nothing["extrapolation"] = None
    return {
        **figures,
        "estimate": {**estimate, **nothing},
        **{part: None for part in _RESULTS if part in figures},
    }
