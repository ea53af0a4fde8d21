"""Tables of projects, their daily spending, and the audit trail."""

from datetime import date, datetime

from sqlalchemy import BigInteger, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, EMPTY_TEXTS, Base, Json


class ProjectRow(Base):
    """A project, to which resources belong; one project always exists, see `app.acting`."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(server_default="")
    #: Limits of the project, and retention times of its data.
    limits: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    retention: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    #: As `created_by` of its resources; also null for projects from before this was stored.
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
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
