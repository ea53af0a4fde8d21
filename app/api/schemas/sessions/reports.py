"""Reports of bank versions and of sessions as JSON."""

from typing import Annotated, Literal, Self

from pydantic import Field

from app.api.schemas.common import Output, ShownAs
from app.engine.inference.join import JoinCheck
from app.items import JsonObject
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
    SimulatedTests,
    VersionReport,
)
from app.reports.version.words import summary


class VersionReportRead(Output):
    """What is known of a version; `text/html` is the same as a page."""

    object: Literal["version_report"] = "version_report"
    summary: list[str] = Field(description="The report in a few plain sentences.")
    identity: Identity
    curves: Curves = Field(description="The active items over theta.")
    best_range: tuple[float, float] = Field(
        description="Thetas with at least half of the greatest information."
    )
    precision: list[Precision] = Field(
        description="Half of the 95 % interval after tests of some lengths, at -2, -1, 0, 1, 2."
    )
    bin_edges: list[float]
    difficulties: list[int] = Field(description="Active items in the bins.")
    abilities: list[float] | None = Field(description="Shares of examinees in the bins.")
    examples: list[ItemCurve]
    flags: dict[str, int] = Field(description="Code to number of items.")
    n_flagged: int
    flagged: list[FlaggedItem] = Field(description="The first of them; `/lint` has all.")
    calibration: CalibrationFacts | None = Field(
        description="Fit and origin; null where the parameters were imported."
    )
    simulated: SimulatedTests | None = Field(
        description="Tests of held-out examinees; null where not computed."
    )
    join: JoinCheck | None = Field(
        description="Whether the parameters belong to the questions, by answers of live sessions."
    )
    correction: JsonObject | None = Field(
        description="What makes the intervals hold, as stored with the version."
    )

    @classmethod
    def of(cls, report: VersionReport) -> Self:
        """The outgoing shape."""
        return cls.model_validate({**report.to_dict(), "summary": summary(report)})


class SessionReportRead(Output):
    """What a session found out; `text/html` is the same as a page."""

    object: Literal["session_report"] = "session_report"
    summary: list[str] = Field(description="The result in a few plain sentences.")
    identity: SessionIdentity
    score: Score | None = Field(description="Null where nothing was scored or predicted.")
    estimate: Annotated[JsonObject, ShownAs(EstimateFigures)] = Field(
        description="Ability as the session has it."
    )
    abilities: list[Ability] = Field(description="Empty where the bank measures one.")
    tasks: list[TaskResult] = Field(description="By tag, at most 50; `n_tasks` counts all.")
    n_tasks: int
    trace: list[TracePoint] = Field(description="What was known as answers came in.")
    figures: JsonObject = Field(
        description="The session's progress, usage, outcomes, pretest, person_fit and rescore."
    )
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    failure: dict[str, str] | None
    warnings: list[Caution] = Field(description="Reasons to trust the result less.")
    items: list[AskedItem] = Field(description="The first 300; `/responses` has all.")
    n_asked: int
    join: JoinCheck | None = Field(
        description="Whether the parameters belong to the questions, by all answers of live "
        "sessions on the version so far, and how many wrong joins so many would find."
    )

    @classmethod
    def of(cls, report: SessionReport) -> Self:
        """The outgoing shape."""
        return cls.model_validate({**report.to_dict(), "summary": session_words.summary(report)})
