"""Installations: their row, and the lease of who runs them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, update
from typing_extensions import override

from app.errors import NotFoundError
from app.records.banks import InstallationRecord
from app.records.fields import convert
from app.records.leased import UNDERWAY
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows.banks import InstallationRow


class InstallationRepository(LeasedRepository[InstallationRecord]):
    """Questions and changes about installations, within one transaction."""

    row = InstallationRow
    kind = "Installation"

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

    @override
    async def claim(
        self, installation_id: str, *, worker_id: str, lease: timedelta
    ) -> InstallationRecord | None:
        """Become the one who runs it; None if it has ended or somebody has it."""
        epoch = await self._take(installation_id, worker_id=worker_id, lease=lease)
        return None if epoch is None else await self.get(installation_id)

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
        self._require_underway(record)
        await self._db.execute(
            update(InstallationRow)
            .where(InstallationRow.id == installation_id)
            .values(self._taken_away() | {"status": "cancelled"})
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


def _read(row: InstallationRow) -> InstallationRecord:
    return convert(InstallationRecord, row)
