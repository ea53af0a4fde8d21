"""Rankings as stored; the REST API returns their figures in this form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from app.items import JsonObject
from app.records.fields import Interval
from app.records.figures import ExtrapolationFigures, ScoreFigures, SpentFigures, StepsFigures
from app.records.leased import Failure, LeasedRecord
from app.records.sessions import Advance, Plan, PromptChanges, SessionEvent


class RankedFigures(StepsFigures):
    """Rank of one endpoint. Endpoints in the same tie group are statistically tied."""

    endpoint_id: str
    """Id of the endpoint. Named examinees have one, too."""
    name: str | None
    model: str
    session_id: str
    """Session with its answers."""
    rank_lo: int
    """Best rank that the decided pairs allow; 1 is best."""
    rank_hi: int
    """Worst rank that the decided pairs allow."""
    group: int | None
    """Number of the tie group, 1 for the best; null if the endpoint has no rank (`left_behind`)."""
    left_behind: NotRequired[Annotated[str | None, Field(default=None)]]
    """Why the endpoint has no rank: it gave too few answers. It could have any rank. Null if it has
    one."""
    theta: float | None
    """Null until five answers are scored, and where theta is withheld."""
    se: float | None
    interval: NotRequired[Annotated[Interval | None, Field(default=None)]]
    """95 % interval of theta, as in its session; null if it was not stored."""
    score: NotRequired[Annotated[ScoreFigures | None, Field(default=None)]]
    """Current score; null below five scored answers, or if not stored."""
    reason: NotRequired[Annotated[str | None, Field(default=None)]]
    """Why there is no theta, and therefore no rank."""
    extrapolation: NotRequired[Annotated[ExtrapolationFigures | None, Field(default=None)]]
    """Position among the reference models; null if unknown."""
    usd: float | None
    """Cost in US dollars; null if a price is unknown."""


class RankedPair(TypedDict):
    """Two endpoints by id, `a` with the higher metric. Endpoints without a rank are in no pair."""

    a: str
    b: str
    p_a_above_b: float
    """Probability that `a` is better, from both posteriors, as if they were compared only once."""
    p_value: float
    """Upper bound of the probability that equal endpoints differ so much at any of the looks, in
    either direction. Without `holm`, each of two equal ones comes out above the other with a
    probability of at most 1 - `confidence`."""
    decided: bool


class RankingFigures(TypedDict, total=False):
    """Figures of a ranking; empty before its first step."""

    order: list[RankedFigures]
    pairs: list[RankedPair]
    ties: list[list[str]]
    decided: bool
    progress: StepsFigures
    usage: SpentFigures
    waiting_until: str | None
    waiting_reason: str | None


class RankingSettings(TypedDict):
    """Settings of a ranking."""

    rules: JsonObject
    budget: JsonObject
    asking: Plan
    prompt: PromptChanges
    by_hand: NotRequired[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRecord(LeasedRecord):
    """One ranking as stored; names as in the table `rankings`.

    Attributes:
        withheld: Whether the bank of the ranking is withheld.
    """

    bank_version_id: str
    bank_id: str
    bank_name: str
    bank_version: int
    bank_deleted: bool
    withheld: bool
    settings: RankingSettings
    seed: int
    metadata: dict[str, str]
    summary: RankingFigures
    stop_reason: str | None
    stop_detail: str | None
    event_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingEnd:
    """How a ranking ended."""

    status: str
    stop_reason: str
    stop_detail: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingStep:
    """One step of a ranking, with the steps of its members by session id."""

    summary: RankingFigures
    events: Sequence[SessionEvent] = ()
    end: RankingEnd | None = None
    members: Mapping[str, Advance] = field(default_factory=dict)
