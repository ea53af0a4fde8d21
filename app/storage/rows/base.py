"""Base classes of tables. Each table has one class `*Row`, used only in `app/storage`."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import SchemaItem

from app.acting import maker, owner, request_id
from app.items import JsonValue

Json = dict[str, JsonValue]


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
        dict[str, str]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text()),
        list[float]: ARRAY(DOUBLE_PRECISION()),
        float: DOUBLE_PRECISION(),
        bytes: LargeBinary(),
    }


class IdentifiedRow(Base):
    """A row with an id of its own."""

    __abstract__ = True

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class OwnedRow(Base):
    """A resource of a project, hidden from other projects; see `app.storage.scoping`."""

    __abstract__ = True

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), default=owner)
    #: Id of the API key that made it, which may be deleted by now; null for the command line.
    created_by: Mapped[str | None] = mapped_column(default=maker)


class LeasedRow(IdentifiedRow, OwnedRow):
    """Work that one worker runs at a time: its state and its lease."""

    __abstract__ = True

    #: Id of the request that made it, for log lines of its worker; null for the command line.
    request_id: Mapped[str | None] = mapped_column(default=request_id)
    status: Mapped[str]
    #: Number of the lease, incremented by each claim.
    lease_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    #: How often in a row the lease expired without a step.
    lapses: Mapped[int] = mapped_column(server_default=text("0"))
    lease_expires_at: Mapped[datetime | None]
    worker_id: Mapped[str | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


def leased_table(name: str) -> tuple[SchemaItem, ...]:
    """Check of the states and indexes of a table of leased work without states of its own."""
    return (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
        Index(f"ix_{name}_project_id", "project_id", "id"),
    )


class EventRow(Base):
    """An event, numbered in order; `seq` is the id of the server-sent event."""

    __abstract__ = True

    seq: Mapped[int] = mapped_column(primary_key=True)
    type: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


EMPTY_OBJECT = text("'{}'::jsonb")
EMPTY_TEXTS = text("'{}'::text[]")
