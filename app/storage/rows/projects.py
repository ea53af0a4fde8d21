"""Projects, what they spend a day, and the trail of what is done in them."""

from datetime import date, datetime

from sqlalchemy import BigInteger, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, EMPTY_TEXTS, Base, Json


class ProjectRow(Base):
    """Whose something is. One is always there, see `app.acting`."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    #: What its keys may use, and how long what they made stays.
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    retention: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    #: As of what belongs to it; null of those that were made before this was noted, too.
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AuditRow(Base):
    """Who changed what, when, and from where. Rows are added, and go when their time is up alone.

    A trigger refuses all else. No foreign keys: what a row tells of may be gone.
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
    #: Ids of what was made, changed or deleted, as far as they are rows of their own.
    resources: Mapped[list[str]] = mapped_column(server_default=EMPTY_TEXTS)
    request_id: Mapped[str | None]
    address: Mapped[str]


class SpendRow(Base):
    """What calls of one day (UTC) took, of a project, an endpoint or a key."""

    __tablename__ = "spend"

    #: Of a project, an endpoint or a key. No foreign key: what is spent stays spent.
    owner_id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)


class ReservationRow(Base):
    """What a call under way may take at most; it lapses once the call must be over."""

    __tablename__ = "reservations"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(index=True)
    endpoint_id: Mapped[str] = mapped_column(index=True)
    #: The key that began it, where it is one of the project.
    key_id: Mapped[str | None] = mapped_column(index=True)
    day: Mapped[date]
    usd: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    lapses_at: Mapped[datetime]
