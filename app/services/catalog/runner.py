"""Runs a claimed installation: fetches, joins, and writes the bank with the end of its own row."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import structlog

from app.errors import (
    AlreadyExistsError,
    DatabaseUnavailableError,
    InvalidInputError,
    LeaseLostError,
    SextantError,
)
from app.records.banks import OPEN
from app.services.banks.service import BankService
from app.services.catalog.installing import Prepared, write
from app.services.catalog.service import CatalogService
from app.services.patience import patiently
from app.storage.database import Database
from app.storage.repositories.installations import InstallationRecord

logger = structlog.get_logger(__name__)

#: Seconds between two looks at what is to be told of progress.
_REPORT_S = 0.5


class InstallationRunner:
    """Drives claimed installations of one worker process.

    Nothing is stored before the end but progress, and what was fetched lies in the hub's cache:
    whoever takes over from a lost worker goes on from there.
    """

    def __init__(
        self,
        *,
        database: Database,
        catalog: CatalogService,
        banks: BankService,
        worker_id: str,
        lease: timedelta,
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._banks = banks
        self._worker_id = worker_id
        self._lease = lease

    async def claim(self, installation_id: str) -> InstallationRecord | None:
        """Take the lease of an installation; None when it has ended or somebody else has it."""
        async with self._database.unit_of_work() as uow:
            return await uow.installations.claim(
                installation_id, worker_id=self._worker_id, lease=self._lease
            )

    async def drive(self, record: InstallationRecord) -> None:
        """Install, or say why not, or let go when the lease is lost."""
        with structlog.contextvars.bound_contextvars(installation_id=record.id):
            try:
                prepared = await self._prepared(record)
                await patiently(lambda: self._written(record, prepared))
                logger.info("installation_completed", entry=record.entry)
            except LeaseLostError:
                logger.info("lease_lost", epoch=record.lease_epoch)
            except SextantError as error:
                logger.info("installation_failed", detail=error.detail)
                await self.fail(record, error)
            except Exception as error:  # any fault must end it, or it is run forever
                logger.exception("installation_failed")
                await self.fail(record, error)

    async def _prepared(self, record: InstallationRecord) -> Prepared:
        latest: dict[str, Any] = {}
        teller = asyncio.create_task(self._tell(record, latest))
        try:
            return await self._catalog.prepared(record.entry, latest.update)
        finally:
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)

    async def _tell(self, record: InstallationRecord, latest: Mapping[str, Any]) -> None:
        told: dict[str, Any] = {}
        while True:
            if latest != told:
                told = dict(latest)
                try:
                    async with self._database.unit_of_work() as uow:
                        await uow.installations.report(record.id, record.lease_epoch, told)
                except DatabaseUnavailableError:
                    logger.warning("progress_not_stored")
            await asyncio.sleep(_REPORT_S)

    async def _written(self, record: InstallationRecord, prepared: Prepared) -> None:
        """The bank and the end of the installation, in one transaction."""
        for last_try in (False, True):
            try:
                async with self._database.unit_of_work() as uow:
                    _, result = await write(uow, self._banks, prepared)
                    await uow.installations.complete(record.id, record.lease_epoch, result)
            except AlreadyExistsError:  # somebody made a bank of that name meanwhile
                if last_try:
                    raise
            else:
                return

    async def _quotes(self, entry: str) -> bool:
        """Whether faults of an entry's files may quote what stays inside."""
        try:
            return (await self._catalog.listed(entry)).entry.visibility != OPEN
        except SextantError:  # it is no entry any more
            return False

    async def fail(self, record: InstallationRecord, error: Exception) -> None:
        """End claimed work that cannot go on, with the reason."""
        failure: dict[str, Any] = {
            "code": "internal_error",
            "detail": "An unexpected fault ended the installation; the worker's log has the "
            "details under its id.",
            "errors": [],
        }
        if isinstance(error, InvalidInputError) and await self._quotes(record.entry):
            failure |= {
                "code": error.code,
                "detail": f"The files of {record.entry!r} cannot be used. Its bank is withheld, "
                "and the reason may quote them: `sextant banks install` on the server tells it.",
            }
        elif isinstance(error, SextantError):
            failure = {
                "code": error.code,
                "detail": error.detail,
                "errors": [asdict(problem) for problem in error.problems],
            }

        async def attempt() -> None:
            async with self._database.unit_of_work() as uow:
                await uow.installations.fail(record.id, record.lease_epoch, failure)

        try:
            await patiently(attempt)
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
