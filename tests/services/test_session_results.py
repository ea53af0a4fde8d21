"""Decisions from the results of a session."""

from typing import Any

from app.engine.prediction.correction import (
    ExtrapolationAdjustment,
    IntervalCorrection,
    IntervalFactor,
)
from app.services.sessions.figures import shown
from app.services.sessions.result import Result

BEYOND = ExtrapolationAdjustment(centre=0.0, spread=1.0, above=0.0, below=0.0, max_bias=3.0)
STRETCH = IntervalFactor(answers=(1,), factor=(1.0,), usual=(1.0,), power=0.0, beyond=BEYOND)
LEARNED = IntervalCorrection(theta=STRETCH, n_examinees=40)


def result(extrapolation: Any) -> Result:
    """Return a result with a skewed posterior, whose lower tail is longer."""
    return Result(
        theta=-2.0,
        se=0.5,
        interval=(-6.5, 0.5),
        score=None,
        n_scored=15,
        extrapolation=extrapolation,
    )


def at(standing: str, sd: float) -> dict[str, Any]:
    """Return an extrapolation whose score is known with this error."""
    return {"standing": standing, "sd": sd, "position": -2.0}


def test_decisions_use_no_narrower_interval_than_reported() -> None:
    # A score may be known where the ability is open, and the other way round.
    open_, placed = result(at("unknown", 0.3)), result(at("within", 1.7))

    lo, hi = open_.to_decide(LEARNED)
    compared = open_.ability(LEARNED).stated().interval
    assert compared[0] > -6.5  # alone it would exclude values that the session holds possible
    assert lo == -6.5
    assert hi == compared[1] > 0.5
    assert placed.to_decide(LEARNED) == placed.interval
    assert open_.to_decide(None) == open_.interval


def test_a_withheld_theta_is_in_no_figure() -> None:
    estimate = {"theta": 0.5, "se": 0.2, "interval": None, "extrapolation": None}
    repeats: Any = {"n": 2, "estimate": {"theta": 0.4, "se": 0.3}}
    profile: Any = {"abilities": [{"name": "general", "value": 0.5}], "tasks": [{"tag": "law"}]}
    parts: Any = {"estimate": estimate, "repeats": repeats, "profile": profile}
    figures: Any = {**parts, "progress": {"scored": 9}}
    told: Any = shown(figures, "Theta is withheld.")
    assert told["estimate"]["theta"] is told["estimate"]["se"] is None
    assert told["repeats"] == {"n": 2, "estimate": None}
    assert told["profile"] == {**profile, "abilities": []}
    assert shown(figures, None) == {**figures, "estimate": {**estimate, "reason": None}}
