"""What happens in sessions, rankings and calibrations, as JSON.

Events are told as they were stored; their shapes are here to be read about.
"""

from datetime import datetime
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import Field, create_model
from typing_extensions import TypeAliasType

from app.api.schemas.calibrations import CalibrationProgressRead
from app.engine import StopReason
from app.items import JsonObject, Outcome
from app.records.figures import (
    CallsFigures,
    EstimateFigures,
    ProgressFigures,
    ScoreFigures,
    StepsFigures,
    UsageFigures,
)
from app.records.rankings import RankedFigures
from app.shapes import FieldError, Listed, Output, ShownAs


class EventRead(Output):
    """One event; `seq` is the id of the server-sent event."""

    seq: int
    type: str
    data: JsonObject
    created_at: datetime | None


class ItemAsked(Output):
    """An item was chosen and is being asked."""

    step: int
    item_id: str
    pretest: bool
    information: float | None


class AnswerReceived(Output):
    """The outcome of an item."""

    step: int
    item_id: str
    pretest: bool
    outcome: Outcome
    score: float | None
    extracted: str | None
    reason: str | None
    latency_ms: float | None


class EstimateUpdated(Output):
    """Results of a session after new answers."""

    estimate: EstimateFigures
    score: ScoreFigures | None
    progress: ProgressFigures
    usage: UsageFigures


class SessionWait(Output):
    """The session waits until `until`; `step` is the answer that it waits for."""

    step: int | None
    until: datetime
    reason: str
    attempt: int
    error_code: str | None


class SessionChange(Output):
    """A session was created, paused, resumed or ended; fields after `status` describe its end."""

    status: str | None = None
    stop_reason: StopReason | None = None
    stop_detail: str | None = None
    precision_reached: bool | None = None
    estimate: EstimateFigures | None = None
    score: ScoreFigures | None = None


class RankingChange(Output):
    """A ranking was created, joined, waited, took a step or ended; with its state."""

    status: str | None = None
    endpoint_id: str | None = None
    until: datetime | None = None
    """The ranking takes no step before; `reason` says why."""
    reason: str | None = None
    error_code: str | None = None
    order: list[RankedFigures] | None = None
    ties: list[list[str]] | None = None
    decided: bool | None = None
    progress: StepsFigures | None = None
    usage: CallsFigures | None = None
    stop_reason: StopReason | None = None
    stop_detail: str | None = None
    code: str | None = None
    """Code of the failure; `detail` describes it."""
    detail: str | None = None


class CalibrationChange(CalibrationProgressRead):
    """A calibration was queued, began, progressed or ended. `part` is the part that began."""

    attempt: int | None = None
    part: int | None = None
    converged: bool | None = None
    code: str | None = None
    """Code of the failure; `detail` and `errors` describe it."""
    detail: str | None = None
    errors: list[FieldError] | None = None


def _event(data: type[Output], kind: str, *what: str) -> Any:
    """The shape of the events `kind.what`, which tell `data`."""
    types: Any = Literal.__getitem__(tuple(f"{kind}.{each}" for each in what))
    return create_model(f"{data.__name__}Event", __base__=EventRead, type=types, data=data)


_BEGINS = ("queued", "started", "part_started", "progress")
_ENDS = ("completed", "failed", "cancelled")
_SHAPES: Any = (
    _event(ItemAsked, "session", "item_selected"),
    _event(AnswerReceived, "response", "received"),
    _event(EstimateUpdated, "estimate", "updated"),
    _event(SessionWait, "session", "waiting"),
    _event(SessionChange, "session", "created", "paused", "resumed", *_ENDS),
    _event(RankingChange, "ranking", "created", "joined", "waiting", "updated", *_ENDS),
    _event(CalibrationChange, "calibration", *_BEGINS, *_ENDS),
)
_AnyOfThem: Any = Annotated[reduce(or_, _SHAPES), Field(discriminator="type")]
Event = TypeAliasType("Event", _AnyOfThem)


class EventList(Listed[Annotated[JsonObject, ShownAs(Event)]]):
    """Events after a sequence number, as in the event stream, for clients that poll."""

    last_seq: int
    """The next page is at `?after=<last_seq>`."""
    ended: bool
    """Whether this was the last event."""
