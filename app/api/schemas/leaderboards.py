"""Leaderboards as JSON."""

from datetime import datetime
from typing import Literal

from app.api.schemas.common import MetricName, Output
from app.api.schemas.sessions.sessions import SessionEndpoint, endpoint_of
from app.records.fields import Interval, interval, shallow
from app.records.figures import ExtrapolationFigures, LatencyFigures, ScoreFigures
from app.records.sessions import Examinee
from app.services.results.leaderboards import Board, Entry, Leaderboard, Unranked
from app.services.sessions.figures import effort_of


class LeaderboardEntry(Output):
    """The present result of one endpoint, or of one named examinee who answers by hand."""

    rank_lo: int
    """Best rank that is still possible; 1 is best."""
    rank_hi: int
    """Worst rank that is still possible."""
    group: int
    """Number of the tie group. Models in one group are statistically tied; `rank_lo` and `rank_hi`
    are the possible ranks of each."""
    endpoint: SessionEndpoint
    examinee: Examinee | None
    """Named examinee who answered by hand; null for an endpoint."""
    self_reported: bool
    """Whether a client reported the answers."""
    session_id: str
    bank_version: int
    provisional: bool
    theta: float | None
    """Null if the answers have no finite estimate."""
    se: float | None
    interval: Interval | None
    """95 % interval of theta."""
    score: ScoreFigures | None
    """Score on the questions that have parameters."""
    extrapolation: ExtrapolationFigures | None
    """Position among the reference models."""
    items: int
    stop_reason: str | None
    precision_reached: bool | None
    tokens: int
    usd: float | None
    usd_per_item: float | None
    """Cost per question, US dollars."""
    latency_ms: LatencyFigures | None
    """Latency of the answers."""
    judge_usd: float | None
    """Cost of judges and of other scorers that make calls, US dollars."""
    finished_at: datetime | None

    @classmethod
    def of(cls, entry: Entry) -> "LeaderboardEntry":
        """From the service's value."""
        record = entry.session
        usage, progress = record.summary["usage"], record.summary["progress"]
        judge = usage.get("judge")
        return cls.model_validate(
            {
                **shallow(record),
                **shallow(entry.result),
                **shallow(entry),
                "interval": interval(*entry.result.interval),
                "endpoint": endpoint_of(record),
                "examinee": record.examinee,
                "self_reported": record.mode == "manual",
                "session_id": record.id,
                "provisional": record.provenance["provisional"],
                "items": progress["items"],
                "tokens": usage["tokens_in"] + usage["tokens_out"],
                "usd": usage["usd"],
                "judge_usd": judge and judge["usd"],
                **effort_of(record.summary),
            }
        )


class UnrankedEntry(Output):
    """An endpoint whose last sessions have no result, and therefore no rank."""

    endpoint: SessionEndpoint
    session_id: str
    reason: str
    finished_at: datetime | None

    @classmethod
    def of(cls, entry: Unranked) -> "UnrankedEntry":
        """From the service's value."""
        record = entry.session
        at = {"endpoint": endpoint_of(record), "session_id": record.id}
        return cls.model_validate({**shallow(record), **at, "reason": entry.reason})


class BoardRead(Output):
    """Results on one scale, best first."""

    scale: str
    data: list[LeaderboardEntry]
    unranked: list[UnrankedEntry]
    """Endpoints whose last sessions have too few scored answers for a result."""
    caution: str | None = None
    """How these sessions were asked differently, whether many of their answers have no score, and
    which questions the scores exclude."""

    @classmethod
    def of(cls, board: Board) -> "BoardRead":
        """From the service's value."""
        return cls(
            scale=board.scale,
            data=[LeaderboardEntry.of(entry) for entry in board.entries],
            unranked=[UnrankedEntry.of(entry) for entry in board.unranked],
            caution=board.caution,
        )


class LeaderboardRead(BoardRead):
    """Results on the scale of the bank's latest version, and separately those on other scales."""

    object: Literal["leaderboard"] = "leaderboard"
    bank_id: str
    bank: str
    metric: MetricName
    """Metric of the ranks."""
    confidence: float
    """Confidence with which neighbouring groups differ."""
    other_scales: list[BoardRead]
    """Results on older scales. Their thetas cannot be compared with the others."""

    @classmethod
    def of_bank(cls, found: Leaderboard) -> "LeaderboardRead":
        """From the service's value."""
        return cls(
            **dict(BoardRead.of(found.board)),
            bank_id=found.bank.id,
            bank=found.bank.name,
            metric=found.metric,
            confidence=found.confidence,
            other_scales=[BoardRead.of(other) for other in found.others],
        )
