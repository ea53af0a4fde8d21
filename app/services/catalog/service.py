"""The catalogue: list its entries, and start, run, watch and cancel installations."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from app.adapters.guard import AddressGuard
from app.errors import (
    AlreadyExistsError,
    DatabaseUnavailableError,
    InvalidInputError,
    NotFoundError,
    SextantError,
    UnknownNameError,
)
from app.exchange.catalog.entry import Listed, pick, read_catalogue
from app.items import JsonValue
from app.records.banks import OPEN, BankVersion, InstallationRecord
from app.services.banks.service import BankService
from app.services.calibrations.service import CalibrationService
from app.services.catalog.files import INSTALLED, Prepared, Report
from app.services.catalog.installing import prepare, write
from app.services.leased import LeasedRunner, Queue, failure_of
from app.services.outages import retry_outages
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.repositories.installations import InstallationRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

#: Seconds between two reports of progress.
_REPORT_S = 0.5


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry of the catalogue, and the bank of the same name if one exists."""

    listed: Listed
    bank_id: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class CatalogService:
    """Use cases of the catalogue; `InstallationRunner` runs the installations."""

    database: Database
    banks: BankService
    calibrations: CalibrationService
    queue: Queue
    guard: AddressGuard
    folder: Path | None

    async def entries(self) -> list[Offer]:
        """All entries, by name.

        Raises:
            InvalidInputError: A file in the operator's own folder is no valid entry.
        """
        catalogue = await asyncio.to_thread(read_catalogue, self.folder)
        async with self.database.reading() as uow:
            return [Offer(listed, await _bank_of(uow, name)) for name, listed in catalogue.items()]

    async def entry(self, name: str) -> Offer:
        """One entry.

        Raises:
            NotFoundError: There is none of that name.
        """
        listed = await self._found(name)
        async with self.database.reading() as uow:
            return Offer(listed, await _bank_of(uow, name))

    async def _found(self, name: str) -> Listed:
        try:
            return await self.listed(name)
        except UnknownNameError:
            raise NotFoundError("entry of the catalogue", name) from None

    async def listed(self, name: str) -> Listed:
        """One entry in its present form.

        Raises:
            UnknownNameError: There is none of that name.
        """
        return pick(await asyncio.to_thread(read_catalogue, self.folder), name)

    async def start(self, name: str) -> InstallationRecord:
        """Queue an installation, or return the one that is under way already.

        Raises:
            NotFoundError: No entry of that name.
        """
        listed = await self._found(name)
        async with self.database.unit_of_work() as uow:
            underway = await uow.installations.underway(listed.entry.name)
            if underway is not None:
                return underway
            made = await uow.installations.add(new_id("ins"), listed.entry.name)
            await self.queue.enqueue(uow, made.id)
            return made

    async def install_now(
        self, name: str, report: Report, folder: Path | None = None
    ) -> tuple[BankVersion, Mapping[str, Any]]:
        """Install an entry in this process, without a worker.

        Args:
            name: Name of the entry.
            report: Called with progress.
            folder: Folder of the entry's files; None: download them.

        Raises:
            UnknownNameError: No entry of that name.
            DownloadError: A file could not be downloaded.
            InvalidInputError: The files are not those of the entry.
            ConflictError: A different bank has that name.
        """
        prepared = await self.prepared(name, report, folder)
        report({"phase": "writing"})
        try:
            async with self.database.unit_of_work() as uow:
                return await write(uow, prepared)
        except AlreadyExistsError:  # somebody made it meanwhile
            async with self.database.unit_of_work() as uow:
                return await write(uow, prepared)

    async def prepared(self, name: str, report: Report, folder: Path | None = None) -> Prepared:
        """Everything an installation writes; arguments and errors are those of `install_now`."""
        async with self.database.reading() as uow:
            bank_id = await _bank_of(uow, name) or ""
            latest = (await uow.versions.latest([bank_id])).get(bank_id)
        files = {} if latest is None else latest.knowledge.get(INSTALLED, {}).get("files", {})
        return await prepare(
            await self.listed(name),
            self.guard,
            report,
            folder,
            banks=self.banks,
            calibrations=self.calibrations,
            installed=files.get("responses", {}).get("sha256"),
        )


async def _bank_of(uow: UnitOfWork, name: str) -> str | None:
    try:
        return (await uow.banks.find(name)).id
    except NotFoundError:
        return None


@dataclass(eq=False, kw_only=True)
class InstallationRunner(LeasedRunner[InstallationRecord]):
    """Drives claimed installations of one worker process.

    Only progress is stored before the end. Downloaded files stay in the hub's cache, so a worker
    that takes over from a lost one does not download them again.
    """

    kind = "installation"

    catalog: CatalogService

    @override
    def _leases(self, uow: UnitOfWork) -> InstallationRepository:
        return uow.installations

    @override
    async def _run(self, record: InstallationRecord) -> None:
        prepared = await self._prepared(record)
        await retry_outages(lambda: self._written(record, prepared))
        logger.info("installation_completed", entry=record.entry)

    @override
    async def _abandon(
        self, uow: UnitOfWork, record: InstallationRecord, error: SextantError
    ) -> None:
        await uow.installations.fail(record.id, record.lease_epoch, failure_of(error))

    async def _prepared(self, record: InstallationRecord) -> Prepared:
        latest: dict[str, JsonValue] = {}
        teller = asyncio.create_task(self._tell(record, latest))
        try:
            return await self.catalog.prepared(record.entry, latest.update)
        finally:
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)

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

    async def _written(self, record: InstallationRecord, prepared: Prepared) -> None:
        """Write the bank and the end of the installation in one transaction."""
        for last_try in (False, True):
            try:
                async with self.leasing.database.unit_of_work() as uow:
                    _, result = await write(uow, prepared)
                    await uow.installations.complete(record.id, record.lease_epoch, result)
            except AlreadyExistsError:  # somebody made a bank of that name meanwhile
                if last_try:
                    raise
            else:
                return

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
                "reason may quote them: `sextant banks install` on the server tells it."
            )
            error.problems = ()
        return await super().fail(record, error)
