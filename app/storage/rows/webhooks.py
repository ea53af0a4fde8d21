"""Webhooks and their deliveries. Triggers queue deliveries: see the migration `webhooks`."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import Base, Json, OwnedRow


class WebhookRow(OwnedRow):
    """Where a project wants to be told what has ended. The secret is stored encrypted."""

    __tablename__ = "webhooks"
    __table_args__ = (Index("ix_webhooks_project_id", "project_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    events: Mapped[list[str]]
    secret_cipher: Mapped[bytes]
    #: Whether the server that made it may call loopback and private addresses.
    calls_private: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    disabled_at: Mapped[datetime | None]


class DeliveryRow(Base):
    """One event for one webhook; its id is the same in all attempts."""

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

    id: Mapped[str] = mapped_column(primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    type: Mapped[str]
    data: Mapped[Json]
    #: Begun so far. Each moves `due_at` before it calls: nobody else makes it at the same time,
    #: and one whose worker was killed is followed by the next.
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    #: When the next attempt may begin; null: delivered or given up.
    due_at: Mapped[datetime | None] = mapped_column(server_default=func.now())
    delivered_at: Mapped[datetime | None]
    status_code: Mapped[int | None]
    error: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
