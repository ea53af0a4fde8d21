"""Tables of banks, items, versions, and installations from the catalogue."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, EMPTY_TEXTS, Base, Json, LeasedRow, OwnedRow


class BankRow(OwnedRow):
    """A named collection of items, and the way they are asked and scored."""

    __tablename__ = "banks"
    __table_args__ = (
        Index(
            "uq_banks_name_live",
            "project_id",
            "name",
            unique=True,
            postgresql_where=text("archived_at IS NULL"),
        ),
        Index(None, "shared", postgresql_where=text("shared")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    licence: Mapped[str | None]
    source: Mapped[str | None]
    visibility: Mapped[str] = mapped_column(server_default="open")
    #: Whether other projects may read the bank and measure on it.
    shared: Mapped[bool] = mapped_column(server_default=text("false"))
    default_scorer: Mapped[Json]
    prompt: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    unparsed_policy: Mapped[str] = mapped_column(server_default="missing")
    #: Number of pretest items that a session is given by default.
    pretest_items: Mapped[int] = mapped_column(server_default=text("0"))
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    archived_at: Mapped[datetime | None]


class ItemRow(Base):
    """One item of a bank; it cannot change once a bank version contains it."""

    __tablename__ = "items"
    __table_args__ = (UniqueConstraint("bank_id", "key"), Index(None, "bank_id", "content_hash"))

    id: Mapped[str] = mapped_column(primary_key=True)
    bank_id: Mapped[str] = mapped_column(ForeignKey("banks.id", ondelete="CASCADE"))
    key: Mapped[str]
    content: Mapped[Json]
    scorer: Mapped[Json | None]
    tags: Mapped[list[str]] = mapped_column(server_default=EMPTY_TEXTS)
    group_key: Mapped[str | None]
    expected_tokens_in: Mapped[int | None]
    expected_tokens_out: Mapped[int | None]
    content_hash: Mapped[str]
    #: Number of sessions given the item while in pretest; items with the fewest come next.
    pretest_sessions: Mapped[int] = mapped_column(server_default=text("0"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    created_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class BankVersionRow(Base):
    """An immutable version of a bank: items with parameters, scale, hash and findings."""

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
    lint: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    extras: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    knowledge: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    n_items: Mapped[int]
    #: As `created_by` of a bank; also null for versions from before this was stored.
    created_by: Mapped[str | None]
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
    #: Dispersion of continuous scores; null for versions whose scores are right or wrong.
    k: Mapped[float | None]
    loadings: Mapped[list[float] | None]
    status: Mapped[str]
    flags: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))


class InstallationRow(LeasedRow):
    """Installation of a bank from the catalogue: its progress and its lease."""

    __tablename__ = "installations"
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
        Index("ix_installations_project_id", "project_id", "id"),
    )

    #: Name of the catalogue's entry, and of the installed bank.
    entry: Mapped[str]
    progress: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    result: Mapped[Json | None]
    failure: Mapped[Json | None]
