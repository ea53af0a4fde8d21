"""What happens in sessions, rankings and calibrations, as JSON.

Events are told as they were stored; their shapes are here to be read about.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field
from typing_extensions import TypeAliasType, override

from app.api.schemas.calibrations import CalibrationProgressRead
from app.api.schemas.common import FieldError, Listed, Output, ShownAs
from app.api.schemas.rankings import RankedRead, RankingProgress
from app.api.schemas.session_figures import (
    AccuracyRead,
    CallsRead,
    EstimateRead,
    ProgressRead,
    UsageRead,
)
from app.engine import StopReason
from app.items import JsonObject, Outcome

K = TypeVar("K")
D = TypeVar("D")


class EventOf(Output, Generic[K, D]):
    """One thing that happened; `seq` is the id of the server-sent event."""

    seq: int
    type: K
    data: D
    created_at: datetime | None

    @classmethod
    @override
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`WaitEvent`, of what is told."""
        return f"{params[1].__name__}Event"


class ItemAsked(Output):
    """An item was chosen, and is asked."""

    step: int
    item_id: str
    pretest: bool
    information: float | None


class AnswerReceived(Output):
    """What became of an item."""

    step: int
    item_id: str
    pretest: bool
    outcome: Outcome
    score: float | None
    extracted: str | None
    reason: str | None
    latency_ms: float | None


class EstimateUpdated(Output):
    """Figures of a session after answers."""

    estimate: EstimateRead
    accuracy: AccuracyRead | None
    progress: ProgressRead
    usage: UsageRead


class Wait(Output):
    """Nothing happens until then; `step` is the answer waited for, of a session."""

    until: datetime
    reason: str
    error_code: str | None
    step: int | None = None
    attempt: int | None = None


class SessionChange(Output):
    """A session began, paused, went on or ended; how it ended is told of one that did."""

    status: str | None = None
    stop_reason: StopReason | None = None
    stop_detail: str | None = None
    precision_reached: bool | None = None
    estimate: EstimateRead | None = None
    accuracy: AccuracyRead | None = None


class RankingChange(Output):
    """A ranking began, was joined by an endpoint, took a step or ended, and how it stands."""

    status: str | None = None
    endpoint_id: str | None = None
    order: list[RankedRead] | None = None
    ties: list[list[str]] | None = None
    decided: bool | None = None
    progress: RankingProgress | None = None
    usage: CallsRead | None = None
    stop_reason: StopReason | None = None
    stop_detail: str | None = None
    code: str | None = Field(default=None, description="Of what failed, as is `detail`.")
    detail: str | None = None


class CalibrationChange(CalibrationProgressRead):
    """A calibration began, got on or ended; `part` is the part that began, of several."""

    attempt: int | None = None
    part: int | None = None
    converged: bool | None = None
    code: str | None = Field(default=None, description="Of what failed, as the next two.")
    detail: str | None = None
    errors: list[FieldError] | None = None


SessionEventType = TypeAliasType(
    "SessionEventType",
    Literal[
        "session.created",
        "session.paused",
        "session.resumed",
        "session.completed",
        "session.failed",
        "session.cancelled",
    ],
)
RankingEventType = TypeAliasType(
    "RankingEventType",
    Literal[
        "ranking.created",
        "ranking.joined",
        "ranking.updated",
        "ranking.completed",
        "ranking.failed",
        "ranking.cancelled",
    ],
)
CalibrationEventType = TypeAliasType(
    "CalibrationEventType",
    Literal[
        "calibration.queued",
        "calibration.started",
        "calibration.part_started",
        "calibration.progress",
        "calibration.completed",
        "calibration.failed",
        "calibration.cancelled",
    ],
)
_AnyEvent = (
    EventOf[Literal["session.item_selected"], ItemAsked]
    | EventOf[Literal["response.received"], AnswerReceived]
    | EventOf[Literal["estimate.updated"], EstimateUpdated]
    | EventOf[Literal["session.waiting", "ranking.waiting"], Wait]
    | EventOf[SessionEventType, SessionChange]
    | EventOf[RankingEventType, RankingChange]
    | EventOf[CalibrationEventType, CalibrationChange]
)
Event = TypeAliasType("Event", Annotated[_AnyEvent, Field(discriminator="type")])
EventRead = EventOf[str, JsonObject]


class EventList(Listed[Annotated[EventRead, ShownAs(Event)]]):
    """Events after a sequence number: what the event stream sends, for those who poll."""

    last_seq: int = Field(description="Ask next with `?after=<last_seq>`.")
    ended: bool = Field(description="No event will follow.")
