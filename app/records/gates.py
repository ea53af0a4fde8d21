"""Gates as stored."""

from dataclasses import dataclass
from datetime import datetime

from app.errors import FieldProblem, InvalidInputError
from app.records.baselines import Baseline


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
            detail = (
                f"expected a share from 0 to 1, got {self.threshold:g}; for a threshold of the "
                "ability say metric theta"
            )
            raise InvalidInputError(
                f"threshold: {detail}.", problems=[FieldProblem("/threshold", detail)]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord(GateSpec):
    """A gate as stored; its outcome follows from its session, which never changes once it ended."""

    id: str
    session_id: str
    project_id: str
    created_by: str | None
    created_at: datetime
