"""Calibrations: their row, their fitted items, and the lease of who runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, delete, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import InvalidStateError, LeaseLostError, NotFoundError
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows import CalibrationRow

#: States in which a worker may hold the calibration.
LIVE = ("queued", "running")
#: States that never change again.
ENDED = ("completed", "failed", "cancelled")

#: What is stored of each item by default. S-X2 is the test of its fit; NaN where unknown.
COLUMNS = (
    "a",
    "intercept",
    "c",
    "d",
    "se_a",
    "se_intercept",
    "se_b",
    "se_c",
    "se_d",
    "s_x2",
    "s_x2_df",
    "s_x2_p",
    "s_x2_rmsea",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """One calibration as stored; names as in the table `calibrations`."""

    id: str
    response_set_id: str
    bank_id: str | None
    bank_version_id: str | None
    settings: dict[str, Any]
    status: str
    lease_epoch: int
    progress: dict[str, Any]
    result: dict[str, Any] | None
    failure: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, eq=False)
class FittedItems:
    """Parameters of the calibrated items, with standard errors and fit.

    Attributes:
        keys: Of the items.
        columns: Each of shape (n_items,); which there are depends on the response model.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]


class CalibrationRepository:
    """Questions and changes about calibrations, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(
        self, calibration_id: str, *, response_set_id: str, settings: Mapping[str, Any]
    ) -> CalibrationRecord:
        """Store a new calibration, queued."""
        self._db.add(
            CalibrationRow(
                id=calibration_id,
                response_set_id=response_set_id,
                settings=dict(settings),
                status="queued",
            )
        )
        await self._db.flush()
        return await self.get(calibration_id)

    async def get(self, calibration_id: str, *, for_update: bool = False) -> CalibrationRecord:
        """One calibration.

        Args:
            calibration_id: Its id.
            for_update: Lock its row until the transaction ends.

        Raises:
            NotFoundError: No such calibration.
        """
        query = select(CalibrationRow).where(CalibrationRow.id == calibration_id)
        query = query.execution_options(populate_existing=True)
        if for_update:
            query = query.with_for_update()
        row = (await self._db.execute(query)).scalar_one_or_none()
        if row is None:
            raise NotFoundError("calibration", calibration_id)
        return _read(row)

    async def list_page(
        self,
        request: PageRequest,
        *,
        status: str | None = None,
        response_set_id: str | None = None,
    ) -> Page[CalibrationRecord]:
        """One page of calibrations that pass every filter given."""
        query = select(CalibrationRow)
        if status is not None:
            query = query.where(CalibrationRow.status == status)
        if response_set_id is not None:
            query = query.where(CalibrationRow.response_set_id == response_set_id)
        return await read_page(
            self._db, query, request, key=CalibrationRow.id, kind="calibration", read=_read
        )

    async def using(self, response_set_id: str) -> str | None:
        """Some calibration of a response set."""
        query = select(CalibrationRow.id).where(CalibrationRow.response_set_id == response_set_id)
        return (await self._db.scalars(query.limit(1))).one_or_none()

    async def fitted(self, calibration_id: str) -> FittedItems | None:
        """The items of a completed calibration; None before that."""
        query = select(
            CalibrationRow.item_keys, CalibrationRow.item_columns, CalibrationRow.item_values
        )
        row = (await self._db.execute(query.where(CalibrationRow.id == calibration_id))).one()
        if row.item_keys is None:
            return None
        names = row.item_columns or COLUMNS
        table = np.frombuffer(row.item_values, "<f8").reshape(len(names), -1)
        return FittedItems(tuple(row.item_keys), dict(zip(names, table, strict=True)))

    async def claim(
        self, calibration_id: str, *, worker_id: str, lease: timedelta
    ) -> CalibrationRecord | None:
        """Become the one who runs this calibration, unless it has ended or somebody has it."""
        claimed = await self._db.execute(
            update(CalibrationRow)
            .where(
                CalibrationRow.id == calibration_id,
                CalibrationRow.status.in_(LIVE),
                func.coalesce(CalibrationRow.lease_expires_at, func.now()) <= func.now(),
            )
            .values(
                status="running",
                lease_epoch=CalibrationRow.lease_epoch + 1,
                lease_expires_at=func.now() + lease,
                worker_id=worker_id,
                progress={},
                started_at=func.coalesce(CalibrationRow.started_at, func.now()),
            )
            .returning(CalibrationRow.id)
        )
        if claimed.one_or_none() is None:
            return None
        return await self.get(calibration_id)

    async def renew(self, leases: Mapping[str, int], *, lease: timedelta) -> set[str]:
        """Prolong the leases (id -> epoch) that are still ours; returns which those are."""
        rows = await self._db.execute(
            update(CalibrationRow)
            .where(_held(leases))
            .values(lease_expires_at=func.now() + lease)
            .returning(CalibrationRow.id)
        )
        return set(rows.scalars())

    async def release(self, leases: Mapping[str, int]) -> None:
        """Give up leases (id -> epoch) so that another worker starts anew at once."""
        await self._db.execute(
            update(CalibrationRow)
            .where(_held(leases))
            .values(status="queued", lease_expires_at=None, worker_id=None)
        )

    async def stalled(self, *, grace: timedelta, limit: int = 100) -> list[str]:
        """Live calibrations that nobody runs: their lease, or their wait in the queue, ran out.

        Each is marked as queued from now, so that it is reported once per grace period.
        """
        due = (
            select(CalibrationRow.id)
            .where(
                CalibrationRow.status.in_(LIVE),
                func.coalesce(CalibrationRow.lease_expires_at, CalibrationRow.created_at) + grace
                < func.now(),
            )
            .order_by(CalibrationRow.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = list((await self._db.execute(due)).scalars())
        if ids:
            # A lease that ends now is over: the next worker may claim the calibration.
            await self._db.execute(
                update(CalibrationRow)
                .where(CalibrationRow.id.in_(ids))
                .values(lease_expires_at=func.now(), status="queued")
            )
        return ids

    async def report(self, calibration_id: str, epoch: int, progress: Mapping[str, Any]) -> None:
        """Write how far a calibration is.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        await self._write(calibration_id, epoch, progress=dict(progress))

    async def complete(
        self, calibration_id: str, epoch: int, result: Mapping[str, Any], items: FittedItems
    ) -> None:
        """Write what came out, all of it at once.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        table = np.array(list(items.columns.values()))
        await self._write(
            calibration_id,
            epoch,
            status="completed",
            result=dict(result),
            item_keys=list(items.keys),
            item_columns=list(items.columns),
            item_values=table.astype("<f8").tobytes(),
            lease_expires_at=None,
            finished_at=func.now(),
        )

    async def fail(self, calibration_id: str, epoch: int, failure: Mapping[str, Any]) -> None:
        """Write why nothing came out.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        await self._write(
            calibration_id,
            epoch,
            status="failed",
            failure=dict(failure),
            lease_expires_at=None,
            finished_at=func.now(),
        )

    async def cancel(self, calibration_id: str) -> CalibrationRecord:
        """End a calibration from outside; whoever runs it loses the lease.

        Raises:
            NotFoundError: No such calibration.
            InvalidStateError: It has ended.
        """
        record = await self.get(calibration_id, for_update=True)
        if record.status not in LIVE:
            raise InvalidStateError(
                f"Calibration {calibration_id} is {record.status}; it has ended."
            )
        await self._db.execute(
            update(CalibrationRow)
            .where(CalibrationRow.id == calibration_id)
            .values(
                status="cancelled",
                lease_epoch=CalibrationRow.lease_epoch + 1,
                lease_expires_at=None,
                worker_id=None,
                finished_at=func.now(),
            )
        )
        return await self.get(calibration_id)

    async def note_published(
        self, calibration_id: str, *, bank_id: str, bank_version_id: str
    ) -> None:
        """Remember the version that a calibration became."""
        await self._db.execute(
            update(CalibrationRow)
            .where(CalibrationRow.id == calibration_id)
            .values(bank_id=bank_id, bank_version_id=bank_version_id)
        )

    async def delete(self, calibration_id: str) -> None:
        """Remove a calibration that is not running and did not become a bank version.

        Raises:
            NotFoundError: No such calibration.
            InvalidStateError: It has not ended, or a bank version was made of it.
        """
        record = await self.get(calibration_id, for_update=True)
        if record.status in LIVE:
            raise InvalidStateError(
                f"Calibration {calibration_id} is {record.status}; cancel it before deleting it."
            )
        if record.bank_version_id is not None:
            raise InvalidStateError(
                f"Calibration {calibration_id} stays: bank version {record.bank_version_id} was "
                "made of it."
            )
        await self._db.execute(delete(CalibrationRow).where(CalibrationRow.id == calibration_id))

    async def _write(self, calibration_id: str, epoch: int, **values: Any) -> None:
        written = await self._db.execute(
            update(CalibrationRow)
            .where(_held({calibration_id: epoch}))
            .values(**values)
            .returning(CalibrationRow.id)
        )
        if written.one_or_none() is None:
            raise LeaseLostError(
                f"Calibration {calibration_id} was cancelled, or another worker has it."
            )


def _held(leases: Mapping[str, int]) -> ColumnElement[bool]:
    mine = tuple_(CalibrationRow.id, CalibrationRow.lease_epoch).in_(list(leases.items()))
    return mine & (CalibrationRow.status == "running")


def _read(row: CalibrationRow) -> CalibrationRecord:
    return CalibrationRecord(**{f.name: getattr(row, f.name) for f in fields(CalibrationRecord)})
