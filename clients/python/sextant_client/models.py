"""Requests and replies of the API, with the fields that most programs need.

Other fields are ignored; `request` of a client returns all fields.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of all models: a frozen value."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Interval(Model):
    """Interval for a true value, at confidence `level`; an open end is None."""

    lo: float | None
    hi: float | None
    level: float


class Examinee(Model):
    """A named examinee of manual tests. Sessions with the same name belong to the same one.

    `kind` is `model`, `agent` or `person`; an agent is a model and a scaffold. The name belongs to
    the API key that first used it.
    """

    name: str
    kind: str = "model"
    model: str | None = None
    scaffold: str | None = None
    settings: dict[str, str] = Field(default_factory=dict)


class Answer(Model):
    """One answer: exactly one of `response`, `score` and `outcome`, and its cost.

    The server scores a `response`. A `score` is from 0 to 1. An `outcome` says why there is no
    score; it does not count as wrong, except `unparsed` if the policy of the session says so.
    `text` is the text of the answer, in addition to a score or an outcome.
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
    """An item as the examinee should see it; only its key if the bank is withheld."""

    id: str
    prompt: str | None
    messages: list[dict[str, str]]
    choices: list[str]


class Item(Model):
    """An item whose answer is pending; `step_token` names the step that is answered.

    In a manual ranking, `session_id` is where to answer it, and `examinee` who answers.
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
    """The mean over all questions of the bank, either predicted with a 95 % interval, or known."""

    value: float
    interval: Interval | None
    equivalent_random_items: int | None = None
    method: str


class Trust(Model):
    """How far to trust a score (`good`, `fair`, `poor`), and the reason that matters most."""

    level: str
    reason: str


class Headline(Model):
    """The most important figures of a result; unknown ones are None."""

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
    """Numbers of items: closed, scored, in flight, and expected in all."""

    items: int
    scored: int
    in_flight: int
    expected_items: int | None = None


class Calls(Model):
    """Cost of calls; a sum is None if a part of it is unknown."""

    calls: int
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None

    @property
    def tokens(self) -> int | None:
        """Tokens of prompts and answers."""
        if self.tokens_in is None or self.tokens_out is None:
            return None
        return self.tokens_in + self.tokens_out


class Usage(Calls):
    """Cost so far; `at_most` counts reservations where an endpoint reported no usage."""

    seconds: float | None = None
    at_most: Calls | None = None


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
    """Work that runs until it ends: a session, a ranking, a calibration."""

    id: str
    status: str
    failure: Failure | None = None
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended and will not change any more."""
        return self.status in ("completed", "failed", "cancelled")


class Session(Work):
    """One adaptive test: its state and its results so far."""

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
        """Whether it is a manual test that waits for answers."""
        return self.status == "awaiting_response"


class Answered(Session):
    """A session after an answer. Items asked before `next_items` are still pending."""

    next_items: list[Item]


class Response(Model):
    """One item of a session; `outcome` is None while its answer is pending."""

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
    """One event; `seq` is its number, from which to continue."""

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
    """A ranking of several endpoints, best first; `ties` has ids of tied endpoints."""

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
    """A calibration: estimates item parameters from recorded answers."""

    response_set_id: str
    bank_id: str | None
    bank_version_id: str | None
    publication_failure: Failure | None


class Gate(Model):
    """A session compared with a threshold: `outcome` is `go`, `no_go` or `inconclusive`."""

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
    """Which items a bank has: keys by what was requested, and what is missing."""

    matched: dict[str, list[str]]
    missing: list[str]


class Entry(Model):
    """The present result of one endpoint, or of one named examinee."""

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
    trust: Trust | None = None
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
    """A difference, first minus second, with its interval at the requested confidence."""

    delta: float
    se: float | None
    interval: Interval | None
    p_value: float
    items_to_decide: int | None
    verdict: str


class Comparison(Model):
    """First compared with second: by score, on common items and by ability."""

    confidence: float
    n_common: int
    score: Difference | None
    common: Difference | None
    theta: Difference | None
    reason: str | None = None
    caution: str | None = None
