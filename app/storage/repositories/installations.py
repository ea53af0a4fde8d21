"""Installations: their row, and the lease of who runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import InvalidStateError, LeaseLostError, NotFoundError
from app.storage.lapses import lapsed
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows.catalog import InstallationRow

#: States in which a worker may hold an installation.
UNDERWAY = ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationRecord:
    """One installation as stored; names as in the table `installations`."""

    id: str
    entry: str
    status: str
    lease_epoch: int
    lapses: int
    progress: dict[str, Any]
    result: dict[str, Any] | None
    failure: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class InstallationRepository:
    """Questions and changes about installations, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(self, installation_id: str, entry: str) -> InstallationRecord:
        """Store a new installation, queued."""
        self._db.add(InstallationRow(id=installation_id, entry=entry, status="queued"))
        await self._db.flush()
        return await self.get(installation_id)

    async def get(self, installation_id: str, *, for_update: bool = False) -> InstallationRecord:
        """One installation, its row locked until the transaction ends if so wished.

        Raises:
            NotFoundError: No such installation.
        """
        query = select(InstallationRow).where(InstallationRow.id == installation_id)
        query = query.execution_options(populate_existing=True)
        if for_update:
            query = query.with_for_update()
        row = (await self._db.execute(query)).scalar_one_or_none()
        if row is None:
            raise NotFoundError("installation", installation_id)
        return _read(row)

    async def underway(self, entry: str) -> InstallationRecord | None:
        """The installation of an entry that has not ended, if there is one."""
        query = (
            select(InstallationRow)
            .where(InstallationRow.entry == entry, InstallationRow.status.in_(UNDERWAY))
            .order_by(InstallationRow.id)
            .limit(1)
        )
        row = (await self._db.execute(query)).scalar_one_or_none()
        return None if row is None else _read(row)

    async def list_page(
        self, request: PageRequest, *, status: str | None = None
    ) -> Page[InstallationRecord]:
        """One page of installations."""
        query = select(InstallationRow)
        if status is not None:
            query = query.where(InstallationRow.status == status)
        return await read_page(
            self._db, query, request, key=InstallationRow.id, kind="installation", read=_read
        )

    async def claim(
        self, installation_id: str, *, worker_id: str, lease: timedelta
    ) -> InstallationRecord | None:
        """Become the one who runs it; None if it has ended or somebody has it."""
        claimed = await self._db.execute(
            update(InstallationRow)
            .where(
                InstallationRow.id == installation_id,
                InstallationRow.status.in_(UNDERWAY),
                func.coalesce(InstallationRow.lease_expires_at, func.now()) <= func.now(),
            )
            .values(
                status="running",
                lease_epoch=InstallationRow.lease_epoch + 1,
                lease_expires_at=func.now() + lease,
                worker_id=worker_id,
                started_at=func.coalesce(InstallationRow.started_at, func.now()),
            )
            .returning(InstallationRow.id)
        )
        if claimed.one_or_none() is None:
            return None
        return await self.get(installation_id)

    async def renew(self, leases: Mapping[str, int], *, lease: timedelta) -> set[str]:
        """Prolong the leases (id -> epoch) that are still ours; returns which those are."""
        rows = await self._db.execute(
            update(InstallationRow)
            .where(_held(leases))
            .values(lease_expires_at=func.now() + lease)
            .returning(InstallationRow.id)
        )
        return set(rows.scalars())

    async def release(self, leases: Mapping[str, int]) -> None:
        """Give up leases (id -> epoch) so that another worker goes on at once."""
        await self._db.execute(
            update(InstallationRow)
            .where(_held(leases))
            .values(status="queued", lease_expires_at=None, worker_id=None)
        )

    async def stalled(
        self, *, grace: timedelta, counts: bool = True, limit: int = 100
    ) -> list[str]:
        """Those that nobody runs: their lease, or their wait in the queue, ran out.

        Each is marked as queued from now, so that it is reported once per grace period; `counts`
        as for `lapsed`.
        """
        waits_since = func.coalesce(InstallationRow.lease_expires_at, InstallationRow.created_at)
        due = (
            select(InstallationRow.id)
            .where(InstallationRow.status.in_(UNDERWAY), waits_since + grace < func.now())
            .order_by(InstallationRow.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = list((await self._db.execute(due)).scalars())
        if ids:
            await self._db.execute(
                update(InstallationRow)
                .where(InstallationRow.id.in_(ids))
                .values(**lapsed(InstallationRow, counts=counts))
            )
        return ids

    async def report(self, installation_id: str, epoch: int, progress: Mapping[str, Any]) -> None:
        """Write how far it is.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        await self._write(installation_id, epoch, progress=dict(progress), lapses=0)

    async def complete(self, installation_id: str, epoch: int, result: Mapping[str, Any]) -> None:
        """Write what came out.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        await self._end(installation_id, epoch, status="completed", result=dict(result))

    async def fail(self, installation_id: str, epoch: int, failure: Mapping[str, Any]) -> None:
        """Write why nothing came out.

        Raises:
            LeaseLostError: It was cancelled, or another worker has it.
        """
        await self._end(installation_id, epoch, status="failed", failure=dict(failure))

    async def cancel(self, installation_id: str) -> InstallationRecord:
        """End an installation from outside; whoever runs it loses the lease.

        Raises:
            NotFoundError: No such installation.
            InvalidStateError: It has ended.
        """
        record = await self.get(installation_id, for_update=True)
        if record.status not in UNDERWAY:
            raise InvalidStateError(
                f"Installation {installation_id} is {record.status}; it has ended."
            )
        await self._db.execute(
            update(InstallationRow)
            .where(InstallationRow.id == installation_id)
            .values(
                status="cancelled",
                lease_epoch=InstallationRow.lease_epoch + 1,
                lease_expires_at=None,
                worker_id=None,
                finished_at=func.now(),
            )
        )
        return await self.get(installation_id)

    async def _end(self, installation_id: str, epoch: int, **values: Any) -> None:
        await self._write(
            installation_id,
            epoch,
            **values,
            lease_expires_at=None,
            worker_id=None,
            finished_at=func.now(),
        )

    async def _write(self, installation_id: str, epoch: int, **values: Any) -> None:
        written = await self._db.execute(
            update(InstallationRow)
            .where(_held({installation_id: epoch}))
            .values(**values)
            .returning(InstallationRow.id)
        )
        if written.one_or_none() is None:
            raise LeaseLostError(
                f"Installation {installation_id} was cancelled, or another worker has it."
            )


def _held(leases: Mapping[str, int]) -> ColumnElement[bool]:
    mine = tuple_(InstallationRow.id, InstallationRow.lease_epoch).in_(list(leases.items()))
    return mine & (InstallationRow.status == "running")


def _read(row: InstallationRow) -> InstallationRecord:
    return InstallationRecord(**{f.name: getattr(row, f.name) for f in fields(InstallationRecord)})
