"""Gates as JSON."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from app.api.schemas.common import Input, MetricName, Name, OwnedRead, exactly_one
from app.api.schemas.comparisons import SessionName
from app.api.schemas.session_figures import ExtrapolationRead
from app.api.schemas.sessions import SessionCreate, SessionStatus
from app.records.fields import shallow
from app.records.gates import GateSpec
from app.services.results.gates import Gate
from app.services.visibility import View

GateOutcome = TypeAliasType("GateOutcome", Literal["go", "no_go", "inconclusive"])
Direction = TypeAliasType("Direction", Literal["above", "below"])


class GateCreate(Input):
    """What is held against which threshold: a session that there is, or one to be started."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"session_id": "ses_01jd0000000000000000000000", "threshold": 0.5},
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
    threshold: Annotated[float, Field(ge=-50, le=50)]
    direction: Direction = Field(default="above", description="Where a go lies.")
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        default=0.95, description="Of the interval that must lie wholly on one side."
    )

    _one_session = exactly_one("session_id", "session")

    def to_domain(self) -> GateSpec:
        """As the service takes it."""
        return GateSpec(**self.model_dump(exclude={"session_id", "session"}))


class GateRead(OwnedRead):
    """A gate; decided once its session has ended."""

    id: str
    object: Literal["gate"] = "gate"
    status: Literal["pending", "decided"]
    outcome: GateOutcome | None
    detail: str
    session_id: str
    session_status: SessionStatus
    metric: MetricName
    tag: str | None
    threshold: float
    direction: Direction
    confidence: float
    value: float | None
    ci: list[float | None] = Field(description="Interval of the value at the gate's confidence.")
    margin: float | None = Field(description="How far the value is beyond the threshold.")
    p_beyond: float | None = Field(
        description="Probability that the true value is beyond it, by the intervals that decide: "
        "go from 0.5 + confidence / 2 on, no go from 0.5 - confidence / 2 down. Null where nothing "
        "is known, or what is known is a guess."
    )
    extrapolation: ExtrapolationRead | None = Field(
        description="Where the examinee stands among those that the bank was calibrated on."
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
                "status": "pending" if result is None else "decided",
                "outcome": result and result.outcome.value,
                "detail": gate.detail,
                "session_status": gate.session.status,
                "value": gate.value,
                "ci": [None, None] if result is None else list(result.ci),
                "margin": result and result.margin,
                "p_beyond": result and result.p_beyond,
                "extrapolation": gate.extrapolation,
            }
        )
