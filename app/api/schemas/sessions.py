"""Sessions as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypeAliasType

from app.adapters.prompting import Mode
from app.api.schemas.banks import ScorerModel
from app.api.schemas.designs import DesignInput, DesignRead, EstimatorInput, PredictionInput
from app.api.schemas.endpoints import EndpointCreate
from app.api.schemas.versions import AskedModel, LongText, UnparsedPolicy
from app.engine import StopReason
from app.items import JsonObject
from app.records.fields import Interval, convert, shallow
from app.records.figures import (
    EstimateFigures,
    Outcomes,
    PersonFitFigures,
    PretestFigures,
    ProfileFigures,
    ProgressFigures,
    RepeatsFigures,
    RescoreFigures,
    ScoreFigures,
    UsageFigures,
)
from app.records.leased import ENDED
from app.records.sessions import Examinee, Plan, PromptChanges, SessionRecord, SessionState
from app.reports.figures import Headline, TrustLevel, asked_caution, unparsed_caution
from app.reports.headline import headline_of
from app.services.banks.spec import MAX_PER_SESSION
from app.services.sessions.drafts import SessionSpec
from app.services.sessions.plan import MAX_REPEATS, nothing_to_ask
from app.services.visibility import View
from app.shapes import FailureRead, Input, Metadata, Name, OnBank, Output, WorkRead, examples

SessionStatus = TypeAliasType("SessionStatus", SessionState)
SessionMode = TypeAliasType("SessionMode", Literal["live", "manual"])
Relation = TypeAliasType("Relation", Literal["extend", "replay", "rescore"])
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
#: Characters of a name in a brief.
_SHORT = 60
Patience = Annotated[float, Field(gt=0, le=30 * 86_400)]


class PretestInput(Input):
    """Pretest items: items without parameters that are asked beside the test."""

    items_per_session: Annotated[int, Field(ge=0, le=MAX_PER_SESSION)]
    """Maximum number of pretest items. Those that were asked least often so far come first. They
    are scored, stored and paid, and count towards the budget, but not towards `max_items`, theta,
    the score or the limits on failures."""


class PromptChange(Input):
    """Prompt settings that differ from the bank's; the result names them. Null: as the bank."""

    mode: Mode | None = None
    """`loglikelihood` compares the likelihoods of the options under the model; `generate` reads a
    written answer."""
    shots: Annotated[int, Field(ge=0, le=100)] | None = None
    """Number of the bank's examples to use, from the first."""
    system: LongText | None = None
    """System prompt; an empty text for none."""

    def changes(self) -> PromptChanges:
        """The same for the service."""
        return cast(PromptChanges, self.model_dump(exclude_none=True))


class SessionCreate(DesignInput, OnBank):
    """One adaptive test: the examinee, the bank and the design."""

    model_config = examples(
        {
            "bank": "demo",
            "endpoint": {
                "kind": "openai_chat",
                "base_url": "http://127.0.0.1:8080/v1",
                "model": "my-model",
                "api_key": "sk-...",
            },
            "stopping": {"score_margin": 0.04, "max_items": 60},
            "budget": {"tokens": 50000},
        },
        {
            "mode": "manual",
            "bank": "demo",
            "examinee": {
                "name": "my-agent",
                "kind": "agent",
                "model": "my-model",
                "scaffold": "my-scaffold 1.2",
            },
            "stopping": {"max_items": 20},
            "seed": 1,
        },
    )

    mode: SessionMode = "live"
    """`live`: the server asks an endpoint; `manual`: the client answers."""
    endpoint_id: Name | None = None
    """Id of a saved endpoint."""
    endpoint: EndpointCreate | None = None
    """An endpoint that is not saved yet; it is stored with the session."""
    examinee: Examinee | None = None
    """For a manual session: the examinee who answers."""
    pretest: PretestInput | None = None
    """Default: the `pretest_items` of the bank."""
    unparsed_policy: UnparsedPolicy | None = None
    """Default: as when the version was calibrated; if unknown, as the bank."""
    prompt: PromptChange = Field(default_factory=PromptChange)
    """Prompt settings that differ from the bank's."""
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    """Number of times that each item is asked; the mean score counts as one answer. The SE is
    therefore rather too large. Every repeat is paid."""
    cache: bool = False
    """Keep answers for 30 days, and use a kept answer instead of a call if endpoint, credentials,
    request and number of the repeat are the same."""
    answer_within: Patience | None = None
    """For a manual session: seconds until a pending item is closed as `error` and another one is
    asked."""
    idle_timeout: Patience | None = None
    """For a manual session: seconds without any event, such as an answer, until it ends as
    `cancelled`, with its results so far."""
    seed: Seed | None = None
    """Random seed. By default one is drawn; it is shown in the result."""
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        endpoints = (self.endpoint_id is not None) + (self.endpoint is not None)
        if self.mode == "live" and endpoints != 1:
            raise ValueError("a live session takes exactly one of endpoint and endpoint_id")
        if self.mode == "manual" and endpoints:
            raise ValueError("a manual session takes no endpoint: name who answers as its examinee")
        if self.mode == "live" and self.examinee:
            raise ValueError("a live session takes no examinee: its endpoint answers")
        if self.mode == "manual" and self.prompt.model_dump(exclude_none=True):
            raise ValueError("a manual session takes no prompt: the client asks the questions")
        return self

    def to_domain(self) -> SessionSpec:
        """As the service takes it."""
        endpoint = self.endpoint.to_spec() if self.endpoint else None
        said = {"endpoint": endpoint, "plan": self.plan(), "prompt": self.prompt.changes()}
        return convert(SessionSpec, self, **said)


class SessionExtend(DesignInput):
    """A new session that continues an ended one.

    Sections that are given replace the old ones. Of `stopping`, rules that are not given stay,
    except a goal that was reached (with it `any_of` and `all_of`), and `se` and `score_margin`
    where one of them is given. `min_items` is at most a new `max_items`.
    """

    metadata: Metadata = Field(default_factory=dict)


class SessionReplay(Input):
    """A new session that estimates again from the answers of an ended one."""

    estimator: EstimatorInput | None = None
    prediction: PredictionInput | None = None
    bank_version_id: Name | None = None
    metadata: Metadata = Field(default_factory=dict)

    def changes(self) -> Plan:
        """The sections of the design to replace."""
        sections = {"estimator", "prediction"}
        return cast(Plan, self.model_dump(include=sections, exclude_none=True))


class SessionRescore(Input):
    """A new session that scores the answers of an ended one again."""

    model_config = examples({"scorer": {"name": "exact", "params": {"ignore_case": False}}})

    scorer: ScorerModel | None = None
    """Scorer for every answer. Default: the present scorer of each item."""
    metadata: Metadata = Field(default_factory=dict)


class BankAsked(Output):
    """The bank of a session or ranking, and its version."""

    id: str = Field(validation_alias="bank_id")
    name: str = Field(validation_alias="bank_name")
    version: int = Field(validation_alias="bank_version")
    version_id: str = Field(validation_alias="bank_version_id")


class SessionBank(BankAsked):
    """The bank of a session, and how many of its items can be asked."""

    # Older sessions lack some fields; the answer never does.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    n_items: int
    """Number of items that tests may ask."""
    n_never_asked: int = 0
    """Number of quarantined items. No test asks them; the score of the whole bank includes them,
    predicted from the other items."""
    n_uncalibrated: int = 0
    """Number of questions without parameters: new ones, or left out of the calibration. The score
    excludes them."""
    scale: str
    provisional: bool
    uncertainty: str | None = None
    """How uncertain the item parameters were, in words; null: well known."""


class SessionEndpoint(Output):
    """The endpoint that is asked."""

    id: str = Field(validation_alias="endpoint_id")
    name: str | None = Field(validation_alias="endpoint_name")
    model: str = Field(validation_alias="endpoint_model")


class UnparsedRead(Output):
    """How unparseable answers count."""

    policy: UnparsedPolicy
    """Policy of this session."""
    when_calibrated: UnparsedPolicy | None
    """Policy when the version's parameters were estimated; null if unknown."""
    caution: str | None
    """What the difference means for the result; null if there is none."""


class AskedRead(Output):
    """How items are asked, and how they were when the bank was calibrated."""

    mode: Mode | None
    """Null in manual sessions and in older sessions."""
    shots: int | None
    """Number of examples before each item."""
    when_calibrated: AskedModel
    """How the answers behind the parameters were obtained; null fields are unknown."""
    caution: str | None
    """What the difference means for the result; null if there is none."""


class SessionRead(WorkRead):
    """One session: its state and its results so far."""

    id: str
    object: Literal["session"] = "session"
    mode: SessionMode
    status: SessionStatus
    bank: SessionBank
    endpoint: SessionEndpoint | None
    examinee: Examinee | None
    """Named examinee of a manual session."""
    self_reported: bool
    """Whether a client reported the answers."""
    headline: Headline | None
    """Null until there is a score."""
    estimate: EstimateFigures
    score: ScoreFigures | None
    profile: ProfileFigures | None
    """Null if the bank measures one ability."""
    progress: ProgressFigures
    usage: UsageFigures
    outcomes: Outcomes
    pretest: PretestFigures | None
    """Null in sessions older than this field."""
    repeats: RepeatsFigures | None
    """Null if each item is asked once."""
    person_fit: PersonFitFigures | None
    rescore: RescoreFigures | None
    stop_reason: StopReason | None
    stop_detail: str | None
    precision_reached: bool | None
    """Whether the result is as precise as `se` and `score_margin` ask; null if neither is set."""
    nothing_to_ask: str | None
    """Why an extension with the same limits on failures could ask nothing. Null if it could, or
    while the session runs. Budget, time and goals do not count."""
    failure: FailureRead | None
    waiting_until: datetime | None
    waiting_reason: str | None
    design: DesignRead
    stops_when: str
    """When the test ends by its design, in words."""
    unparsed: UnparsedRead
    asked: AskedRead
    seed: int
    parent_id: str | None
    relation: Relation | None
    ranking_id: str | None
    """Ranking that the session belongs to; null if none."""
    provenance: JsonObject
    metadata: dict[str, str]

    @classmethod
    def of(cls, record: SessionRecord, view: View, **more: Any) -> Self:
        """From the stored session, and further fields of a shape that is made of this one."""
        record = view.session(record)
        stored, provenance, headline = shallow(record), record.provenance, headline_of(record)
        asked, known = provenance.get("asked", {}), provenance.get("asked_when_calibrated", {})
        policy = provenance["asking"]["unparsed_policy"]
        usual = provenance.get("unparsed_when_calibrated")
        return cls.model_validate(
            {
                **stored,
                "bank": {**provenance, **stored},
                "endpoint": None
                if record.endpoint_id is None or record.mode == "manual"
                else stored,
                "examinee": record.examinee,
                "self_reported": record.mode == "manual",
                "profile": None,
                "pretest": None,
                "repeats": None,
                "person_fit": None,
                "rescore": None,
                **record.summary,
                "headline": headline,
                "nothing_to_ask": nothing_to_ask(record) if record.status in ENDED else None,
                "asked": {
                    "mode": asked.get("mode"),
                    "shots": asked.get("shots"),
                    "when_calibrated": {
                        name: each
                        for name, each in known.items()
                        if name in AskedModel.model_fields
                    },
                    "caution": asked_caution(asked, known),
                },
                "unparsed": {
                    "policy": policy,
                    "when_calibrated": usual,
                    "caution": unparsed_caution(policy, usual),
                },
                **more,
            }
        )


class SessionBrief(Output):
    """The same in a few hundred characters, for agents that pay for every token."""

    id: str
    status: SessionStatus
    examinee: str | None
    bank: str
    """Its name, with the tags that the score is about if it is not the whole bank."""
    items: int
    """Number of closed items."""
    expected_items: int | None
    score: float | None
    """Null until there is one."""
    interval: Interval | None
    """95 % interval of the score; null if every question was asked."""
    equivalent_random_items: int | None
    trust: TrustLevel | None
    theta: float | None
    se: float | None
    usd: float | None
    stop_reason: StopReason | None

    @classmethod
    def of(cls, record: SessionRecord, view: View) -> "SessionBrief":
        """From the stored session."""
        record = view.session(record)
        figures, headline = record.summary, headline_of(record)
        name = record.endpoint_name or record.endpoint_model
        about = headline.bank if headline else record.bank_name
        return cls.model_validate(
            {
                **shallow(record),
                **figures["progress"],
                **figures["estimate"],
                "examinee": name and name[:_SHORT],
                "bank": about[:_SHORT],
                "score": headline and headline.score,
                "interval": headline and headline.interval,
                "equivalent_random_items": headline and headline.equivalent_random_items,
                "trust": headline and headline.trust.level,
                "usd": figures["usage"]["usd"],
            }
        )
