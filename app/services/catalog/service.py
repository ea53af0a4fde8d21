"""The catalogue: list its entries, and start, run, watch and cancel installations."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.adapters.guard import AddressGuard
from app.errors import NotFoundError
from app.exchange.catalog.entry import AgentsEntry, Listed, pick, read_catalogue
from app.records.banks import BankVersion, InstallationRecord
from app.services.banks.service import BankService
from app.services.calibrations.service import CalibrationService
from app.services.catalog.agents import prepare_agents
from app.services.catalog.files import INSTALLED, Prepared, Report, fetched_files, files_in_folder
from app.services.catalog.installing import prepare_questions, write
from app.services.leased import Queue
from app.services.waiting import again_if_taken
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.unit_of_work import UnitOfWork


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
        known = await asyncio.to_thread(read_catalogue, self.folder)
        if name not in known:
            raise NotFoundError("entry of the catalogue", name, [*known])
        return known[name]

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

        Without a folder of the entry's files, they are downloaded.

        Raises:
            UnknownNameError: No entry of that name.
            DownloadError: A file could not be downloaded.
            InvalidInputError: The files are not those of the entry.
            ConflictError: A different bank has that name.
        """
        prepared = await self.prepared(name, report, folder)
        report({"phase": "writing"})

        async def written() -> tuple[BankVersion, Mapping[str, Any]]:
            async with self.database.unit_of_work() as uow:
                return await write(uow, prepared)

        return await again_if_taken(written)

    async def prepared(self, name: str, report: Report, folder: Path | None = None) -> Prepared:
        """Everything an installation writes; arguments and errors are those of `install_now`."""
        async with self.database.reading() as uow:
            bank_id = await _bank_of(uow, name) or ""
            latest = (await uow.versions.latest([bank_id])).get(bank_id)
        files = {} if latest is None else latest.knowledge.get(INSTALLED, {}).get("files", {})
        listed = await self.listed(name)
        entry = listed.entry
        report({"phase": "fetching"})
        if folder is None:
            found = await fetched_files(listed, self.guard, report)
        else:
            found = await asyncio.to_thread(files_in_folder, entry, folder)
        if not isinstance(entry, AgentsEntry):
            report({"phase": "joining"})
            return await prepare_questions(entry, found, self.banks)
        (file,) = found.found.values()
        if file.checked_by == "nothing":
            origin = file.origin if folder is None else f"{file.name} of a folder"
            file = replace(file, checked_by="content", origin=origin)
        before = files.get("responses", {}).get("sha256")
        return await prepare_agents(entry, file, self.calibrations, report, installed=before)


async def _bank_of(uow: UnitOfWork, name: str) -> str | None:
    bank = await uow.banks.known(name)
    return None if bank is None else bank.id
