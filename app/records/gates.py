"""Gates, and the baselines that they compare with, as stored."""

from dataclasses import dataclass
from datetime import datetime
from typing import NotRequired

from app.errors import InvalidInputError
from app.printable import percent_meant
from app.records.figures import Outcomes, ResultFigures
from app.records.sessions import Conditions, Plan

#: Largest threshold of theta, in logits, in either direction.
_FURTHEST = 50
#: Said in a gate's detail where questions to the session alone cannot decide it.
#: Part of the `detail` of such a gate, by which the command line knows it: keep the wording.
BASELINE_LIMITS = "The baseline is what limits: its own interval alone leaves this open."


class BaselineFigures(ResultFigures):
    """Results of the session that a baseline keeps."""

    outcomes: NotRequired[Outcomes]
    """Not in older baselines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Figures of an ended session, stored apart from it so that they outlast it.

    Attributes:
        label: Name of the examinee.
        lineage: Ids of the session and of those that it was made from.
        extensions: Number of extensions after the end, which is the number of earlier looks.
        withheld: Whether the session's questions are withheld.
        seed: Seed of the session; with it, a similar model is asked mostly the same items.
        provenance: `asked` and `asking` of the session's provenance: how it was asked.
        summary: Figures of the session: `estimate`, `score`, `progress`, `profile`.
        residuals: Id of each scored item -> score minus the score expected at the ability.
        cautions: Metric -> reason to trust it less; None where there is none.
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
    summary: BaselineFigures
    residuals: dict[str, float]
    cautions: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A baseline under a name, which can be moved to another baseline.

    Attributes:
        created_by: API key that may move the name; None for the command line.
    """

    name: str
    project_id: str
    created_by: str | None
    baseline: Baseline
    set_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """A criterion for the result of a session.

    Attributes:
        metric: `score`, or `theta`, the ability.
        tag: Tag of the items that the score covers; None is the whole bank.
        threshold: Limit in the metric's unit; with a baseline, for the difference from it.
        direction: Side of the threshold that means go, `above` or `below`.
        confidence: Level of the interval that must lie wholly on one side.
        baseline: Baseline whose difference from the result is compared with the threshold.
        baseline_name: Name of the baseline, if it was stored under one.
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
            detail = "a tag needs the metric score; theta is of the whole bank"
            raise InvalidInputError.of_field("tag", detail)
        if self.baseline is not None:
            if self.tag is not None:
                detail = "expected no tag: a baseline is compared with the score of the whole bank"
                raise InvalidInputError.of_field("tag", detail)
        elif self.metric == "score" and not 0 <= self.threshold <= 1:
            meant = percent_meant(self.threshold) or "for a threshold of theta give metric theta"
            detail = f"expected a share from 0 to 1, got {self.threshold:g}; {meant}"
            raise InvalidInputError.of_field("threshold", detail)
        elif abs(self.threshold) > _FURTHEST:
            detail = f"threshold: expected at most {_FURTHEST} logits, got {self.threshold:g}."
            raise InvalidInputError.at("/threshold", detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord(GateSpec):
    """A gate as stored; its outcome follows from its session, which does not change once ended."""

    id: str
    session_id: str
    project_id: str
    created_by: str | None
    created_at: datetime
