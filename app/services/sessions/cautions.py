"""Why to trust what a session found less, in words, wherever its figures go without its page."""

from collections.abc import Mapping
from typing import Any

from app.printable import percent
from app.records.sessions import SessionRecord
from app.reports.figures import (
    asked_caution,
    provisional_caution,
    uncounted,
    unparsed_caution,
    unscored,
)

_ENDED_EARLY = {"failed": "failed", "cancelled": "was cancelled"}


def cautions_of(session: SessionRecord, *, is_score: bool) -> str | None:
    """What is to be said beside a session's predicted score, or its theta; None if nothing is.

    Args:
        session: One that has ended.
        is_score: Whether it is beside the score.
    """
    known, summary = session.provenance, session.summary
    extrapolation: Mapping[str, Any] = summary["estimate"].get("extrapolation") or {}
    told = (
        _of_state(session.status),
        provisional_caution(known.get("uncertainty"), provisional=known["provisional"]),
        extrapolation.get("caution"),
        _of_asking(session),
        unparsed_caution(known["asking"]["unparsed_policy"], known.get("unparsed_when_calibrated")),
        _of_unmarked(summary, is_score=is_score),
        uncounted(known.get("n_uncalibrated", 0)) if is_score else None,
    )
    return " ".join(one for one in told if one is not None) or None


def _of_state(status: str) -> str | None:
    ended = _ENDED_EARLY.get(status)
    return ended and f"The test {ended}: this rests on the answers that came until then."


def _of_asking(session: SessionRecord) -> str | None:
    asked = dict(session.provenance.get("asked", {}))
    if session.withheld:
        asked.pop("scorer", None)
    return asked_caution(asked, session.provenance.get("asked_when_calibrated", {}))


def _of_unmarked(summary: Mapping[str, Any], *, is_score: bool) -> str | None:
    share = unscored(summary).share_left_out
    if not share:
        return None
    room = (
        "the lower end of the score's interval has room for them"
        if is_score
        else "ability and its interval are those of the others"
    )
    return f"{percent(share)} of the answers have no score: {room}."
