"""Sessions as stored: plan, provenance, answers, figures; and who answers by hand.

A named examinee is stored as an endpoint that nobody calls, so that leaderboards, comparisons and
collected answers treat both alike. Its kind tells it from endpoints with the same name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired

from pydantic import StringConstraints
from typing_extensions import TypedDict

from app.items import JsonObject
from app.records.endpoints import SELF_REPORTED, EndpointSettings
from app.records.figures import NOT_TOLD, Marking, Method, SessionFigures
from app.records.leased import Failure, LeasedRecord
from app.shapes import Metadata, Name, Text, Value

SessionState = Literal[
    "queued",
    "running",
    "waiting",
    "paused",
    "awaiting_response",
    "completed",
    "failed",
    "cancelled",
]
#: Relation of a rescoring session to the session whose answers it scores.
REPLAY, RESCORE = "replay", "rescore"
#: Relations of sessions that repeat the answers of others, and so have no result of their own.
REPEATING = (REPLAY, RESCORE)
#: States in which a worker may hold the session.
UNDERWAY = ("queued", "running", "waiting")

#: How answers were obtained, as far as known: `mode`, `shots`, `scorer`, ...
AskedJson = dict[str, str | float | None]


class Plan(TypedDict, total=False):
    """How a session is run: the sections of a design, and settings beyond it."""

    preset: str
    estimator: JsonObject
    selection: JsonObject
    stopping: JsonObject
    prediction: JsonObject
    budget: JsonObject
    concurrency: int
    failures: JsonObject
    pretest: JsonObject
    repeats: int
    cache: bool
    answer_within: float
    idle_timeout: float


class PromptChanges(TypedDict, total=False):
    """Prompt settings of a session that differ from those of its bank."""

    mode: Literal["generate", "loglikelihood"]
    shots: int
    system: str


class Asking(TypedDict):
    """How items are asked and scored, fixed for the whole session."""

    bank_revision: int
    prompt: JsonObject
    wanted_mode: NotRequired[str | None]
    default_scorer: JsonObject
    unparsed_policy: str


class Origin(TypedDict):
    """The called endpoint, or an examinee that answers by hand, with fewer fields."""

    id: str
    revision: int
    name: str | None
    kind: str
    model: str
    options: JsonObject
    base_url: NotRequired[str]
    sampling: NotRequired[JsonObject]
    price: NotRequired[dict[str, float | None]]
    reasoning_tags: NotRequired[list[str]]
    parameters_hash: NotRequired[str]


class Conditions(TypedDict):
    """How the items of a session were asked."""

    asked: NotRequired[AskedJson]
    asking: Asking


class Provenance(Conditions):
    """Origin of a session's result: code, bank version, examinee and settings."""

    code_version: str
    bank: str
    bank_version_id: str
    bank_version: int
    parameters_hash: str
    scale: str
    response_model: str
    provisional: bool
    uncertainty: NotRequired[str]
    n_items: int
    n_never_asked: NotRequired[int]
    n_uncalibrated: NotRequired[int]
    asked_when_calibrated: NotRequired[AskedJson]
    unparsed_when_calibrated: NotRequired[str | None]
    prompt_template_hash: str
    endpoint: Origin | None
    scorer_endpoints: NotRequired[dict[str, Origin]]
    private_endpoints: bool
    seed: int
    reachable_se: NotRequired[float]
    left_out: NotRequired[int]
    dropped: NotRequired[list[JsonObject]]
    rescored_with: NotRequired[JsonObject | None]


_Word = Annotated[Text, StringConstraints(min_length=1, max_length=500)]


class ExamineeKind(StrEnum):
    """Kind of a named examinee."""

    MODEL = "model"
    AGENT = "agent"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examinee(Value):
    """The examinee of a manual session. Sessions with the same name belong to the same examinee."""

    name: Name
    """Belongs to the key that first used it; other keys need the scope `admin`."""
    kind: ExamineeKind = ExamineeKind.MODEL
    model: _Word | None = None
    """Model that answers, or that an agent uses."""
    scaffold: _Word | None = None
    """Program that drives the model; model and scaffold make the agent."""
    settings: Metadata = field(default_factory=dict)

    def as_endpoint(self) -> EndpointSettings:
        """The endpoint that the examinee is stored as."""
        told = {"kind": self.kind.value, "scaffold": self.scaffold, "settings": dict(self.settings)}
        return EndpointSettings(
            kind=SELF_REPORTED, name=self.name, model=self.model or "", options=told
        )

    def described(self) -> str:
        """Description in words, without the name."""
        told = {"model": self.model, "scaffold": self.scaffold, **self.settings}
        parts = [f"{name} {value}" for name, value in told.items() if value is not None]
        article = "an" if self.kind is ExamineeKind.AGENT else "a"
        return f"{article} {self.kind.value}" + (f" ({', '.join(parts)})" if parts else "")


def examinee_of_endpoint(settings: EndpointSettings) -> Examinee:
    """The examinee that `Examinee.as_endpoint` made these settings of."""
    return _examinee(settings.name or "", settings.model, settings.options)


def _examinee(name: str, model: str, options: Mapping[str, Any]) -> Examinee:
    return Examinee(
        name=name,
        kind=ExamineeKind(options["kind"]),
        model=model or None,
        scaffold=options["scaffold"],
        settings=options["settings"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(LeasedRecord):
    """One session as stored; names as in the table `sessions`.

    Attributes:
        bank_visibility: Present visibility of the bank.
        withheld: Whether its bank is withheld, or the bank of a session whose answers it took over.
        join: Verdict of the project's sessions on whether the version's parameters belong to its
            questions; None where no session has ended.
        stops_when: When the design ends the test, in words, so that a list need not parse designs.
    """

    mode: str
    endpoint_id: str | None
    endpoint_name: str | None
    endpoint_model: str | None
    bank_version_id: str
    bank_id: str
    bank_name: str
    bank_version: int
    bank_visibility: str
    bank_deleted: bool
    withheld: bool
    join: str | None
    design: Plan
    stops_when: str
    seed: int
    parent_id: str | None
    relation: str | None
    ranking_id: str | None
    ranking_member: int | None
    metadata: dict[str, str]
    provenance: Provenance
    waiting_until: datetime | None
    waiting_reason: str | None
    summary: SessionFigures
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    arrivals: int
    event_seq: int
    active_s: float
    revision: int

    @property
    def examinee(self) -> Examinee | None:
        """The examinee that answers by hand, if one was named."""
        origin = self.provenance.get("endpoint")
        if self.mode != "manual" or origin is None or origin["kind"] != SELF_REPORTED:
            return None
        return _examinee(origin["name"] or "", origin["model"], origin["options"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Filter of sessions; a field that is None or empty leaves it open.

    Attributes:
        examinee: Name of the endpoint, or of the examinee that answers by hand.
        model: Model that was asked, or that answered.
        metadata: Pairs that the session's metadata must all contain.
        since: Earliest time of creation.
        before: Time before which the session was created.
    """

    status: str | None = None
    endpoint_id: str | None = None
    bank_id: str | None = None
    examinee: str | None = None
    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    before: datetime | None = None


ALL_SESSIONS = SessionFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """Values that a session is created with."""

    id: str
    mode: str
    status: str
    endpoint_id: str | None
    bank_version_id: str
    design: Plan
    stops_when: str
    seed: int
    parent_id: str | None = None
    relation: str | None = None
    ranking_id: str | None = None
    ranking_member: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    provenance: Provenance
    active_s: float = 0.0


#: Fields of how an answer was obtained and scored that meters and budgets count.
_COUNTS = {"marking": tuple(Marking.__annotations__), "method": ("usage", "cached")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The end of one administered item: its outcome, and the details of the answer.

    Attributes:
        scorer_hash: SHA-256 of name and parameters of the scorer that scored the answer; None
            where no scorer did, or where the answer is older than this field.
        marking: For scorers that make calls: the judgements, the judge's version and the cost.
        method: How the answer was obtained, where it was not written and read once, such as from
            the likelihoods of the options.
    """

    outcome: str
    score: float | None = None
    extracted: str | None = None
    extractor: str | None = None
    reason: str | None = None
    error_code: str | None = None
    answer_text: str | None = None
    raw_text: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    latency_ms: float | None = None
    attempts: int | None = None
    theta: float | None = None
    se: float | None = None
    scorer_hash: str | None = None
    marking: Marking | None = None
    method: Method | None = None

    @property
    def reported(self) -> "Closing":
        """This closing without what was only reserved, where no usage was reported."""
        if self.method is None or self.method.get("usage") != NOT_TOLD:
            return self
        return replace(self, tokens_in=None, tokens_out=None, usd=None)

    def effort(self) -> JsonObject:
        """What it took, as fields of a closing; no text, which would outlast its retention."""
        names = ("outcome", "attempts", "tokens_in", "tokens_out", "usd")
        took = {name: value for name in names if (value := getattr(self, name)) is not None}
        for name, counts in _COUNTS.items():
            if (given := getattr(self, name)) is not None:
                took[name] = {key: given[key] for key in counts if key in given}
        return took


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedItem:
    """An item that the examinee will be asked.

    The step sampled it with `probability`; None where this was not recorded.
    """

    step: int
    position: int
    information: float | None = None
    probability: float | None = None
    step_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration(SelectedItem):
    """One item of a session: asked at `step`, closed as number `arrival` (None: still pending)."""

    asked_at: datetime
    arrival: int | None
    answered_at: datetime | None
    closing: Closing | None


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An event to be stored."""

    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a session ended."""

    status: str
    stop_reason: str
    stop_detail: str
    precision_reached: bool | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One step of a session: answers closed, items asked, events, and the figures after it.

    Attributes:
        closed: Step -> end of its item, in order of arrival.
        asked: New items, in order of asking.
        events: Events of the step, in order.
        summary: Figures of the session after the step.
        status: State after the step; an `ending` overrides it.
        active_s: Seconds of work on the session so far.
        ending: End of the session, if the step ended it.
    """

    closed: Mapping[int, Closing] = field(default_factory=dict)
    asked: Sequence[SelectedItem] = ()
    events: Sequence[SessionEvent] = ()
    summary: SessionFigures
    status: str = "running"
    active_s: float = 0.0
    ending: Ending | None = None
