"""Rankings as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.api.schemas.designs import (
    Count,
    DesignRead,
    EstimatorInput,
    FailuresInput,
    Positive,
    PredictionInput,
    SelectionInput,
)
from app.api.schemas.endpoints import ChosenEndpoint
from app.api.schemas.sessions import BankAsked, Patience, PromptChange, Seed
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
from app.services.rankings.service import MAX_ENDPOINTS, RankingSpec
from app.services.visibility import View
from app.shapes import (
    FailureRead,
    Input,
    Metadata,
    OnBank,
    ShownAs,
    WorkRead,
    WorkStatus,
    exactly_one,
    examples,
)

_RULES = RankingRules()
_SEVERAL: Any = Field(min_length=2, max_length=MAX_ENDPOINTS)


class RankingBudgetInput(Input):
    """Limits for all endpoints together. Calls in flight are still paid."""

    items: Count | None = None
    """Maximum number of items. Default: half of `max_items` per endpoint."""
    usd: Positive | None = None
    tokens: Annotated[int, Field(ge=1, le=2**53)] | None = None


class RankingCreate(OnBank):
    """Endpoints or named examinees to rank on one bank, and the rules of the ranking."""

    model_config = examples(
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
    )

    endpoints: Annotated[list[ChosenEndpoint], _SEVERAL] | None = None
    """Endpoints to rank: at least two, each only once."""
    examinees: Annotated[list[Examinee], _SEVERAL] | None = None
    """Named examinees to rank by hand, instead of endpoints. Their client fetches `next-items`."""
    preset: RankingPreset | None = Field(default=None, strict=False)
    """A published ranking; it sets the fields that are left out."""
    metric: Metric = Field(default=Metric.SCORE, strict=False)
    """Rank by the score, or by ability (`theta`), which takes fewer questions."""
    decision: RankingDecision = Field(default=_RULES.decision, strict=False)
    """`planned_looks`: a pair is decided at a few looks planned in advance. `one_look`: after any
    answer, as if it were the only look. It then separates equal models several times as often."""
    allocation: Literal["variance_per_cost"] = "variance_per_cost"
    """The next model to ask is the one whose variance falls most for the price."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = _RULES.confidence
    """Confidence with which a pair is decided."""
    correction: Literal["none", "holm"] = "none"
    """`holm`: the confidence is for all pairs together. `none`: for each pair."""
    min_items: Count = _RULES.min_items
    """Scored answers of each endpoint before any pair is decided."""
    max_items: Count = _RULES.max_items
    """Maximum number of items for one endpoint."""
    tie_width: Annotated[float, Field(ge=0, le=50)] = _RULES.tie_width
    """Difference that does not matter: a share of the score, or logits."""
    futility: Annotated[float, Field(ge=0, lt=0.5)] = _RULES.futility
    """Give up a pair that all remaining items would decide with at most this probability."""
    shared_items: bool = _RULES.shared_items
    """Prefer items that a rival has answered."""
    budget: RankingBudgetInput = Field(default_factory=RankingBudgetInput)
    estimator: EstimatorInput | None = None
    selection: SelectionInput | None = None
    prediction: PredictionInput | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] = CONCURRENCY
    """Items in flight at once, for each endpoint."""
    failures: FailuresInput | None = None
    answer_within: Patience | None = None
    """When ranked by hand: seconds until a pending item is closed as `error`, as in a manual
    session."""
    idle_timeout: Patience | None = None
    """When ranked by hand: seconds of silence until the whole ranking ends, as for a manual
    session."""
    prompt: PromptChange = Field(default_factory=PromptChange)
    """Prompt settings for all endpoints that differ from the bank's."""
    seed: Seed | None = None
    """Random seed. By default one is drawn; it is shown in the result."""
    metadata: Metadata = Field(default_factory=dict)

    _one_of_both = exactly_one("endpoints", "examinees")

    @model_validator(mode="after")
    def _asks_or_is_asked(self) -> Self:
        if self.examinees and self.prompt.model_dump(exclude_none=True):
            raise ValueError(
                "a ranking of examinees takes no prompt: the client asks the questions"
            )
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
                *(self.examinees or ()),
            ],
            rules=convert(RankingRules, self, holm=self.correction == "holm"),
            budget=convert(RankingBudget, self.budget),
            prompt=self.prompt.changes(),
            asking={name: section for name, section in asking.items() if section is not None},
        )


class RankingJoin(ChosenEndpoint):
    """One more endpoint, or named examinee, for a completed ranking."""

    model_config = examples({"endpoint_id": "end_01jd0000000000000000000002"})

    budget: RankingBudgetInput = Field(default_factory=RankingBudgetInput)
    """Limits for the new member. `items` is `max_items` by default."""
    examinee: Examinee | None = None
    """For a ranking by hand: the examinee who joins."""

    _one_of_both = exactly_one("endpoint", "endpoint_id", "examinee")


class RankingRead(WorkRead):
    """One ranking: its state and its results so far."""

    id: str
    object: Literal["ranking"] = "ranking"
    metric: Metric
    """Metric that ranks: the score, or the ability."""
    status: WorkStatus
    self_reported: bool
    """Whether a client reports the answers."""
    bank: BankAsked
    order: list[RankedFigures]
    """Members by descending score or theta; empty before the first step."""
    ties: list[list[str]]
    """Ids of endpoints that are statistically tied."""
    pairs: list[RankedPair]
    decided: bool
    """Whether every pair of neighbours is decided."""
    progress: StepsFigures
    usage: CallsFigures
    rules: Annotated[JsonObject, ShownAs(RankingRules)]
    budget: Annotated[JsonObject, ShownAs(RankingBudgetInput)]
    asking: DesignRead
    """Design of the test of each endpoint."""
    seed: int
    stop_reason: StopReason | None
    stop_detail: str | None
    failure: FailureRead | None
    waiting_until: datetime | None
    """Time when a waiting ranking continues."""
    waiting_reason: str | None
    """Why the ranking is waiting."""
    metadata: dict[str, str]

    @classmethod
    def of(cls, record: RankingRecord, view: View) -> Self:
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
                "bank": shallow(record),
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
