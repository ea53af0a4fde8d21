"""How the end of a session is told."""

from collections.abc import Mapping
from typing import Any

from app.engine import StopReason
from app.errors import SextantError
from app.records.sessions import Advance, Ending, SessionEvent, SessionRecord


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
            "accuracy": figures["accuracy"],
        },
    )
