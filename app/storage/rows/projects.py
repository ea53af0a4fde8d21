"""Tables of projects, keys, endpoints, webhooks, spending, stored answers and the audit trail."""

from datetime import date, datetime

from sqlalchemy import BigInteger, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.acting import maker, owner
from app.storage.rows.base import EMPTY_OBJECT, EMPTY_TEXTS, Base, IdentifiedRow, Json, OwnedRow


class ApiKeyRow(IdentifiedRow):
    """A bearer key of Sextant's API; only the hash of its secret is stored."""

    __tablename__ = "api_keys"

    #: Null for a key that belongs to no project and may name any.
    project_id: Mapped[str | None] = mapped_column(
        ForeignKey("projects.id", ondelete="CASCADE"), index=True
    )
    created_by: Mapped[str | None] = mapped_column(default=maker)
    name: Mapped[str]
    prefix: Mapped[str]
    secret_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class LoginRow(Base):
    """A browser login with an API key; only the hash of its cookie is stored."""

    __tablename__ = "logins"

    token_hash: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]


class EndpointRow(IdentifiedRow, OwnedRow):
    """A language model that can be called. Secrets are stored encrypted."""

    __tablename__ = "endpoints"
    __table_args__ = (
        Index(
            "uq_endpoints_name_live",
            "project_id",
            "name",
            text("(kind = 'self_reported')"),
            unique=True,
            postgresql_where=text("name IS NOT NULL AND archived_at IS NULL"),
        ),
    )

    name: Mapped[str | None]
    kind: Mapped[str]
    base_url: Mapped[str]
    model: Mapped[str]
    api_key_cipher: Mapped[bytes | None]
    headers_cipher: Mapped[bytes | None]
    header_names: Mapped[list[str]] = mapped_column(server_default=EMPTY_TEXTS)
    sampling: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    reasoning: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    price: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    retry: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    options: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    timeout_s: Mapped[float]
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    archived_at: Mapped[datetime | None]
    #: Earliest start of the next call by the rate limits (requests, tokens) that workers share.
    next_request_at: Mapped[datetime | None]
    next_token_at: Mapped[datetime | None]


class WebhookRow(IdentifiedRow, OwnedRow):
    """An address that a project has notified when work ends. The secret is stored encrypted.

    Triggers queue deliveries: see the migration `webhooks`.
    """

    __tablename__ = "webhooks"
    __table_args__ = (Index("ix_webhooks_project_id", "project_id", "id"),)

    url: Mapped[str]
    events: Mapped[list[str]]
    secret_cipher: Mapped[bytes]
    #: Whether loopback and private addresses were allowed on the server that made it.
    calls_private: Mapped[bool]
    disabled_at: Mapped[datetime | None]


class DeliveryRow(IdentifiedRow):
    """Delivery of one event to one webhook; its id is the same in all attempts."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index("ix_webhook_deliveries_webhook_id", "webhook_id", "id"),
        Index(
            "ix_webhook_deliveries_due",
            "webhook_id",
            "due_at",
            postgresql_where=text("due_at IS NOT NULL"),
        ),
    )

    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    type: Mapped[str]
    data: Mapped[Json]
    #: Number of attempts begun. Each attempt moves `due_at` before its call, so that no other
    #: worker makes it at the same time, and the next attempt follows if its worker is killed.
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    #: Earliest time of the next attempt; null if delivered or given up.
    due_at: Mapped[datetime | None] = mapped_column(server_default=func.now())
    delivered_at: Mapped[datetime | None]
    status_code: Mapped[int | None]
    error: Mapped[str | None]


class IdempotencyRow(Base):
    """The first answer to a creating call, stored so that a repeat gets the same answer."""

    __tablename__ = "idempotency_keys"

    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_hash: Mapped[str]
    #: Id of the first call's row in the audit trail, which exists if the call changed anything.
    audit_id: Mapped[str | None]
    response_status: Mapped[int | None]
    response_headers: Mapped[dict[str, str] | None]
    response_body: Mapped[bytes | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


class KeptAnswerRow(Base):
    """A cached answer of an endpoint, by a hash of the call: address, credentials, body, repeat."""

    __tablename__ = "kept_answers"

    key: Mapped[str] = mapped_column(primary_key=True)
    #: Project of the call; the answer is kept as long as other texts of the project.
    project_id: Mapped[str] = mapped_column(
        ForeignKey("projects.id", ondelete="CASCADE"), index=True, default=owner
    )
    answer: Mapped[Json]
    #: Session of the call, with which the answer is removed; null in rows older than this column.
    session_id: Mapped[str | None] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), index=True
    )
    created_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)


class SecretCanaryRow(Base):
    """A known encrypted text, written at first start, which verifies the present secret key."""

    __tablename__ = "secret_canary"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    cipher: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ProjectRow(IdentifiedRow):
    """A project, to which resources belong; one project always exists, see `app.acting`."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    #: Limits of the project, and retention times of its data.
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    retention: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    #: As `created_by` of its resources; also null for projects from before this was stored.
    created_by: Mapped[str | None]
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AuditRow(Base):
    """Who changed what, when, and from where. Rows are only added, and removed after retention.

    A trigger refuses other changes. There are no foreign keys, as changed resources may be removed.
    """

    __tablename__ = "audit"
    __table_args__ = (
        Index(None, "project_id", "id"),
        Index(None, "key_id", "id"),
        Index(None, "action", "id"),
        Index("ix_audit_names", text("audit_names(resources, path)"), postgresql_using="gin"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    project_id: Mapped[str | None]
    key_id: Mapped[str | None]
    action: Mapped[str]
    path: Mapped[str]
    #: Ids of resources that were made, changed or deleted, if they have rows of their own.
    resources: Mapped[list[str]] = mapped_column(server_default=EMPTY_TEXTS)
    request_id: Mapped[str | None]
    address: Mapped[str]


class SpendRow(Base):
    """Spending of a project, an endpoint or a key on one day (UTC)."""

    __tablename__ = "spend"

    #: Id of a project, an endpoint or a key; no foreign key, as spending outlasts its owner.
    owner_id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)


class ReservationRow(Base):
    """The most that a running call may take; lapses when the call must be over."""

    __tablename__ = "reservations"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(index=True)
    endpoint_id: Mapped[str] = mapped_column(index=True)
    #: API key that made the call, if it is a key of the project.
    key_id: Mapped[str | None] = mapped_column(index=True)
    day: Mapped[date]
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    lapses_at: Mapped[datetime]
