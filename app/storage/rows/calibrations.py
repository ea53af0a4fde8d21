"""Tables of response sets and calibrations."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.storage.rows.base import EMPTY_OBJECT, Base, EventRow, Json, LeasedRow, OwnedRow


class ResponseSetRow(OwnedRow):
    """Recorded answers of examinees to items, with the figures shown in lists."""

    __tablename__ = "response_sets"
    __table_args__ = (UniqueConstraint("project_id", "name", name="uq_response_sets_name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    description: Mapped[str] = mapped_column(server_default="")
    details: Mapped[Json] = mapped_column("metadata", server_default=EMPTY_OBJECT)
    n_examinees: Mapped[int] = mapped_column(server_default=text("0"))
    n_items: Mapped[int] = mapped_column(server_default=text("0"))
    n_sheets: Mapped[int] = mapped_column(server_default=text("0"))
    outcomes: Mapped[Json] = mapped_column(server_default=EMPTY_OBJECT)
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
    __table_args__ = (
        CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="status"
        ),
        Index(None, "status", "lease_expires_at"),
        Index("ix_calibrations_project_id", "project_id", "id"),
    )

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
