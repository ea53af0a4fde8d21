"""Gates and the baselines that they compare with, as stored."""

from dataclasses import dataclass
from datetime import datetime

from app.errors import FieldProblem, InvalidInputError
from app.printable import percent_meant
from app.records.figures import ResultFigures
from app.records.sessions import Conditions, Plan

#: From 0, logits that theta may be held against.
_FURTHEST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The figures of an ended session, kept apart from it: they outlast it.

    Attributes:
        session_id: Whose figures they are.
        label: Who was asked.
        lineage: Ids of the session and of those that it was made from.
        extensions: How often it went on after it had ended: so often it was looked at before.
        withheld: Its questions are.
        seed: Of the session. With the same one a model like it is asked mostly the same items.
        design: How it was asked.
        provenance: `asked` and `asking` of the session's: in which way.
        summary: Figures of the session: `estimate`, `score`, `progress`, `profile`.
        residuals: Id of each scored item -> score less what the ability lets expect.
        cautions: Metric -> why to trust it less, if there is anything to say.
    """

    session_id: str
    label: str
    lineage: list[str]
    extensions: int
    withheld: bool
    bank: str
    bank_version_id: str
    seed: int
    design: Plan
    provenance: Conditions
    summary: ResultFigures
    residuals: dict[str, float]
    cautions: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A baseline under a name that can be moved.

    Attributes:
        created_by: The API key that may move it; None for the command line.
    """

    name: str
    project_id: str
    created_by: str | None
    baseline: Baseline
    set_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """What a session's result is held against.

    Attributes:
        metric: `score`, or `theta`: the ability.
        tag: Of whose items the score is; None is the whole bank.
        threshold: In the metric's unit; with a baseline, of the difference from it.
        direction: `above` or `below`: where a go lies.
        confidence: Of the interval that must lie wholly on one side.
        baseline: What the result's difference from is held against the threshold.
        baseline_name: Under which it was stored, if it was.
    """

    metric: str = "score"
    tag: str | None = None
    threshold: float
    direction: str = "above"
    confidence: float = 0.95
    baseline: Baseline | None = None
    baseline_name: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and self.metric != "score":
            detail = "a tag belongs to the metric score; ability is of the whole bank"
            raise InvalidInputError(f"tag: {detail}.", problems=[FieldProblem("/tag", detail)])
        if self.baseline is not None:
            if self.tag is not None:
                detail = "a baseline is held against the score of the whole bank"
                raise InvalidInputError(f"tag: {detail}.", problems=[FieldProblem("/tag", detail)])
        elif self.metric == "score" and not 0 <= self.threshold <= 1:
            meant = (
                percent_meant(self.threshold) or "for a threshold of the ability say metric theta"
            )
            detail = f"expected a share from 0 to 1, got {self.threshold:g}; {meant}"
            raise InvalidInputError(
                f"threshold: {detail}.", problems=[FieldProblem("/threshold", detail)]
            )
        elif abs(self.threshold) > _FURTHEST:
            detail = f"threshold: expected at most {_FURTHEST} logits, got {self.threshold:g}."
            raise InvalidInputError.at("/threshold", detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord(GateSpec):
    """A gate as stored; its outcome follows from its session, which never changes once it ended."""

    id: str
    session_id: str
    project_id: str
    created_by: str | None
    created_at: datetime
