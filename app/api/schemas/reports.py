"""Reports of bank versions and of sessions as JSON."""

from typing import Annotated, Literal, Self

from app.engine.inference.join import JoinCheck
from app.items import JsonObject
from app.records.calibrations import SimulatedTests
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
