"""Gates, and what they are held against, as JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypeAliasType

from app.api.schemas.common import Input, MetricName, Name, OwnedRead, exactly_one
from app.api.schemas.comparisons import SessionName
from app.api.schemas.sessions.sessions import SessionCreate, SessionStatus
from app.records.fields import Interval, convert, interval, shallow
from app.records.figures import ExtrapolationFigures
from app.records.gates import Baseline, GateSpec, NamedBaseline
from app.services.results.gates import Gate
from app.services.sessions.result import result_in
from app.services.visibility import View

GateOutcome = TypeAliasType("GateOutcome", Literal["go", "no_go", "inconclusive"])
GateStatus = TypeAliasType("GateStatus", Literal["pending", "decided"])
Direction = TypeAliasType("Direction", Literal["above", "below"])


class GateCreate(Input):
    """What is held against which threshold: a session that there is, or one to be started."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"session_id": "ses_01jd0000000000000000000000", "threshold": 0.5},
                {
                    "session_id": "ses_01jd0000000000000000000000",
                    "baseline": "production",
                    "tolerance": 0.02,
                },
                {
                    "session": {
                        "bank": "demo",
                        "endpoint": {
                            "kind": "openai_chat",
                            "base_url": "http://127.0.0.1:8080/v1",
                            "model": "my-model",
                        },
                    },
                    "metric": "theta",
                    "threshold": 0.0,
                    "confidence": 0.9,
                },
            ]
        }
    )

    session_id: SessionName | None = None
    session: SessionCreate | None = Field(
        default=None,
        description="Started for the gate; with the metric `theta` it stops once that is decided.",
    )
    metric: MetricName = Field(default="score", description="`theta` is the ability, in logits.")
    tag: Name | None = Field(
        default=None,
        description="With `score` and a version of several abilities: of whose items it is; null: "
        "of the whole bank.",
    )
    threshold: float | None = Field(
        default=None, description="A share from 0 to 1 of the score, or logits of theta, to ±50."
    )
    baseline: Name | None = Field(
        default=None,
        description="In place of a threshold: name of a baseline, or id of an ended session. A "
        "session that is started for the gate is asked as that one was.",
    )
    tolerance: Annotated[float, Field(ge=0, le=50)] | None = Field(
        default=None,
        description="With a baseline: how much worse is not worse yet. Of a score 0.02 is 2 "
        "points; of theta in logits.",
    )
    direction: Direction = Field(default="above", description="Where a go lies.")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        default=0.95, description="Of the interval that must lie wholly on one side."
    )

    _one_session = exactly_one("session_id", "session")

    _one_mark = exactly_one("threshold", "baseline")

    @model_validator(mode="after")
    def _with_tolerance(self) -> Self:
        if (self.baseline is None) != (self.tolerance is None):
            raise ValueError("a baseline and a tolerance go together")
        return self

    def to_domain(self, baseline: Baseline | None) -> GateSpec:
        """As the service takes it."""
        threshold = self.threshold
        if threshold is None:
            allowed = self.tolerance or 0.0
            threshold = 0.0 - allowed if self.direction == "above" else allowed
        stands = {"baseline": baseline, "baseline_name": self.baseline}
        return convert(GateSpec, self, threshold=threshold, **stands)


class BaselineSet(Input):
    """Which result a name stands for."""

    session_id: SessionName


class BaselineRead(OwnedRead):
    """The result of a session under a name. It outlasts the session."""

    object: Literal["baseline"] = "baseline"
    name: str
    session_id: str = Field(description="Whose result it is; the session may be gone.")
    examinee: str = Field(description="Who was asked.")
    bank: str
    bank_version_id: str
    score: float | None
    score_interval: Interval | None = Field(description="Its 95 % interval.")
    theta: float | None
    theta_interval: Interval | None = Field(description="Its 95 % interval.")
    n_items: int = Field(description="Scored answers.")
    set_at: datetime

    @classmethod
    def of(cls, record: NamedBaseline) -> "BaselineRead":
        """From the stored baseline."""
        kept = record.baseline
        found = result_in(kept.summary)
        score = found.score or {"value": None, "interval": None}
        return cls.model_validate(
            {
                **shallow(record),
                **shallow(kept),
                "examinee": kept.label,
                "score": score["value"],
                "score_interval": score["interval"],
                "theta": found.theta,
                "theta_interval": interval(*found.interval),
                "n_items": found.n_scored,
            }
        )


class GateRead(OwnedRead):
    """A gate; decided once its session has ended."""

    id: str
    object: Literal["gate"] = "gate"
    status: GateStatus
    outcome: GateOutcome | None
    detail: str
    session_id: str
    session_status: SessionStatus
    metric: MetricName
    tag: str | None
    threshold: float = Field(
        description="With a baseline: of the difference, the tolerance with its sign."
    )
    baseline: str | None = Field(description="Name or session's id of what it is held against.")
    direction: Direction
    confidence: float
    value: float | None = Field(description="The metric; with a baseline, its difference from it.")
    interval: Interval | None = Field(description="Interval of the value at the gate's confidence.")
    margin: float | None = Field(description="How far the value is beyond the threshold.")
    p_beyond: float | None = Field(
        description="Probability that the true value is beyond it, by the intervals that decide: "
        "go from 0.5 + confidence / 2 on, no go from 0.5 - confidence / 2 down. Null where nothing "
        "is known, or what is known is a guess."
    )
    extrapolation: ExtrapolationFigures | None = Field(
        description="Where the examinee stands among the reference models."
    )
    created_at: datetime

    @classmethod
    def of(cls, gate: Gate, view: View) -> "GateRead":
        """From the service's value."""
        gate = view.gate(gate)
        record, result = gate.record, gate.result
        return cls.model_validate(
            {
                **shallow(record),
                "baseline": record.baseline_name,
                "status": "pending" if result is None else "decided",
                "outcome": result and result.outcome.value,
                "detail": gate.detail,
                "session_status": gate.session.status,
                "value": gate.value,
                "interval": result and interval(*result.interval, record.confidence),
                "margin": result and result.margin,
                "p_beyond": result and result.p_beyond,
                "extrapolation": gate.extrapolation,
            }
        )
