"""Reports of bank versions and of sessions, and items under new answers, as JSON."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal, Self

from pydantic import TypeAdapter

from app.api.schemas.versions import DriftFigures
from app.calibration.pipeline.drift import drift_figures, drift_message
from app.engine.inference.join import JoinCheck
from app.items import JsonObject
from app.records.calibrations import SimulatedTests
from app.records.fields import finite
from app.records.figures import EstimateFigures
from app.reports.session import words as session_words
from app.reports.session.facts import (
    Ability,
    AskedItem,
    Caution,
    Score,
    SessionIdentity,
    SessionReport,
    TaskResult,
    TracePoint,
)
from app.reports.version.facts import (
    CalibrationFacts,
    Curves,
    FlaggedItem,
    Identity,
    ItemCurve,
    Precision,
    VersionReport,
)
from app.reports.version.page import summary
from app.services.calibrations.drift import DriftLook
from app.shapes import Output, ShownAs


class VersionReportRead(Output):
    """Report on a version; `text/html` has the same as a page."""

    object: Literal["version_report"] = "version_report"
    summary: list[str]
    """The report in a few plain sentences."""
    identity: Identity
    curves: Curves
    """Curves of the active items over theta."""
    best_range: tuple[float, float]
    """Range of theta with at least half of the maximum information."""
    precision: list[Precision]
    """Half width of the 95 % interval after tests of several lengths, at theta -2, -1, 0, 1 and
    2."""
    bin_edges: list[float]
    difficulties: list[int]
    """Number of active items by difficulty, in the bins of `bin_edges`. The outermost bins include
    everything beyond."""
    abilities: list[float] | None
    """Share of the reference models by ability, in the same bins; null if unknown."""
    examples: list[ItemCurve]
    flags: dict[str, int]
    """Number of items with each lint code."""
    n_flagged: int
    flagged: list[FlaggedItem]
    """First items with findings; `/lint` lists all."""
    calibration: CalibrationFacts | None
    """Fit and origin of the parameters; null if they were imported."""
    simulated: SimulatedTests | None
    """Simulated tests of held-out examinees; null if not computed."""
    join: JoinCheck | None
    """Check of the parameters against answers of live sessions; null if not made."""
    correction: JsonObject | None
    """Correction of intervals, as stored."""

    @classmethod
    def of(cls, report: VersionReport) -> Self:
        """The outgoing shape."""
        return cls.model_validate({**report.to_dict(), "summary": summary(report)})


class SessionReportRead(Output):
    """Report on a session; `text/html` has the same as a page."""

    object: Literal["session_report"] = "session_report"
    summary: list[str]
    """The result in a few plain sentences."""
    identity: SessionIdentity
    score: Score | None
    """Null if nothing was scored or predicted."""
    estimate: Annotated[JsonObject, ShownAs(EstimateFigures)]
    """Ability, as in the session."""
    abilities: list[Ability]
    """Empty if the bank measures one ability."""
    tasks: list[TaskResult]
    """Results by tag: at most 50, the largest first. `n_tasks` counts all."""
    n_tasks: int
    trace: list[TracePoint]
    """Ability and score after each number of answers."""
    figures: JsonObject
    """Further figures of the session: progress, usage, outcomes, pretest, person_fit and
    rescore."""
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    failure: dict[str, str] | None
    warnings: list[Caution]
    """Reasons to trust the result less."""
    items: list[AskedItem]
    """The first 300 items; `/responses` lists all."""
    n_asked: int
    join: JoinCheck | None
    """Check of the parameters against all answers of live sessions so far."""

    @classmethod
    def of(cls, report: SessionReport) -> Self:
        """The outgoing shape."""
        return cls.model_validate({**report.to_dict(), "summary": session_words.summary(report)})


#: Of an item; null where too few answered it.
_NUMBERS = ("new_b", "se", "z", "p_value", "distance", "easier")
#: Items of which JSON is made in one go, which takes some milliseconds.
_AT_ONCE = 500


class DriftItemRead(Output):
    """One item: its curve in the version, and its curve by the new answers."""

    key: str
    answers: int
    """Number of new answers."""
    old_b: float
    """Difficulty in the version."""
    new_b: float | None
    """Difficulty by the new answers, on the version's scale. With too few answers it is null, as
    are the following fields."""
    se: float | None
    """Standard error of `new_b`."""
    z: float | None
    """`p_value` as a standard normal deviate: above 0 if the item became easier, below 0 if harder.
    Beyond 3 chance is very unlikely."""
    p_value: float | None
    """Probability of at least such a deviation if the old curve still holds."""
    distance: float | None
    """Distance of the two curves, as a probability."""
    easier: float | None
    """Change of the mean probability of a right answer; above 0: easier."""
    drifted: bool
    """Whether `p_value` < 0.001 and `distance` >= 0.1."""
    possibly_leaked: bool
    """Whether the item drifted and became easier."""
    explanation: str | None


class DriftRead(Output):
    """Items of a version whose curves have changed since it was published."""

    object: Literal["drift"] = "drift"
    version_id: str
    scale: str
    response_set_id: str
    response_set_revision: int
    verdict: str
    figures: DriftFigures
    n_items: int
    """Number of active items with new answers."""
    data: list[DriftItemRead]
    """At most `limit` items, drifted ones first."""

    @classmethod
    def of(cls, look: DriftLook) -> Self:
        """The outgoing shape, without its items, which are made bit by bit."""
        return cls(
            version_id=look.version.id,
            scale=look.version.scale,
            response_set_id=look.response_set.id,
            response_set_revision=look.response_set.revision,
            verdict=look.verdict,
            figures=DriftFigures.model_validate(drift_figures(look.drift)),
            n_items=len(look.drift.keys),
            data=[],
        )


_ITEMS = TypeAdapter(list[DriftItemRead])


async def drift_json(look: DriftLook, *, limit: int) -> AsyncGenerator[bytes]:
    """A `DriftRead` as JSON in blocks: there may be as many items as a version has.

    Made in one go, that of 100,000 items would hold up whatever else this process does.
    """
    yield DriftRead.of(look).model_dump_json().removesuffix("]}").encode()  # `data` is the last
    order = look.order[:limit]

    def some(start: int) -> bytes:
        items = [_item(look, j) for j in order[start : start + _AT_ONCE]]
        return b"," * (start > 0) + _ITEMS.dump_json(items)[1:-1]

    for start in range(0, len(order), _AT_ONCE):
        yield await asyncio.to_thread(some, start)
    yield b"]}"


def _item(look: DriftLook, j: int) -> DriftItemRead:
    drift = look.drift
    key, drifted = drift.keys[j], bool(drift.drifted[j])
    return DriftItemRead(
        key=key,
        answers=int(drift.n_answers[j]),
        old_b=float(drift.old_b[j]),
        **{name: finite(getattr(drift, name)[j]) for name in _NUMBERS},
        drifted=drifted,
        possibly_leaked=drifted and bool(drift.easier[j] > 0),
        explanation=drift_message(
            key,
            old_b=float(drift.old_b[j]),
            new_b=float(drift.new_b[j]),
            z=float(drift.z[j]),
            easier=float(drift.easier[j]),
            n_answers=int(drift.n_answers[j]),
        )
        if drifted
        else None,
    )
