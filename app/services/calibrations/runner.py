"""Run a claimed calibration: read the answers, fit in a child process, store the result."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import structlog
from typing_extensions import override

from app.calibration.pipeline.fit import decided
from app.calibration.pipeline.logistic import FittedPart, digest_of, parts_for, require_same_answers
from app.calibration.pipeline.plan import CalibrationPlan
from app.errors import CalibrationError, DatabaseUnavailableError, LeaseLostError, SextantError
from app.records.calibrations import CalibrationRecord, FittedItems
from app.records.leased import Failure
from app.services.calibrations.process import fit_in_process
from app.services.calibrations.publication import Output, Publication, output_of
from app.services.calibrations.service import CalibrationService
from app.services.leased import LeasedRunner, Queue, failure_of
from app.services.waiting import retry_outages
from app.storage.repositories.calibrations import CalibrationRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

#: A calibration that has lost this many workers counts as the cause of their end.
MAX_CLAIMS = 10


@dataclass(eq=False, kw_only=True)
class CalibrationRunner(LeasedRunner[CalibrationRecord]):
    """Drives claimed calibrations, and parts of calibrations, of one worker process.

    Only progress is stored before the end, so a worker that takes over from a lost one starts from
    the beginning. The worker that ends the last part of a calibration queues the calibration
    itself, which then joins its parts.
    """

    kind = "calibration"

    calibrations: CalibrationService
    queue: Queue

    @override
    def rows(self, uow: UnitOfWork) -> CalibrationRepository:
        return uow.calibrations

    @override
    async def _run(self, record: CalibrationRecord) -> None:
        output = await self._fit(record)
        wanted = None if record.publication is None else Publication(**record.publication)
        try:
            await self._write(lambda: self._store(record, output, wanted))
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except SextantError as error:
            if wanted is None:
                raise
            failure = failure_of(error)
            await self._write(lambda: self._store(record, output, unpublished=failure))
        logger.info("calibration_completed", converged=output.result["converged"])

    async def _fit(self, record: CalibrationRecord) -> Output:
        if record.lease_epoch > MAX_CLAIMS:
            raise CalibrationError(
                f"The calibration was started {MAX_CLAIMS} times and each time its worker was "
                "lost, perhaps for lack of memory."
            )
        started = time.monotonic()

        async def report(progress: dict[str, Any]) -> None:
            try:
                async with self.leasing.database.unit_of_work() as uow:
                    seconds = round(time.monotonic() - started, 1)
                    await uow.calibrations.report(record, {**progress, "seconds": seconds})
            except DatabaseUnavailableError:
                logger.warning("progress_not_stored")

        await report({"phase": "reading"})
        asked = CalibrationPlan.from_dict(record.settings)
        given = await retry_outages(
            lambda: self.calibrations.prepared(record.response_set_id, asked)
        )
        filtered = given.filtered
        plan = await asyncio.to_thread(decided, filtered.matrix, given.plan)
        if record.part is not None:
            items = parts_for(filtered.matrix, plan)[record.part]
            own = filtered.matrix.select(items=items)
            fitted = await fit_in_process(own, plan, report, part=record.part)
            answers = {"answers": await asyncio.to_thread(digest_of, filtered.matrix)}
            figures = {**answers, **fitted.figures}
            return Output(figures, FittedItems(own.items, fitted.columns), given.response_set)
        parts = await retry_outages(lambda: self._parts(record)) if record.n_parts else []
        if parts:
            require_same_answers(parts, await asyncio.to_thread(digest_of, filtered.matrix))
        fitted = await fit_in_process(filtered.matrix, plan, report, parts=parts)
        return output_of(given.response_set, filtered, fitted, time.monotonic() - started)

    async def _parts(self, record: CalibrationRecord) -> list[FittedPart]:
        async with self.leasing.database.unit_of_work() as uow:
            stored = [
                (part.result, await uow.calibrations.fitted(part.id))
                for part in await uow.calibrations.parts(record.id)
            ]
        return [
            FittedPart(fitted.keys, result, dict(fitted.columns))
            for result, fitted in stored
            if result is not None and fitted is not None
        ]

    async def _store(
        self,
        record: CalibrationRecord,
        output: Output,
        publication: Publication | None = None,
        unpublished: Failure | None = None,
    ) -> None:
        """Store the result, and with it the requested version or the reason why there is none."""
        async with self.leasing.database.unit_of_work() as uow:
            if publication is not None:
                # Banks are locked before calibrations.
                await uow.banks.known(publication.bank, for_update=True)
            ready = await uow.calibrations.complete(
                record, output.result, output.items, output.examinees
            )
            if ready is not None:
                await self.queue.enqueue(uow, ready)
            if publication is not None:
                await self.calibrations.publish_within(uow, record, output, publication)
            if unpublished is not None:
                await uow.calibrations.note_unpublished(record.id, unpublished)

    @override
    async def _abandon(
        self, uow: UnitOfWork, record: CalibrationRecord, error: SextantError
    ) -> None:
        await uow.calibrations.fail(record, failure_of(error))
