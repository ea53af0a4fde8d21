"""Drives claimed installations: fetches, joins, and writes the bank with the end of its own row."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from typing_extensions import override

from app.errors import DatabaseUnavailableError, InvalidInputError, SextantError
from app.items import JsonValue
from app.records.banks import OPEN, InstallationRecord
from app.services.catalog.installing import write
from app.services.catalog.service import CatalogService
from app.services.leased import LeasedRunner, failure_of
from app.services.waiting import again_if_taken, retry_outages
from app.storage.repositories.banks import InstallationRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

#: Seconds between two reports of progress.
_REPORT_S = 0.5


@dataclass(eq=False, kw_only=True)
class InstallationRunner(LeasedRunner[InstallationRecord]):
    """Drives claimed installations of one worker process.

    Only progress is stored before the end. Downloaded files stay in the hub's cache, so a worker
    that takes over from a lost one does not download them again.
    """

    kind = "installation"

    catalog: CatalogService

    @override
    def rows(self, uow: UnitOfWork) -> InstallationRepository:
        return uow.installations

    @override
    async def _run(self, record: InstallationRecord) -> None:
        latest: dict[str, JsonValue] = {}
        teller = asyncio.create_task(self._tell(record, latest))
        try:
            prepared = await self.catalog.prepared(record.entry, latest.update)
        finally:
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)

        async def written() -> None:  # the bank and the end of the installation
            async with self.leasing.database.unit_of_work() as uow:
                _, result = await write(uow, prepared)
                await uow.installations.complete(record.id, record.lease_epoch, result)

        await retry_outages(lambda: again_if_taken(written))
        logger.info("installation_completed", entry=record.entry)

    @override
    async def _abandon(
        self, uow: UnitOfWork, record: InstallationRecord, error: SextantError
    ) -> None:
        await uow.installations.fail(record.id, record.lease_epoch, failure_of(error))

    async def _tell(self, record: InstallationRecord, latest: Mapping[str, JsonValue]) -> None:
        told: dict[str, JsonValue] = {}
        while True:
            if latest != told:
                told = dict(latest)
                try:
                    async with self.leasing.database.unit_of_work() as uow:
                        await uow.installations.report(record.id, record.lease_epoch, told)
                except DatabaseUnavailableError:
                    logger.warning("progress_not_stored")
            await asyncio.sleep(_REPORT_S)

    async def _quotes(self, entry: str) -> bool:
        """Whether error messages about an entry's files could reveal a withheld bank."""
        try:
            return (await self.catalog.listed(entry)).entry.visibility != OPEN
        except SextantError:  # the entry was removed or became invalid
            return False

    @override
    async def fail(self, record: InstallationRecord, error: Exception) -> bool:
        if isinstance(error, InvalidInputError) and await self._quotes(record.entry):
            error.detail = (
                f"The files of {record.entry!r} cannot be used. Its bank is withheld, and the "
                "reason may quote them: run `sextant banks install` on the server to see it."
            )
            error.problems = ()
        return await super().fail(record, error)
