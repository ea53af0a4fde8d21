"""Tables. One class a table, `*Row`; only `app/storage` sees them."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = dict[str, Any]


class Base(DeclarativeBase):
    """Declarative base with the constraint names that migrations rely on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy's own class-level protocol)
        str: Text(),
        datetime: DateTime(timezone=True),
        Json: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text()),
        list[float]: ARRAY(DOUBLE_PRECISION()),
        float: DOUBLE_PRECISION(),
        bytes: LargeBinary(),
    }


_EMPTY_OBJECT = text("'{}'::jsonb")
_EMPTY_TEXTS = text("'{}'::text[]")


class ApiKeyRow(Base):
    """A bearer key of our own API; only the hash of the secret is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    prefix: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class EndpointRow(Base):
    """A language model that can be called. Secrets are stored encrypted."""

    __tablename__ = "endpoints"
    __table_args__ = (
        Index(
            "uq_endpoints_name_live",
            "name",
            unique=True,
            postgresql_where=text("name IS NOT NULL AND archived_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    kind: Mapped[str]
    base_url: Mapped[str]
    model: Mapped[str]
    api_key_cipher: Mapped[bytes | None]
    headers_cipher: Mapped[bytes | None]
    header_names: Mapped[list[str]] = mapped_column(server_default=_EMPTY_TEXTS)
    sampling: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    reasoning: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    limits: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    price: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    retry: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    options: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    timeout_s: Mapped[float]
    details: Mapped[Json] = mapped_column("metadata", server_default=_EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    archived_at: Mapped[datetime | None]
    #: Rate limits shared by all workers: the moment the next call may start (requests, tokens).
    next_request_at: Mapped[datetime | None]
    next_token_at: Mapped[datetime | None]


class BankRow(Base):
    """A named collection of items with the way they are put and marked."""

    __tablename__ = "banks"
    __table_args__ = (
        Index(
            "uq_banks_name_live", "name", unique=True, postgresql_where=text("archived_at IS NULL")
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    licence: Mapped[str | None]
    source: Mapped[str | None]
    visibility: Mapped[str] = mapped_column(server_default="open")
    default_scorer: Mapped[Json]
    prompt: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    unparsed_policy: Mapped[str] = mapped_column(server_default="missing")
    #: Items in pretest that a session is given if it does not say how many.
    pretest_items: Mapped[int] = mapped_column(server_default=text("0"))
    details: Mapped[Json] = mapped_column("metadata", server_default=_EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    archived_at: Mapped[datetime | None]


class ItemRow(Base):
    """One item of a bank. Frozen once a bank version holds it."""

    __tablename__ = "items"
    __table_args__ = (UniqueConstraint("bank_id", "key"), Index(None, "bank_id", "content_hash"))

    id: Mapped[str] = mapped_column(primary_key=True)
    bank_id: Mapped[str] = mapped_column(ForeignKey("banks.id", ondelete="CASCADE"))
    key: Mapped[str]
    content: Mapped[Json]
    scorer: Mapped[Json | None]
    tags: Mapped[list[str]] = mapped_column(server_default=_EMPTY_TEXTS)
    group_key: Mapped[str | None]
    expected_tokens_in: Mapped[int | None]
    expected_tokens_out: Mapped[int | None]
    content_hash: Mapped[str]
    #: Sessions that were given the item while it was in pretest: the rarest comes next.
    pretest_sessions: Mapped[int] = mapped_column(server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class BankVersionRow(Base):
    """Immutable: the items with parameters, scale, hash and findings."""

    __tablename__ = "bank_versions"
    __table_args__ = (UniqueConstraint("bank_id", "number"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    bank_id: Mapped[str] = mapped_column(ForeignKey("banks.id", ondelete="CASCADE"))
    number: Mapped[int]
    response_model: Mapped[str]
    scale: Mapped[str]
    parameters_hash: Mapped[str]
    provisional: Mapped[bool]
    notes: Mapped[str] = mapped_column(server_default="")
    lint: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    extras: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    knowledge: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    n_items: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class VersionItemRow(Base):
    """Parameters of one item in one version; `position` is the engine's ItemIndex."""

    __tablename__ = "version_items"
    __table_args__ = (
        CheckConstraint("status IN ('active', 'quarantined', 'pretest')", name="status"),
    )

    version_id: Mapped[str] = mapped_column(
        ForeignKey("bank_versions.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    item_id: Mapped[str] = mapped_column(ForeignKey("items.id", ondelete="CASCADE"), index=True)
    a: Mapped[float]
    intercept: Mapped[float]
    c: Mapped[float]
    d: Mapped[float]
    #: Dispersion; null where the version's scores are right or wrong.
    k: Mapped[float | None]
    loadings: Mapped[list[float] | None]
    status: Mapped[str]
    flags: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))


class SessionRow(Base):
    """One adaptive test (`CatSession`): its design, where it stands, and who runs it."""

    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'waiting', 'paused', 'awaiting_response', "
            "'completed', 'failed', 'cancelled')",
            name="status",
        ),
        Index(None, "status", "lease_expires_at"),
        Index(None, "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str]
    status: Mapped[str]
    endpoint_id: Mapped[str | None] = mapped_column(ForeignKey("endpoints.id"), index=True)
    bank_version_id: Mapped[str] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    design: Mapped[Json]
    seed: Mapped[int] = mapped_column(BigInteger)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("sessions.id"), index=True)
    relation: Mapped[str | None]
    #: A member of a ranking is asked by the ranking's worker, under the ranking's lease.
    ranking_id: Mapped[str | None] = mapped_column(ForeignKey("rankings.id"), index=True)
    ranking_member: Mapped[int | None]
    details: Mapped[Json] = mapped_column("metadata", server_default=_EMPTY_OBJECT)
    provenance: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)

    lease_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    #: How often in a row the lease ran out without a step.
    lapses: Mapped[int] = mapped_column(server_default=text("0"))
    lease_expires_at: Mapped[datetime | None]
    worker_id: Mapped[str | None]
    waiting_until: Mapped[datetime | None]
    waiting_reason: Mapped[str | None]

    #: The running figures that `GET` shows: estimate, accuracy, usage, outcomes, person fit.
    summary: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    stop_reason: Mapped[str | None]
    stop_detail: Mapped[str | None]
    precision_reached: Mapped[bool | None]
    failure: Mapped[Json | None]
    #: Number of answers closed so far, and of events written: the next ones count from here.
    arrivals: Mapped[int] = mapped_column(server_default=text("0"))
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))
    #: Seconds the session has been worked on, over all leases; the budget in seconds counts these.
    active_s: Mapped[float] = mapped_column(server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class RankingRow(Base):
    """Several endpoints on one bank version, ranked; each is a session with this `ranking_id`."""

    __tablename__ = "rankings"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    bank_version_id: Mapped[str] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    #: Rules, shared budget, and how each endpoint is asked.
    settings: Mapped[Json]
    seed: Mapped[int] = mapped_column(BigInteger)
    details: Mapped[Json] = mapped_column("metadata", server_default=_EMPTY_OBJECT)
    status: Mapped[str]

    lease_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    #: How often in a row the lease ran out without a step.
    lapses: Mapped[int] = mapped_column(server_default=text("0"))
    lease_expires_at: Mapped[datetime | None]
    worker_id: Mapped[str | None]

    #: The figures that `GET` shows: order, pairs, ties, progress, usage.
    summary: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    stop_reason: Mapped[str | None]
    stop_detail: Mapped[str | None]
    failure: Mapped[Json | None]
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class RankingEventRow(Base):
    """Something that happened in a ranking; `seq` is the id of the server-sent event."""

    __tablename__ = "ranking_events"

    ranking_id: Mapped[str] = mapped_column(
        ForeignKey("rankings.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AdministrationRow(Base):
    """One item put to the examinee in one session: asked, then closed with an outcome."""

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
    #: Order in which answers were closed, from 1; null while the answer is awaited.
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
    #: Of name and parameters of the scorer that marked.
    scorer_hash: Mapped[str | None]
    #: Of scorers that call out: judgements, the judge's version, what it cost.
    marking: Mapped[Json | None]
    answered_at: Mapped[datetime | None]


class SessionEventRow(Base):
    """What happened in a session, in order; `seq` is the server-sent event's id."""

    __tablename__ = "session_events"

    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class GateRow(Base):
    """A session held against a threshold; the outcome follows from the session."""

    __tablename__ = "gates"

    id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), index=True
    )
    metric: Mapped[str]
    tag: Mapped[str | None]
    threshold: Mapped[float]
    direction: Mapped[str]
    confidence: Mapped[float]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class IdempotencyRow(Base):
    """The first answer to a creating call, kept so that a repeat gets the same one."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[str]
    response_status: Mapped[int | None]
    response_headers: Mapped[Json | None]
    response_body: Mapped[bytes | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


class SecretCanaryRow(Base):
    """A known text, encrypted at first start: tells whether the present key is the right one."""

    __tablename__ = "secret_canary"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cipher: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ResponseSetRow(Base):
    """Recorded answers of many examinees to many items, with the figures that lists show."""

    __tablename__ = "response_sets"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    details: Mapped[Json] = mapped_column("metadata", server_default=_EMPTY_OBJECT)
    n_examinees: Mapped[int] = mapped_column(server_default=text("0"))
    n_items: Mapped[int] = mapped_column(server_default=text("0"))
    n_sheets: Mapped[int] = mapped_column(server_default=text("0"))
    outcomes: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    imports: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ResponseItemRow(Base):
    """An item of a response set; `position` is its place in the bytes of every answer sheet."""

    __tablename__ = "response_items"
    __table_args__ = (UniqueConstraint("set_id", "key"),)

    set_id: Mapped[str] = mapped_column(
        ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str]


class AnswerSheetRow(Base):
    """All answers of one examinee in one trial: a byte an item, and the scores no byte stands for.

    A row for each of the answers would be 19 million rows where this is 3,467.
    """

    __tablename__ = "answer_sheets"

    set_id: Mapped[str] = mapped_column(
        ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True
    )
    examinee: Mapped[str] = mapped_column(primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True)
    #: Order of the examinees: that of their first import.
    position: Mapped[int]
    codes: Mapped[bytes]
    fractions: Mapped[bytes | None]


class CollectedSessionRow(Base):
    """A session whose answers a response set has taken over: they come in once."""

    __tablename__ = "collected_sessions"

    set_id: Mapped[str] = mapped_column(
        ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True
    )
    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, index=True
    )


class CalibrationRow(Base):
    """Item parameters being estimated from a response set: where it stands, and who runs it."""

    __tablename__ = "calibrations"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    #: A set in use stays: without its answers nobody could tell where the parameters come from.
    response_set_id: Mapped[str] = mapped_column(ForeignKey("response_sets.id"), index=True)
    #: A part of another calibration: one set of its items, run by whichever worker is free.
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("calibrations.id", ondelete="CASCADE"), index=True
    )
    #: Which part this is, from 0; and how many parts this calibration has, None where none.
    part: Mapped[int | None]
    n_parts: Mapped[int | None]
    #: Events so far.
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))
    #: The version that the calibration was published as.
    bank_id: Mapped[str | None] = mapped_column(ForeignKey("banks.id"), index=True)
    bank_version_id: Mapped[str | None] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    settings: Mapped[Json]
    status: Mapped[str]

    lease_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    #: How often in a row the lease ran out without a step.
    lapses: Mapped[int] = mapped_column(server_default=text("0"))
    lease_expires_at: Mapped[datetime | None]
    worker_id: Mapped[str | None]

    progress: Mapped[Json] = mapped_column(server_default=_EMPTY_OBJECT)
    result: Mapped[Json | None]
    item_keys: Mapped[list[str] | None] = mapped_column(deferred=True)
    #: Names of the columns of `item_values`; None in rows older than this column.
    item_columns: Mapped[list[str] | None] = mapped_column(deferred=True)
    #: Parameters, standard errors and fit of the items, float64 little-endian, column by column.
    item_values: Mapped[bytes | None] = mapped_column(deferred=True)
    #: Whole-bank abilities: theta, its SE and the mean score, float64 as above.
    examinee_names: Mapped[list[str] | None] = mapped_column(deferred=True)
    examinee_values: Mapped[bytes | None] = mapped_column(deferred=True)
    failure: Mapped[Json | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class CalibrationEventRow(Base):
    """What happened in a calibration, in order; `seq` is the server-sent event's id."""

    __tablename__ = "calibration_events"

    calibration_id: Mapped[str] = mapped_column(
        ForeignKey("calibrations.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
