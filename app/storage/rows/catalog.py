"""Installations of banks from the catalogue."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, Base, Json


class InstallationRow(Base):
    """A bank being installed from the catalogue: where it stands, and who does it."""

    __tablename__ = "installations"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    #: Name of the catalogue's entry, and of the bank that becomes of it.
    entry: Mapped[str]
    status: Mapped[str]

    lease_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    #: How often in a row the lease ran out without a step.
    lapses: Mapped[int] = mapped_column(server_default=text("0"))
    lease_expires_at: Mapped[datetime | None]
    worker_id: Mapped[str | None]

    progress: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    result: Mapped[Json | None]
    failure: Mapped[Json | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
