"""Rankings as stored; the REST API returns their figures in this form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from app.items import JsonObject
from app.records.fields import Interval
from app.records.figures import CallsFigures, ExtrapolationFigures, ScoreFigures, StepsFigures
from app.records.leased import Failure, LeasedRecord
from app.records.sessions import Advance, Plan, PromptChanges, SessionEvent


class RankedFigures(StepsFigures):
    """One endpoint's place. Models in one tie group are statistically tied."""

    endpoint_id: Annotated[str, Field(description="Of a named examinee, too: as on leaderboards.")]
    name: str | None
    model: str
    session_id: Annotated[str, Field(description="Its answers.")]
    rank_lo: Annotated[
        int, Field(description="Best rank that the decided pairs leave open; 1 is best.")
    ]
    rank_hi: Annotated[int, Field(description="Worst such rank.")]
    group: Annotated[
        int | None,
        Field(description="Tie group, counted from the top; null for who was left behind."),
    ]
    left_behind: NotRequired[
        Annotated[
            str | None,
            Field(
                default=None,
                description="Why it gave too few answers to be placed: it may have any rank.",
            ),
        ]
    ]
    theta: Annotated[
        float | None, Field(description="Null while fewer than five answers are scored.")
    ]
    se: float | None
    interval: NotRequired[
        Annotated[
            Interval | None,
            Field(
                default=None,
                description="95 % interval of theta, as its session tells it; null where it was "
                "not kept.",
            ),
        ]
    ]
    score: NotRequired[
        Annotated[
            ScoreFigures | None,
            Field(
                default=None,
                description="The score by now; null where it was not kept, as `theta`.",
            ),
        ]
    ]
    reason: NotRequired[
        Annotated[
            str | None,
            Field(default=None, description="Why there is no theta, and so no rank."),
        ]
    ]
    extrapolation: NotRequired[
        Annotated[
            ExtrapolationFigures | None,
            Field(
                default=None,
                description="Where it stands among the reference models; null: unknown.",
            ),
        ]
    ]
    usd: Annotated[float | None, Field(description="What it cost; null where a price is unknown.")]


class RankedPair(TypedDict):
    """Two endpoints by id, `a` with more of the metric; nobody who was left behind is in one."""

    a: str
    b: str
    p_a_above_b: Annotated[float, Field(description="From their posteriors, as if looked at once.")]
    p_value: Annotated[
        float,
        Field(description="At most the probability that equals are that far apart at any look."),
    ]
    decided: bool


class RankingFigures(TypedDict, total=False):
    """Figures of a ranking; empty before its first step."""

    order: list[RankedFigures]
    pairs: list[RankedPair]
    ties: list[list[str]]
    decided: bool
    progress: StepsFigures
    usage: CallsFigures
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
