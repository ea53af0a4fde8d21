"""How the end of a session is told."""

from collections.abc import Mapping
from typing import Any

from app.engine import Stop, StopReason
from app.errors import SextantError
from app.records.sessions import Advance, Closing, Ending, SessionEvent, SessionRecord

#: Ends that are answers of their own: any other needs something to stand on.
_SPENT = (StopReason.TIME_LIMIT, StopReason.BUDGET_EXHAUSTED)


def ending_of(
    stop: Stop,
    *,
    closed: int,
    scored: int,
    last_failure: Closing | None,
    precision_reached: bool | None,
    precise_since: int | None,
    min_items: int,
) -> Ending:
    """How a test ends.

    Args:
        stop: Why.
        closed: Items that were closed, with a score or without.
        scored: Those with one.
        last_failure: The last without one.
        precision_reached: Whether the SE is at the target; None where the design sets none.
        precise_since: Answers after which it has been there ever since; None where it is not.
        min_items: Answers that the test takes at least.
    """
    is_failed = stop.reason is StopReason.TOO_MANY_FAILURES
    if not is_failed and closed > 0 and scored == 0 and stop.reason not in _SPENT:
        is_failed = True
        last = last_failure.reason if last_failure else "unknown"
        stop = Stop(
            StopReason.TOO_MANY_FAILURES,
            f"None of {closed} answers could be scored; the last: {last}",
        )
    detail, failure = stop.detail, None
    if is_failed:
        failure = {
            "code": (last_failure and last_failure.error_code) or "too_many_failures",
            "detail": (last_failure and last_failure.reason) or detail,
        }
    elif precise_since is not None and precise_since < min_items:
        detail += (
            f" The SE target was reached with answer {precise_since}; min_items {min_items} kept "
            "the test going."
        )
    return Ending(
        status="failed" if is_failed else "completed",
        stop_reason=stop.reason.value,
        stop_detail=detail,
        precision_reached=precision_reached,
        failure=failure,
    )


def failed(error: SextantError) -> Ending:
    """The end of a session by an error that is not an answer's."""
    return Ending(
        status="failed",
        stop_reason=StopReason.CUSTOM.value,
        stop_detail=error.detail,
        precision_reached=None,
        failure={"code": error.code, "detail": error.detail},
    )


def abandoned(record: SessionRecord, ending: Ending) -> Advance:
    """What storage is to write when a session ends by a fault of our own: figures as they are."""
    return Advance(
        events=[ended_event(ending, record.summary)],
        summary=record.summary,
        active_s=record.active_s,
        ending=ending,
    )


def ended_event(ending: Ending, figures: Mapping[str, Any]) -> SessionEvent:
    """The event that ends a session's list of events."""
    return SessionEvent(
        f"session.{ending.status}",
        {
            "stop_reason": ending.stop_reason,
            "stop_detail": ending.stop_detail,
            "precision_reached": ending.precision_reached,
            "estimate": figures["estimate"],
            "score": figures["score"],
        },
    )
