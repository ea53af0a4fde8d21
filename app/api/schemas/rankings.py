"""Rankings as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.api.schemas.common import (
    FailureRead,
    Input,
    Metadata,
    OnBank,
    ShownAs,
    WorkRead,
    WorkStatus,
    exactly_one,
)
from app.api.schemas.endpoints import ChosenEndpoint
from app.api.schemas.sessions.designs import (
    Count,
    DesignRead,
    EstimatorInput,
    FailuresInput,
    Positive,
    PredictionInput,
    SelectionInput,
)
from app.api.schemas.sessions.sessions import BankAsked, ExamineeInput, Patience, PromptChange, Seed
from app.engine import StopReason
from app.engine.design.design import CONCURRENCY
from app.engine.ranking.rules import (
    RANKING_PRESETS,
    Metric,
    RankingBudget,
    RankingDecision,
    RankingPreset,
    RankingRules,
)
from app.items import JsonObject
from app.records.fields import convert, shallow
from app.records.figures import CallsFigures, StepsFigures
from app.records.rankings import RankedFigures, RankedPair, RankingRecord
from app.records.sessions import Examinee
from app.services.rankings.service import MAX_ENDPOINTS, EndpointChoice, RankingSpec
from app.services.visibility import View

_RULES = RankingRules()
_SEVERAL: Any = Field(min_length=1, max_length=MAX_ENDPOINTS)


class RankingBudgetInput(Input):
    """Caps over all endpoints together; calls in flight are still paid."""

    items: Count | None = Field(
        default=None, description="By default half of `max_items` for each endpoint."
    )
    usd: Positive | None = None
    tokens: Annotated[int, Field(ge=1, le=2**53)] | None = None


class RankingCreate(OnBank):
    """Several endpoints or named examinees on one bank, and when their order is known."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "bank": "demo",
                    "endpoints": [
                        {"endpoint_id": "end_01jd0000000000000000000000"},
                        {"endpoint_id": "end_01jd0000000000000000000001"},
                        {
                            "endpoint": {
                                "kind": "openai_chat",
                                "base_url": "http://127.0.0.1:8080/v1",
                                "model": "my-model",
                            }
                        },
                    ],
                    "confidence": 0.95,
                    "budget": {"items": 150},
                }
            ]
        }
    )

    endpoints: Annotated[list[ChosenEndpoint], _SEVERAL] | None = Field(
        default=None, description="At least two, each once."
    )
    examinees: Annotated[list[ExamineeInput], _SEVERAL] | None = Field(
        default=None, description="Or who is ranked by hand: their client asks for `next-items`."
    )
    preset: RankingPreset | None = Field(
        default=None,
        strict=False,
        description="A published ranking: what is absent comes from it.",
    )
    metric: Metric = Field(
        default=Metric.SCORE,
        strict=False,
        description="By the score, or by ability (`theta`), which takes fewer questions.",
    )
    decision: RankingDecision = Field(
        default=_RULES.decision,
        strict=False,
        description="A pair is decided at a few looks planned beforehand, or after any answer as "
        "if it were looked at once (`one_look`), which tells equals apart several times as often.",
    )
    allocation: Literal["variance_per_cost"] = Field(
        default="variance_per_cost",
        description="Which model is asked next: the one with most variance to lose for the price.",
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        default=_RULES.confidence, description="With which a pair is decided."
    )
    correction: Literal["none", "holm"] = Field(
        default="none", description="`holm`: the confidence holds for all pairs together."
    )
    min_items: Count = Field(
        default=_RULES.min_items, description="Warm-up: scored answers of each endpoint."
    )
    max_items: Count = Field(default=_RULES.max_items, description="Most items of one endpoint.")
    tie_width: Annotated[float, Field(ge=0, le=50)] = Field(
        default=_RULES.tie_width,
        description="Difference that does not matter: a share of the score, or logits.",
    )
    futility: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        default=_RULES.futility,
        description="Give a pair up that all items left would decide with a smaller probability.",
    )
    shared_items: bool = Field(
        default=_RULES.shared_items, description="Prefer items that a rival has answered."
    )
    budget: RankingBudgetInput = Field(default_factory=RankingBudgetInput)
    estimator: EstimatorInput | None = None
    selection: SelectionInput | None = None
    prediction: PredictionInput | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(
        default=CONCURRENCY, description="Items in flight at once, of each endpoint."
    )
    failures: FailuresInput | None = None
    answer_within: Patience | None = Field(
        default=None, description="By hand: as of a manual session, for each pending item."
    )
    idle_timeout: Patience | None = Field(
        default=None, description="By hand: as of a manual session, for the whole ranking."
    )
    prompt: PromptChange = Field(
        default_factory=PromptChange,
        description="What all of them are asked otherwise than the bank says.",
    )
    seed: Seed | None = Field(default=None, description="Drawn, and reported, if absent.")
    metadata: Metadata = Field(default_factory=dict)

    _one_of_both = exactly_one("endpoints", "examinees")

    @model_validator(mode="after")
    def _asks_or_is_asked(self) -> Self:
        if self.examinees and self.prompt.model_dump(exclude_none=True):
            raise ValueError("a ranking of examinees puts no prompts: the client asks")
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        named = given.get("preset") if isinstance(given, dict) else None
        if not isinstance(named, str) or named not in RANKING_PRESETS:
            return given
        published = RANKING_PRESETS[RankingPreset(named)]
        own = {name: value for name, value in given.items() if value is not None}
        return {**published.rules, **published.asking, **own}

    def to_domain(self) -> RankingSpec:
        """The same for the service.

        Raises:
            InvalidInputError: Rules that contradict each other.
        """
        asking = self.model_dump(
            include={
                *("estimator", "selection", "prediction", "concurrency", "failures"),
                *("answer_within", "idle_timeout"),
            },
            exclude_unset=True,
        )
        return convert(
            RankingSpec,
            self,
            endpoints=[
                *(endpoint.chosen() for endpoint in self.endpoints or ()),
                *(convert(Examinee, examinee) for examinee in self.examinees or ()),
            ],
            rules=convert(RankingRules, self, holm=self.correction == "holm"),
            budget=convert(RankingBudget, self.budget),
            prompt=self.prompt.changes(),
            asking={name: section for name, section in asking.items() if section is not None},
        )


class RankingJoin(ChosenEndpoint):
    """One more endpoint, or named examinee, for a completed ranking of such."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"endpoint_id": "end_01jd0000000000000000000002"}]}
    )

    budget: RankingBudgetInput = Field(
        default_factory=RankingBudgetInput,
        description="What it may cost; `items` is `max_items` by default.",
    )
    examinee: ExamineeInput | None = Field(
        default=None, description="Of a ranking by hand: who joins."
    )

    _one_of_both = exactly_one("endpoint", "endpoint_id", "examinee")

    def joining(self) -> EndpointChoice:
        """Who joins."""
        return convert(Examinee, self.examinee) if self.examinee else self.chosen()


class RankingRead(WorkRead):
    """One ranking: where it stands."""

    id: str
    object: Literal["ranking"] = "ranking"
    metric: Metric = Field(description="What decides: the score, or the ability.")
    status: WorkStatus
    self_reported: bool = Field(description="A client says what was answered: by hand.")
    bank: BankAsked
    order: list[RankedFigures] = Field(
        description="By falling score or theta, as `metric` says; empty before the first step."
    )
    ties: list[list[str]] = Field(description="Ids of endpoints that are statistically tied.")
    pairs: list[RankedPair]
    decided: bool = Field(description="Whether every pair of neighbours is decided.")
    progress: StepsFigures
    usage: CallsFigures
    rules: Annotated[JsonObject, ShownAs(RankingRules)]
    budget: Annotated[JsonObject, ShownAs(RankingBudgetInput)]
    asking: DesignRead = Field(description="How each endpoint is asked.")
    seed: int
    stop_reason: StopReason | None
    stop_detail: str | None
    failure: FailureRead | None
    waiting_until: datetime | None = Field(description="When a waiting ranking looks again.")
    waiting_reason: str | None = Field(description="Why nothing happens just now.")
    metadata: dict[str, str]

    @classmethod
    def of(cls, record: RankingRecord, view: View) -> "RankingRead":
        """From the stored ranking."""
        record = view.ranking(record)
        figures = {**_NOTHING_YET, **record.summary}
        if record.status != "running":
            figures |= _NO_WAIT
        return cls.model_validate(
            {
                **figures,
                "metric": record.settings["rules"]["metric"],
                "self_reported": "by_hand" in record.settings,
                **record.settings,
                **shallow(record),
                "bank": {
                    "id": record.bank_id,
                    "name": record.bank_name,
                    "version": record.bank_version,
                    "version_id": record.bank_version_id,
                },
            }
        )


_NO_WAIT: dict[str, Any] = {"waiting_until": None, "waiting_reason": None}
_NOTHING_YET: dict[str, Any] = {
    "order": [],
    "ties": [],
    "pairs": [],
    "decided": False,
    "progress": {"items": 0, "scored": 0, "in_flight": 0},
    "usage": {"calls": 0, "tokens_in": 0, "tokens_out": 0, "usd": 0.0},
    **_NO_WAIT,
}
