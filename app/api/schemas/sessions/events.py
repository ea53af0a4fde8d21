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
from app.api.schemas.common import FieldError, Listed, Output, ShownAs
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


class EventRead(Output):
    """One thing that happened; `seq` is the id of the server-sent event."""

    seq: int
    type: str
    data: JsonObject
    created_at: datetime | None


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

    estimate: EstimateFigures
    score: ScoreFigures | None
    progress: ProgressFigures
    usage: UsageFigures


class SessionWait(Output):
    """Nothing happens until then; `step` is the answer that is waited for."""

    step: int | None
    until: datetime
    reason: str
    attempt: int
    error_code: str | None


class SessionChange(Output):
    """A session began, paused, went on or ended; how it ended is told of one that did."""

    status: str | None = None
    stop_reason: StopReason | None = None
    stop_detail: str | None = None
    precision_reached: bool | None = None
    estimate: EstimateFigures | None = None
    score: ScoreFigures | None = None


class RankingChange(Output):
    """A ranking began, was joined, waits, took a step or ended, and how it stands."""

    status: str | None = None
    endpoint_id: str | None = None
    until: datetime | None = Field(default=None, description="No step before; see `reason`.")
    reason: str | None = None
    error_code: str | None = None
    order: list[RankedFigures] | None = None
    ties: list[list[str]] | None = None
    decided: bool | None = None
    progress: StepsFigures | None = None
    usage: CallsFigures | None = None
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


def _event(data: type[Output], kind: str, *what: str) -> Any:
    """The shape of the events `kind.what`, which tell `data`."""
    types: Any = Literal.__getitem__(tuple(f"{kind}.{each}" for each in what))
    if len(what) > 1:
        name = f"{data.__name__}Type"
        types = TypeAliasType(name, types)  # type: ignore[misc]  # not for mypy: it names a schema
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
    """Events after a sequence number: what the event stream sends, for those who poll."""

    last_seq: int = Field(description="Ask next with `?after=<last_seq>`.")
    ended: bool = Field(description="No event will follow.")
