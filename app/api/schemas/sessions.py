"""Sessions as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import override

from app.api.schemas.banks import ScorerModel
from app.api.schemas.common import Input, Int32, Metadata, Name, Output, Text
from app.api.schemas.designs import DesignInput, EstimatorInput, PredictionInput
from app.api.schemas.endpoints import EndpointCreate
from app.engine import StopReason
from app.items import Outcome
from app.services.manual_sessions import ManualAnswer, NextItem
from app.services.pretest import MAX_PER_SESSION
from app.services.rescoring import Change
from app.services.sessions import AskedAnswer, SessionSpec
from app.storage.repositories.session_values import Closing, SessionRecord

Status = Literal[
    "queued",
    "running",
    "waiting",
    "paused",
    "awaiting_response",
    "completed",
    "failed",
    "cancelled",
]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class PretestInput(Input):
    """Items without parameters that are asked beside the test."""

    items_per_session: Annotated[int, Field(ge=0, le=MAX_PER_SESSION)] = Field(
        description=(
            "At most so many items of the version that are in pretest, those asked least often so "
            "far first. They are marked and stored, and they cost; they count towards the budget, "
            "but not towards max_items, theta, the predicted score or the limits on failures."
        )
    )


class SessionCreate(DesignInput):
    """One adaptive test: who is asked, from which bank, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "bank": "demo",
                    "endpoint": {
                        "kind": "openai_chat",
                        "base_url": "http://127.0.0.1:8080/v1",
                        "model": "my-model",
                        "api_key": "sk-...",
                    },
                    "stopping": {"se": 0.3, "max_items": 60},
                    "budget": {"tokens": 50000},
                },
                {"mode": "manual", "bank": "demo", "stopping": {"max_items": 20}, "seed": 1},
            ]
        }
    )

    mode: Literal["live", "manual"] = Field(
        default="live", description="`manual`: the client answers the items itself."
    )
    endpoint_id: Name | None = Field(default=None, description="A saved endpoint.")
    endpoint: EndpointCreate | None = Field(
        default=None, description="Or an endpoint in place, stored with the session."
    )
    bank_version_id: Name | None = Field(default=None, description="A certain version.")
    bank: Name | None = Field(
        default=None, description="Or the newest version of a bank, by its id or name."
    )
    pretest: PretestInput | None = Field(
        default=None, description="By default as the bank's `pretest_items` says."
    )
    seed: Seed | None = Field(default=None, description="Drawn, and reported, if absent.")
    metadata: Metadata = Field(default_factory=dict)

    @override
    def plan(self) -> dict[str, Any]:
        given = super().plan()
        return given if self.pretest is None else {**given, "pretest": self.pretest.model_dump()}

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.bank_version_id is None) == (self.bank is None):
            raise ValueError("give exactly one of bank and bank_version_id")
        endpoints = (self.endpoint_id is not None) + (self.endpoint is not None)
        if self.mode == "live" and endpoints != 1:
            raise ValueError("a live session takes exactly one of endpoint and endpoint_id")
        if self.mode == "manual" and endpoints:
            raise ValueError("a manual session takes no endpoint")
        return self

    def to_domain(self) -> SessionSpec:
        """As the service takes it."""
        return SessionSpec(
            mode=self.mode,
            endpoint_id=self.endpoint_id,
            endpoint=self.endpoint.to_spec() if self.endpoint else None,
            bank_version_id=self.bank_version_id,
            bank=self.bank,
            plan=self.plan(),
            seed=self.seed,
            metadata=self.metadata,
        )


class SessionExtend(DesignInput):
    """A new session that goes on from an ended one; sections given replace the old ones."""

    metadata: Metadata = Field(default_factory=dict)


class SessionReplay(Input):
    """A new session that estimates again from the answers of an ended one."""

    estimator: EstimatorInput | None = None
    prediction: PredictionInput | None = None
    bank_version_id: Name | None = None
    metadata: Metadata = Field(default_factory=dict)

    def changes(self) -> dict[str, Any]:
        """The sections of the design to replace."""
        return self.model_dump(
            include={"estimator", "prediction"}, exclude_unset=True, exclude_none=True
        )


class SessionRescore(Input):
    """A new session in which the answers of an ended one are marked again."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"scorer": {"name": "exact", "params": {"ignore_case": False}}}]
        }
    )

    scorer: ScorerModel | None = Field(
        default=None,
        description="Marks every answer; absent: what marks each item by now.",
    )
    metadata: Metadata = Field(default_factory=dict)


class ManualResponse(Input):
    """An answer: exactly one of `response` (its text), `score` and `outcome`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step_token": "pMn4...", "response": "B"}]}
    )

    step_token: Name = Field(description="From `next-item`: names the step that is answered.")
    item_id: Name | None = Field(default=None, description="Checked against the step, if given.")
    response: Annotated[Text, Field(max_length=1_000_000)] | None = None
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    outcome: Literal["unparsed", "refused", "error", "truncated"] | None = None

    def to_domain(self) -> ManualAnswer:
        """As the service takes it."""
        return ManualAnswer(
            step_token=self.step_token,
            item_id=self.item_id,
            response=self.response,
            score=self.score,
            outcome=None if self.outcome is None else Outcome(self.outcome),
        )


class EstimateRead(Output):
    """Ability on the bank's scale, in logits."""

    theta: float | None
    se: float | None = Field(description="Standard error; null where nothing is known yet.")
    ci: list[float | None] = Field(
        description=(
            "95 % interval, made to hold by what tests of other examinees taught about the version."
        )
    )
    ci_raw: list[float | None] | None = Field(
        default=None,
        description="The interval by the model alone; null where nothing was learned.",
    )
    method: str
    at_bound: bool


class AccuracyRead(Output):
    """Predicted score, with its 95 % interval."""

    value: float
    lo: float
    hi: float
    raw: list[float] | None = Field(
        default=None,
        description="The interval by the model alone; null where nothing was learned.",
    )
    method: str
    target: dict[str, float] | None = Field(
        default=None, description="Of which tags it is, and their shares; null: of the whole bank."
    )


class AbilityRead(Output):
    """One ability of several, in units of the models that the bank was calibrated on."""

    name: str
    value: float
    se: float
    lo: float
    hi: float
    above: float = Field(description="Share of those models that are thought to have less of it.")


class TaskRead(Output):
    """Predicted score on all items of a tag, asked or never asked, with its 95 % interval."""

    tag: str = Field(
        description="`all` is the whole bank, told here where the session is about another score."
    )
    value: float
    lo: float
    hi: float
    n_items: int
    n_asked: int


class ProfileRead(Output):
    """Several abilities, and the predicted score of every task."""

    abilities: list[AbilityRead]
    tasks: list[TaskRead]


class ProgressRead(Output):
    """How far the test is."""

    items: int
    scored: int
    in_flight: int
    expected_items: int | None = Field(description="In all, if information goes on as now.")


class MarkingUsageRead(Output):
    """What scorers that call out took. `usd` is null when a price or a token count is unknown."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None


class UsageRead(Output):
    """What it took so far. `usd` is null when a price or a token count is unknown."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None
    seconds: float
    judge: MarkingUsageRead | None = Field(
        default=None, description="Of judges and other scorers that call out; not in the rest."
    )


class OutcomesRead(Output):
    """Closed items by outcome. Only `scored` ones entered the estimate."""

    scored: int
    unparsed: int
    refused: int
    error: int
    truncated: int


class PretestRead(Output):
    """Items without parameters asked beside the test; no figure of the test counts them."""

    planned: int
    items: int = Field(description="Closed ones.")
    in_flight: int
    outcomes: OutcomesRead


class InversionsRead(Output):
    """Pairs of answers with the clearly harder item right and the easier one wrong."""

    observed: float
    expected: float = Field(description="On these items, of an examinee of this ability.")


class SurpriseRead(Output):
    """An answer that an examinee of this ability hardly gives."""

    item_id: str
    score: float
    expected: float = Field(description="Mean score of examinees of this ability.")


class PersonFitRead(Output):
    """Do the answers fit the bank's model? Flagged: probably not, so doubt theta.

    Many more inversions than expected mean that hard items were right while easy ones were wrong:
    an examinee that has seen the hard ones before answers like that.
    """

    lz: float | None
    p_value: float | None
    flagged: bool
    inversions: InversionsRead | None = None
    surprises: list[SurpriseRead] = Field(
        default_factory=list, description="The least expected answers, the worst first."
    )


class FailureRead(Output):
    """Why a session failed."""

    code: str
    detail: str


class RescoreRead(Output):
    """What marking again has changed. Item by item: `/changes`."""

    answers: int
    changed: int = Field(description="Answers whose score or outcome differ.")
    scored_in_both: int
    mean_before: float | None = Field(description="Mean score of those scored in both.")
    mean_after: float | None
    theta_before: float | None
    se_before: float | None


class SessionBank(Output):
    """What is asked from."""

    id: str
    name: str
    version: int
    version_id: str
    n_items: int
    scale: str
    provisional: bool


class SessionEndpoint(Output):
    """Who is asked."""

    id: str
    name: str | None
    model: str


class SessionRead(Output):
    """One session: where it stands and what is known so far."""

    id: str
    object: Literal["session"] = "session"
    mode: Literal["live", "manual"]
    status: Status
    bank: SessionBank
    endpoint: SessionEndpoint | None
    estimate: EstimateRead
    accuracy: AccuracyRead | None
    profile: ProfileRead | None = Field(description="Null where the bank measures one ability.")
    progress: ProgressRead
    usage: UsageRead
    outcomes: OutcomesRead
    pretest: PretestRead | None = Field(description="Null in sessions older than it.")
    person_fit: PersonFitRead | None
    rescore: RescoreRead | None
    stop_reason: StopReason | None
    stop_detail: str | None
    precision_reached: bool | None = Field(description="Was the SE target met? Null: none set.")
    failure: FailureRead | None
    waiting_until: datetime | None
    waiting_reason: str | None
    design: dict[str, Any]
    seed: int
    parent_id: str | None
    relation: Literal["extend", "replay", "rescore"] | None
    ranking_id: str | None = Field(description="The ranking that it is a member of.")
    provenance: dict[str, Any]
    metadata: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, record: SessionRecord) -> "SessionRead":
        """From the stored session."""
        provenance = record.provenance
        return cls.model_validate(
            {
                "id": record.id,
                "mode": record.mode,
                "status": record.status,
                "bank": {
                    "id": record.bank_id,
                    "name": record.bank_name,
                    "version": record.bank_version,
                    "version_id": record.bank_version_id,
                    "n_items": provenance["n_items"],
                    "scale": provenance["scale"],
                    "provisional": provenance["provisional"],
                },
                "endpoint": None
                if record.endpoint_id is None
                else {
                    "id": record.endpoint_id,
                    "name": record.endpoint_name,
                    "model": record.endpoint_model,
                },
                "profile": None,
                "pretest": None,
                "person_fit": None,
                "rescore": None,
                **record.summary,
                "stop_reason": record.stop_reason,
                "stop_detail": record.stop_detail,
                "precision_reached": record.precision_reached,
                "failure": record.failure,
                "waiting_until": record.waiting_until,
                "waiting_reason": record.waiting_reason,
                "design": record.design,
                "seed": record.seed,
                "parent_id": record.parent_id,
                "relation": record.relation,
                "ranking_id": record.ranking_id,
                "provenance": provenance,
                "metadata": record.metadata,
                "created_at": record.created_at,
                "started_at": record.started_at,
                "finished_at": record.finished_at,
            }
        )


class ItemView(Output):
    """An item as the examinee is to see it."""

    id: str
    prompt: str | None
    messages: list[dict[str, str]]
    choices: list[str]


class NextItemRead(Output):
    """The item that the session waits for."""

    step: int
    step_token: str
    item: ItemView

    @classmethod
    def of(cls, awaited: NextItem) -> "NextItemRead":
        """From the service's value; the target stays here."""
        content = awaited.item.content
        return cls(
            step=awaited.step,
            step_token=awaited.step_token,
            item=ItemView(
                id=awaited.item.key,
                prompt=content.prompt,
                messages=[{"role": m.role, "content": m.content} for m in content.messages],
                choices=list(content.choices),
            ),
        )


_OF_ADMINISTRATION = frozenset(
    {"step", "item_id", "pretest", "arrival", "information", "asked_at", "answered_at"}
)


class ResponseRead(Output):
    """One item of a session. `outcome` is null while the answer is awaited."""

    step: int
    item_id: str
    pretest: bool = Field(description="An item without parameters, of which no estimate knows.")
    arrival: int | None = Field(description="Order in which answers came, from 1.")
    outcome: Literal["scored", "unparsed", "refused", "error", "truncated"] | None
    score: float | None
    extracted: str | None
    extractor: str | None
    reason: str | None
    error_code: str | None
    marking: dict[str, Any] | None = Field(
        description="Of scorers that call out: judgements, the judge's version, what it cost."
    )
    answer: str | None
    raw: str | None = Field(description="The whole text where it differs from `answer`.")
    reasoning: str | None
    finish_reason: str | None
    theta: float | None
    se: float | None
    information: float | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: float | None
    attempts: int | None
    asked_at: datetime
    answered_at: datetime | None

    @classmethod
    def of(cls, asked: AskedAnswer) -> "ResponseRead":
        """From the service's value."""
        item, closing = asked.administration, asked.administration.closing

        def of_closing(name: str) -> Any:
            return None if closing is None else getattr(closing, name)

        taken = {
            name: of_closing({"answer": "answer_text", "raw": "raw_text"}.get(name, name))
            for name in cls.model_fields
            if name not in _OF_ADMINISTRATION
        }
        return cls(
            step=item.step,
            item_id=asked.item_key,
            pretest=asked.is_pretest,
            arrival=item.arrival,
            information=item.information,
            asked_at=item.asked_at,
            answered_at=item.answered_at,
            **taken,
        )


class ResponseList(Output):
    """Items of a session in order of asking. Go on with `?after=<last_step>`."""

    object: Literal["list"] = "list"
    data: list[ResponseRead]
    last_step: int
    has_more: bool


class StoredMark(Output):
    """One mark of an answer."""

    outcome: Literal["scored", "unparsed", "refused", "error", "truncated"]
    score: float | None
    reason: str | None
    error_code: str | None

    @classmethod
    def of(cls, closing: Closing) -> "StoredMark":
        """From the stored closing."""
        return cls.model_validate({name: getattr(closing, name) for name in cls.model_fields})


class ChangeRead(Output):
    """One answer before and after it was marked again; `after` is null while it is not."""

    step: int
    item_id: str
    changed: bool
    before: StoredMark
    after: StoredMark | None

    @classmethod
    def of(cls, change: Change) -> "ChangeRead":
        """From the service's value."""
        return cls(
            step=change.step,
            item_id=change.item_key,
            changed=change.is_changed,
            before=StoredMark.of(change.before),
            after=None if change.after is None else StoredMark.of(change.after),
        )


class ChangeList(Output):
    """Every answer of a session that marks those of another again."""

    object: Literal["list"] = "list"
    data: list[ChangeRead]


class TrajectoryPoint(Output):
    """Theta after one answer."""

    arrival: int
    step: int
    item_id: str
    outcome: str
    score: float | None
    theta: float | None
    se: float | None


class Trajectory(Output):
    """Theta and SE after each answer of the test, in order of arrival."""

    object: Literal["trajectory"] = "trajectory"
    data: list[TrajectoryPoint]

    @classmethod
    def of(cls, answers: list[AskedAnswer]) -> "Trajectory":
        """From all items of a session."""
        closed = [a for a in answers if a.administration.closing and not a.is_pretest]
        closed.sort(key=lambda answer: answer.administration.arrival or 0)
        return cls(
            data=[
                TrajectoryPoint(
                    arrival=answer.administration.arrival or 0,
                    step=answer.administration.step,
                    item_id=answer.item_key,
                    outcome=closing.outcome,
                    score=closing.score,
                    theta=closing.theta,
                    se=closing.se,
                )
                for answer in closed
                if (closing := answer.administration.closing) is not None
            ]
        )


AfterStep = Annotated[Int32, Field(ge=0)]
