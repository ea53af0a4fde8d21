"""Tables of banks, items, versions, installations, response sets and calibrations."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import (
    EMPTY_OBJECT,
    EMPTY_TEXTS,
    Base,
    EventRow,
    IdentifiedRow,
    Json,
    LeasedRow,
    OwnedRow,
    leased_table,
)


class BankRow(IdentifiedRow, OwnedRow):
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
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    archived_at: Mapped[datetime | None]


class ItemRow(IdentifiedRow):
    """One item of a bank; it cannot change once a bank version contains it."""

    __tablename__ = "items"
    __table_args__ = (UniqueConstraint("bank_id", "key"), Index(None, "bank_id", "content_hash"))

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


class BankVersionRow(IdentifiedRow):
    """An immutable version of a bank: items with parameters, scale, hash and findings."""

    __tablename__ = "bank_versions"
    __table_args__ = (UniqueConstraint("bank_id", "number"),)

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
    __table_args__ = leased_table("installations")

    #: Name of the catalogue's entry, and of the installed bank.
    entry: Mapped[str]
    progress: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    result: Mapped[Json | None]
    failure: Mapped[Json | None]


class ResponseSetRow(IdentifiedRow, OwnedRow):
    """Recorded answers of examinees to items, with the figures shown in lists."""

    __tablename__ = "response_sets"
    __table_args__ = (UniqueConstraint("project_id", "name", name="uq_response_sets_name"),)

    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    n_examinees: Mapped[int] = mapped_column(server_default=text("0"))
    n_items: Mapped[int] = mapped_column(server_default=text("0"))
    n_sheets: Mapped[int] = mapped_column(server_default=text("0"))
    outcomes: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
    imports: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    revision: Mapped[int] = mapped_column(server_default=text("1"))
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
    """All answers of one examinee in one trial: one byte per item, and fractional scores.

    For example, these are 3,467 rows where one row per answer would make 19 million.
    """

    __tablename__ = "answer_sheets"

    set_id: Mapped[str] = mapped_column(
        ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True
    )
    examinee: Mapped[str] = mapped_column(primary_key=True)
    trial: Mapped[int] = mapped_column(primary_key=True)
    #: Position of the examinee, in order of first import.
    position: Mapped[int]
    codes: Mapped[bytes]
    fractions: Mapped[bytes | None]


class CollectedSessionRow(Base):
    """A session whose answers a response set has collected, so that they are collected once."""

    __tablename__ = "collected_sessions"

    set_id: Mapped[str] = mapped_column(
        ForeignKey("response_sets.id", ondelete="CASCADE"), primary_key=True
    )
    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True, index=True
    )


class CalibrationRow(LeasedRow):
    """Estimation of item parameters from a response set: its progress and its lease."""

    __tablename__ = "calibrations"
    __table_args__ = leased_table("calibrations")

    #: A response set in use cannot be removed, as its answers explain the parameters.
    response_set_id: Mapped[str] = mapped_column(ForeignKey("response_sets.id"), index=True)
    #: Set for a part of another calibration: a subset of its items, run by any free worker.
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("calibrations.id", ondelete="CASCADE"), index=True
    )
    #: Number of this part, from 0, and number of parts of this calibration; None without parts.
    part: Mapped[int | None]
    n_parts: Mapped[int | None]
    #: Number of events so far.
    event_seq: Mapped[int] = mapped_column(server_default=text("0"))
    #: The version that the calibration was published as.
    bank_id: Mapped[str | None] = mapped_column(ForeignKey("banks.id"), index=True)
    bank_version_id: Mapped[str | None] = mapped_column(ForeignKey("bank_versions.id"), index=True)
    settings: Mapped[Json]
    #: How to publish it on completion, None if not requested; and why publication failed.
    publication: Mapped[Json | None]
    publication_failure: Mapped[Json | None]

    progress: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
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


class CalibrationEventRow(EventRow):
    """An event of a calibration."""

    __tablename__ = "calibration_events"

    calibration_id: Mapped[str] = mapped_column(
        ForeignKey("calibrations.id", ondelete="CASCADE"), primary_key=True
    )
