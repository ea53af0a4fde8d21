"""What the session repository takes and returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.records.examinees import Examinee, examinee_in
from app.records.leased import LeasedRecord

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
#: States in which a worker may hold the session.
UNDERWAY = ("queued", "running", "waiting")
#: States that never change again.
ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(LeasedRecord):
    """One session as stored; names as in the table `sessions`.

    Attributes:
        bank_visibility: As of its bank by now.
        withheld: Its bank is withheld, or that of a session whose answers it took over.
        stops_when: What ends the test by its design, in words: a list parses no design.
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
    withheld: bool
    design: dict[str, Any]
    stops_when: str
    seed: int
    parent_id: str | None
    relation: str | None
    ranking_id: str | None
    ranking_member: int | None
    metadata: dict[str, str]
    provenance: dict[str, Any]
    waiting_until: datetime | None
    waiting_reason: str | None
    summary: dict[str, Any]
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    arrivals: int
    event_seq: int
    active_s: float
    revision: int

    @property
    def examinee(self) -> Examinee | None:
        """Who answers by hand, where somebody was named."""
        return examinee_in(self.provenance) if self.mode == "manual" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are wanted; what is None or empty is left open.

    Attributes:
        endpoint_id: Of this endpoint.
        examinee: Of the endpoint, or of who answers by hand, of this name.
        model: That was asked, or that answered.
        metadata: With all of these pairs.
        since: Made at this moment or later.
        before: Made earlier.
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
    """What a session is created with."""

    id: str
    mode: str
    status: str
    endpoint_id: str | None
    bank_version_id: str
    design: dict[str, Any]
    stops_when: str
    seed: int
    parent_id: str | None = None
    relation: str | None = None
    ranking_id: str | None = None
    ranking_member: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    active_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The end of one administered item: its outcome and everything that came with it.

    Attributes:
        scorer_hash: SHA-256 of name and parameters of the scorer that really marked the answer;
            None where no scorer did, or where the answer is older than this field.
        marking: Of scorers that call out: the judgements, the judge's version, what it cost.
        method: How the answer was obtained, where not written and read once: the likelihoods of
            the options, for instance.
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
    marking: dict[str, Any] | None = None
    method: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """One item of a session: asked at `step`, closed as number `arrival` (None: still awaited).

    Its step drew it with `probability`; None where nobody noted that.
    """

    step: int
    position: int
    asked_at: datetime
    step_token: str | None
    information: float | None
    probability: float | None = None
    arrival: int | None
    answered_at: datetime | None
    closing: Closing | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedItem:
    """An item about to be put to the examinee."""

    step: int
    position: int
    information: float | None = None
    probability: float | None = None
    step_token: str | None = None


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that happened; `seq` counts from 1 within its session."""

    type: str
    data: dict[str, Any]
    seq: int = 0
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a session ended."""

    status: str
    stop_reason: str
    stop_detail: str
    precision_reached: bool | None
    failure: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One step forward: answers closed, items asked, events, and the figures after it.

    Attributes:
        closed: Step -> how it ended, in order of arrival.
        asked: New items, in order of asking.
        events: In order.
        summary: The running figures of the session.
        status: State after the step; an `ending` overrides it.
        active_s: Seconds worked on so far.
        ending: Given when the session is over.
    """

    closed: Mapping[int, Closing] = field(default_factory=dict)
    asked: Sequence[SelectedItem] = ()
    events: Sequence[SessionEvent] = ()
    summary: dict[str, Any]
    status: str = "running"
    active_s: float = 0.0
    ending: Ending | None = None
