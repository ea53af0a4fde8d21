"""Installations: their row, and the lease of the worker that runs them."""

from collections.abc import Mapping

from sqlalchemy import select, update
from typing_extensions import override

from app.items import JsonValue
from app.records.banks import InstallationRecord
from app.records.fields import convert
from app.records.leased import UNDERWAY, Failure
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest
from app.storage.rows.banks import InstallationRow
from app.storage.scoping import given


class InstallationRepository(LeasedRepository[InstallationRecord]):
    """Queries and changes of installations, within one transaction."""

    row = InstallationRow
    kind = "Installation"

    async def add(self, installation_id: str, entry: str) -> InstallationRecord:
        """Store a new installation, queued."""
        self._db.add(InstallationRow(id=installation_id, entry=entry, status="queued"))
        await self._db.flush()
        return await self.get(installation_id)

    @override
    async def get(self, installation_id: str, *, for_update: bool = False) -> InstallationRecord:
        """One installation; `for_update` locks its row until the transaction ends."""
        query = select(InstallationRow).where(InstallationRow.id == installation_id)
        return _read(await self._one(query, "installation", installation_id, for_update=for_update))

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
        query = select(InstallationRow).where(*given((InstallationRow.status, status)))
        return await self._page(query, request, InstallationRow.id, "installation", _read)

    async def report(self, claimed_id: str, epoch: int, progress: Mapping[str, JsonValue]) -> None:
        """Write the progress of an installation."""
        await self._write(claimed_id, epoch, progress=dict(progress), lapses=0)

    async def complete(self, claimed_id: str, epoch: int, result: Mapping[str, JsonValue]) -> None:
        """Complete an installation and write its result."""
        ended = {"worker_id": None, "result": dict(result)}
        await self._finish(claimed_id, epoch, "completed", **ended)

    async def fail(self, claimed_id: str, epoch: int, failure: Failure) -> None:
        """Mark an installation as failed and write the cause."""
        ended = {"worker_id": None, "failure": dict(failure)}
        await self._finish(claimed_id, epoch, "failed", **ended)

    async def cancel(self, installation_id: str) -> InstallationRecord:
        """Cancel an installation from outside; its worker loses the lease.

        Raises:
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


def _read(row: InstallationRow) -> InstallationRecord:
    return convert(InstallationRecord, row)
