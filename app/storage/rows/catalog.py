"""Installations of banks from the catalogue."""

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, Json, LeasedRow


class InstallationRow(LeasedRow):
    """A bank being installed from the catalogue: where it stands, and who does it."""

    __tablename__ = "installations"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
        Index("ix_installations_project_id", "project_id", "id"),
    )

    #: Name of the catalogue's entry, and of the bank that becomes of it.
    entry: Mapped[str]
    progress: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    result: Mapped[Json | None]
    failure: Mapped[Json | None]
