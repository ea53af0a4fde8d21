"""Tables of sessions, rankings, gates and baselines."""

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.acting import owner
from app.storage.rows.base import (
    EMPTY_OBJECT,
    Base,
    EventRow,
    IdentifiedRow,
    Json,
    LeasedRow,
    OwnedRow,
    leased_table,
)

#: Condition for sessions with a result of their own, all but those `REPEATING` others, as indexed.
OWN_RESULT = "(relation IS NULL OR relation = 'extend')"


class SessionRow(LeasedRow):
    """One adaptive test: its design, its progress, and its lease."""

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'waiting', 'paused', 'awaiting_response', "
            "'completed', 'failed', 'cancelled')",
            name="status",
        ),
        Index(None, "status", "lease_expires_at"),
        Index("ix_sessions_project_id", "project_id", "id"),
        Index(None, "created_at", "id"),
        Index(
            "ix_sessions_results",
            "bank_version_id",
            "endpoint_id",
            text("finished_at DESC"),
            postgresql_where=text(
                f"status = 'completed' AND endpoint_id IS NOT NULL AND {OWN_RESULT}"
            ),
        ),
        Index(
            "ix_sessions_open",
            "project_id",
            "created_by",
            "id",
            postgresql_where=text("finished_at IS NULL"),
        ),
    )

    mode: Mapped[str]
    endpoint_id: Mapped[str | None] = mapped_column(ForeignKey("endpoints.id"), index=True)
    bank_version_id: Mapped[str] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    design: Mapped[Json]
    stops_when: Mapped[str] = mapped_column(server_default="")
    seed: Mapped[int] = mapped_column(BigInteger)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"), index=True)
    relation: Mapped[str | None]
    #: Set for members of a ranking, which are asked by the ranking's worker, or by its client.
    ranking_id: Mapped[str | None] = mapped_column(ForeignKey("rankings.id"), index=True)
    ranking_member: Mapped[int | None]
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    provenance: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)

    waiting_until: Mapped[datetime | None]
    waiting_reason: Mapped[str | None]

    #: Present figures, as `GET` shows them: estimate, score, usage, outcomes, person fit.
    summary: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    stop_reason: Mapped[str | None]
    stop_detail: Mapped[str | None]
    precision_reached: Mapped[bool | None]
    failure: Mapped[Json | None]
    #: Number of answers closed so far, and of events written; numbering continues from here.
    arrivals: Mapped[int] = mapped_column(server_default=text("0"))
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))
    #: Working time of the session over all leases, seconds; the budget in seconds limits it.
    active_s: Mapped[float] = mapped_column(server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))


class RankingRow(LeasedRow):
    """Ranking of several endpoints on one bank version; each has a session with `ranking_id`."""

    __tablename__ = "rankings"
    __table_args__ = leased_table("rankings")

    bank_version_id: Mapped[str] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    #: Rules, shared budget, and how each endpoint is asked.
    settings: Mapped[Json]
    seed: Mapped[int] = mapped_column(BigInteger)
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)

    #: Present figures, as `GET` shows them: order, pairs, ties, progress, usage.
    summary: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    stop_reason: Mapped[str | None]
    stop_detail: Mapped[str | None]
    failure: Mapped[Json | None]
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))


class RankingEventRow(EventRow):
    """An event of a ranking."""

    __tablename__ = "ranking_events"

    ranking_id: Mapped[str] = mapped_column(
        ForeignKey("rankings.id", ondelete="CASCADE"), primary_key=True
    )


class AdministrationRow(Base):
    """One item asked in one session, and later closed with an outcome."""

    __tablename__ = "administrations"
    __table_args__ = (
        UniqueConstraint("session_id", "position"),
        CheckConstraint("(arrival IS NULL) = (outcome IS NULL)", name="closed"),
    )

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )
    step: Mapped[int] = mapped_column(primary_key=True)
    position: Mapped[int]
    step_token: Mapped[str | None]
    asked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    information: Mapped[float | None]
    #: Sampling probability of the item in its step, given the items before; 1 if not sampled.
    probability: Mapped[float | None]
    #: Number of the answer in order of closing, from 1; null while the answer is awaited.
    arrival: Mapped[int | None]
    outcome: Mapped[str | None]
    score: Mapped[float | None]
    extracted: Mapped[str | None]
    extractor: Mapped[str | None]
    reason: Mapped[str | None]
    error_code: Mapped[str | None]
    answer_text: Mapped[str | None]
    raw_text: Mapped[str | None]
    reasoning: Mapped[str | None]
    finish_reason: Mapped[str | None]
    tokens_in: Mapped[int | None]
    tokens_out: Mapped[int | None]
    usd: Mapped[float | None]
    latency_ms: Mapped[float | None]
    attempts: Mapped[int | None]
    theta: Mapped[float | None]
    se: Mapped[float | None]
    #: Hash of name and parameters of the scorer.
    scorer_hash: Mapped[str | None]
    #: For scorers that call endpoints: judgements, version of the judge, cost.
    marking: Mapped[Json | None]
    #: How the answer was obtained, unless it was generated and read once.
    method: Mapped[Json | None]
    answered_at: Mapped[datetime | None]


class SessionEventRow(EventRow):
    """An event of a session."""

    __tablename__ = "session_events"

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )


class GateRow(IdentifiedRow, OwnedRow):
    """Comparison of a session with a threshold; the outcome is computed from the session."""

    __tablename__ = "gates"

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), index=True
    )
    metric: Mapped[str]
    tag: Mapped[str | None]
    threshold: Mapped[float]
    direction: Mapped[str]
    confidence: Mapped[float]
    #: The baseline of the comparison, as it was when the gate was made.
    baseline: Mapped[Json | None]
    baseline_name: Mapped[str | None]


class BaselineRow(OwnedRow):
    """Named baseline with which later sessions are compared."""

    __tablename__ = "baselines"

    project_id: Mapped[str] = mapped_column(
        ForeignKey("projects.id"), default=owner, primary_key=True
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    baseline: Mapped[Json]
    set_at: Mapped[datetime] = mapped_column(server_default=func.now())
