"""What the API takes and tells, as far as most programs read it.

Fields that a newer server tells beside these are ignored; `request` of a client has all of them.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

#: In which a session, a ranking or a calibration goes on by itself no more.
_ENDED = frozenset({"completed", "failed", "cancelled"})


class Model(BaseModel):
    """Base of all: a value."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Sent(Model):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Examinee(_Sent):
    """Who answers by hand; sessions of one name are one examinee's.

    Attributes:
        name: Belongs to the API key that first used it.
        kind: What it is.
        model: That answers, or that an agent drives.
        scaffold: What drives the model: an agent is model and scaffold.
        settings: Up to 16 string pairs.
    """

    name: str
    kind: Literal["model", "agent", "person"] = "model"
    model: str | None = None
    scaffold: str | None = None
    settings: dict[str, str] = Field(default_factory=dict)


class Answer(_Sent):
    """One answer: exactly one of `response`, `score` and `outcome`, and what it took.

    Attributes:
        response: Its text, which the server marks.
        score: From 0 to 1.
        outcome: Why there is no score; none of these is a wrong answer.
        text: What was answered, beside a score or an outcome.
        tokens_in: Read by the model.
        tokens_out: Written by it.
        usd: What it cost.
        seconds: How long it took.
        finish_reason: As the model's provider says it.
        explanation: Of the score.
        link: Where there is more about it: http or https.
        metadata: Up to 16 string pairs.
    """

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


class Message(Model):
    """One turn of a conversation."""

    role: str
    content: str


class ItemContent(Model):
    """An item as the examinee is to see it; its key alone where the bank is withheld."""

    id: str
    prompt: str | None
    messages: list[Message]
    choices: list[str]


class Item(Model):
    """An item whose answer is awaited; `step_token` names the step that is answered."""

    step: int
    step_token: str
    item: ItemContent


class Estimate(Model):
    """Ability in logits with its 95 % interval; `reason` says why there is none yet."""

    theta: float | None
    se: float | None
    ci: tuple[float | None, float | None]
    reason: str | None = None


class Score(Model):
    """The mean over all questions of the bank, predicted with its 95 % interval, or known."""

    value: float
    lo: float | None
    hi: float | None
    equivalent_random_items: int | None = None
    method: str


class Trust(Model):
    """How far to trust a score, and the one reason that matters most."""

    level: str
    reason: str


class Headline(Model):
    """The few figures of a result that people pass on; what is not known is None."""

    examinee: str
    bank: str
    score: float
    lo: float | None
    hi: float | None
    answers: str | None
    asked: int
    n_items: int
    equivalent_random_items: int | None
    usd: float | None
    usd_all: float | None
    trust: Trust
    better_than: float | None
    theta: float | None
    se: float | None


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


class Outcomes(Model):
    """Closed items by outcome; only `scored` ones entered the estimate."""

    scored: int
    unparsed: int
    refused: int
    error: int
    truncated: int


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
    """What goes on by itself until it has ended."""

    id: str
    status: str
    failure: Failure | None = None
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in _ENDED


class Session(Work):
    """One adaptive test: where it stands and what is known so far."""

    mode: str
    bank: BankOf
    endpoint: EndpointOf | None
    examinee: Examinee | None
    self_reported: bool
    headline: Headline | None
    estimate: Estimate
    accuracy: Score | None
    progress: Progress
    usage: Usage
    outcomes: Outcomes
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
