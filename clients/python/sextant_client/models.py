"""What the API takes and tells, as far as most programs read it.

Fields that a server tells beside these are ignored; `request` of a client has all of them.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of all: a value."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Interval(Model):
    """Where the true value lies, with the confidence `level`; an open end is None."""

    lo: float | None
    hi: float | None
    level: float


class Examinee(Model):
    """Who answers by hand; sessions of one name are one examinee's. An agent is model and scaffold.

    `kind` is `model`, `agent` or `person`; the name belongs to the API key that first used it.
    """

    name: str
    kind: str = "model"
    model: str | None = None
    scaffold: str | None = None
    settings: dict[str, str] = Field(default_factory=dict)


class Answer(Model):
    """One answer: exactly one of `response`, `score` and `outcome`, and what it took.

    The server marks a `response`; a `score` is from 0 to 1; an `outcome` says why there is none,
    and is no wrong answer. `text` is what was answered, beside a score or an outcome.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    response: str | None = None
    score: float | None = None
    outcome: Literal["unparsed", "refused", "error", "truncated"] | None = None
    text: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    seconds: float | None = None
    finish_reason: str | None = None
    explanation: str | None = None
    link: str | None = None
    metadata: dict[str, str] = Field(default_factory=dict)


class ItemContent(Model):
    """An item as the examinee is to see it; its key alone where the bank is withheld."""

    id: str
    prompt: str | None
    messages: list[dict[str, str]]
    choices: list[str]


class Item(Model):
    """An item whose answer is awaited; `step_token` names the step that is answered.

    In a ranking by hand, `session_id` says where to answer it, and `examinee` who does.
    """

    session_id: str
    examinee: str | None = None
    step: int
    step_token: str
    item: ItemContent


class Estimate(Model):
    """Ability in logits with its 95 % interval; `reason` says why there is none yet."""

    theta: float | None
    se: float | None
    interval: Interval | None
    reason: str | None = None


class Score(Model):
    """The mean over all questions of the bank, predicted with its 95 % interval, or known."""

    value: float
    interval: Interval | None
    equivalent_random_items: int | None = None
    method: str


class Trust(Model):
    """How far to trust a score (`good`, `fair`, `poor`), and the reason that matters most."""

    level: str
    reason: str


class Headline(Model):
    """The few figures of a result that people pass on; what is not known is None."""

    examinee: str
    bank: str
    score: float
    interval: Interval | None
    answers: str | None
    asked: int
    n_items: int
    equivalent_random_items: int | None
    usd: float | None
    trust: Trust
    better_than: float | None


class Progress(Model):
    """Items that are closed, marked and awaited, and how many it may be in all."""

    items: int
    scored: int
    in_flight: int
    expected_items: int | None = None


class Usage(Model):
    """What it took; `usd` is None where a price or a token count is unknown."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None
    seconds: float | None = None


class Failure(Model):
    """Why something failed."""

    code: str
    detail: str


class BankOf(Model):
    """The bank version that is asked from."""

    id: str
    name: str
    version: int
    version_id: str


class EndpointOf(Model):
    """The endpoint that is asked."""

    id: str | None
    name: str | None
    model: str | None


class Work(Model):
    """What goes on until it has ended: a session, a ranking, a calibration."""

    id: str
    status: str
    failure: Failure | None = None
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("completed", "failed", "cancelled")


class Session(Work):
    """One adaptive test: where it stands and what is known so far."""

    mode: str
    bank: BankOf
    endpoint: EndpointOf | None
    examinee: Examinee | None
    self_reported: bool
    headline: Headline | None
    estimate: Estimate
    score: Score | None
    progress: Progress
    usage: Usage
    outcomes: dict[str, int]
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    stops_when: str
    seed: int
    parent_id: str | None
    metadata: dict[str, str]

    @property
    def awaits_answers(self) -> bool:
        """Whether it is a test by hand that asks for more."""
        return self.status == "awaiting_response"


class Answered(Session):
    """A session after an answer; items asked before `next_items` are awaited still."""

    next_items: list[Item]


class Response(Model):
    """One item of a session; `outcome` is None while its answer is awaited."""

    step: int
    item_id: str
    arrival: int | None
    outcome: str | None
    score: float | None
    answer: str | None
    reason: str | None
    error_code: str | None
    theta: float | None
    se: float | None
    usd: float | None


class Event(Model):
    """One thing that happened; `seq` says where to go on."""

    seq: int
    type: str
    data: dict[str, Any]


class Ranked(Model):
    """One endpoint or examinee of a ranking; 1 is the best rank."""

    endpoint_id: str
    name: str | None
    model: str
    session_id: str
    rank_lo: int
    rank_hi: int
    group: int | None
    left_behind: str | None
    theta: float | None
    se: float | None
    score: Score | None
    items: int
    usd: float | None


class Ranking(Work):
    """Several endpoints on one budget, best first; `ties` has ids of endpoints."""

    metric: str
    self_reported: bool
    bank: BankOf
    order: list[Ranked]
    ties: list[list[str]]
    decided: bool
    progress: Progress
    usage: Usage
    stop_reason: str | None
    stop_detail: str | None
    metadata: dict[str, str]


class Calibration(Work):
    """From recorded answers to item parameters."""

    response_set_id: str
    bank_id: str | None
    bank_version_id: str | None
    publication_failure: Failure | None


class Gate(Model):
    """A session held against a threshold: `outcome` is `go`, `no_go` or `inconclusive`."""

    id: str
    status: str
    outcome: str | None
    detail: str
    session_id: str
    metric: str
    threshold: float
    direction: str
    confidence: float
    baseline: str | None
    value: float | None
    interval: Interval | None
    margin: float | None
    p_beyond: float | None


class Version(Model):
    """One version of a bank."""

    id: str
    number: int
    response_model: str
    scale: str
    provisional: bool
    n_items: int


class Bank(Model):
    """A stored bank."""

    id: str
    name: str
    description: str
    visibility: str
    n_items: int
    latest_version: Version | None


class Match(Model):
    """Which items a bank has: keys by what was asked for, and what none has."""

    matched: dict[str, list[str]]
    missing: list[str]


class Entry(Model):
    """The newest precise result of one endpoint, or of one who answers by hand under a name."""

    rank_lo: int
    rank_hi: int
    group: int
    endpoint: EndpointOf
    examinee: Examinee | None
    self_reported: bool
    session_id: str
    theta: float | None
    se: float | None
    score: Score | None
    items: int
    usd: float | None


class Leaderboard(Model):
    """Results on a bank, best first, on the scale of its latest version."""

    bank: str
    scale: str
    metric: str
    data: list[Entry]
    caution: str | None = None


class Difference(Model):
    """First minus second, with its interval at the asked confidence."""

    delta: float
    se: float | None
    interval: Interval | None
    p_value: float
    items_to_decide: int | None
    verdict: str


class Comparison(Model):
    """First against second: by the score, on common items and in ability."""

    confidence: float
    n_common: int
    score: Difference | None
    common: Difference | None
    theta: Difference | None
    reason: str | None = None
    caution: str | None = None
