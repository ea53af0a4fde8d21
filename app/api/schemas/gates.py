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
    """A session, existing or to be started, and the threshold or baseline that decides."""

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
    session: SessionCreate | None = None
    """Session to start for the gate. With the metric `theta` it stops as soon as the gate is
    decided, unless it has a cut score of its own."""
    metric: MetricName = "score"
    """Metric to compare: `score`, or `theta`, the ability in logits."""
    tag: Name | None = None
    """With `score` and a version of several abilities: tag whose items the score is about; null for
    the whole bank."""
    threshold: float | None = None
    """Threshold: for the score from 0 to 1, for theta in logits, from -50 to 50."""
    baseline: Name | None = None
    """Instead of a threshold: name of a baseline, or id of an ended session. A session that is
    started for the gate is asked in the same way."""
    tolerance: Annotated[float, Field(ge=0, le=50)] | None = None
    """With a baseline: how much worse still passes. For a score, 0.02 is 2 points; for theta, in
    logits."""
    direction: Direction = "above"
    """Side of the threshold that means `go`."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of the interval that must lie wholly on one side of the threshold."""

    _one_session = exactly_one("session_id", "session")

    _one_mark = exactly_one("threshold", "baseline")

    @model_validator(mode="after")
    def _with_tolerance(self) -> Self:
        if (self.baseline is None) != (self.tolerance is None):
            raise ValueError("give baseline and tolerance together")
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
    """The session whose result gets the name."""

    session_id: SessionName


class BaselineRead(OwnedRead):
    """The result of a session, stored under a name. It remains if the session is deleted."""

    object: Literal["baseline"] = "baseline"
    name: str
    session_id: str
    """Session of the result; it may be deleted by now."""
    examinee: str
    """Endpoint or examinee that was tested."""
    bank: str
    bank_version_id: str
    score: float | None
    score_interval: Interval | None
    """95 % interval."""
    theta: float | None
    theta_interval: Interval | None
    """95 % interval."""
    n_items: int
    """Number of scored answers."""
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
    """A gate. It is decided when its session has ended."""

    id: str
    object: Literal["gate"] = "gate"
    status: GateStatus
    outcome: GateOutcome | None
    detail: str
    session_id: str
    session_status: SessionStatus
    metric: MetricName
    tag: str | None
    threshold: float
    """Threshold. With a baseline: for the difference, the tolerance with its sign."""
    baseline: str | None
    """Name of the baseline, or id of its session; null with a threshold."""
    direction: Direction
    confidence: float
    value: float | None
    """Value of the metric; with a baseline, its difference from the baseline."""
    interval: Interval | None
    """Interval of the value at the gate's confidence."""
    margin: float | None
    """Distance of the value beyond the threshold, in the direction of `go`."""
    p_beyond: float | None
    """Probability that the true value is beyond the threshold, from the intervals that decide: `go`
    at 0.5 + confidence / 2 or more, `no_go` at 0.5 - confidence / 2 or less. Null without a result,
    or if the result is a guess."""
    extrapolation: ExtrapolationFigures | None
    """Position of the examinee among the reference models."""
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
