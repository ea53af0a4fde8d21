"""Runs claimed work: renews its lease, stops it when cancelled, fails it after many lapses."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import ClassVar, Generic, Protocol, TypeVar

import structlog

from app.acting import Acting, acting_for
from app.errors import (
    AlreadyExistsError,
    DatabaseUnavailableError,
    LeaseLapsedError,
    LeaseLostError,
    SextantError,
    StaleStepError,
)
from app.fair_semaphore import Owner
from app.observability import LEASES_LOST, run_span
from app.records.leased import Failure, LeasedRecord
from app.services.waiting import retry_outages
from app.storage.database import Database
from app.storage.leased import MAX_LAPSES, LeasedRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

#: Message to users about a fault of Sextant itself.
_FAULT = (
    "An unexpected fault ended it; the server's log has the details under its id. What was stored "
    "so far is kept."
)
_NO_END = (
    f"It was started {MAX_LAPSES + 1} times, and each time its worker showed no sign of life "
    "until the lease ran out: something in it may stop the process that runs it, such as a "
    "scorer that never ends. The answers so far are kept."
)

R = TypeVar("R", bound=LeasedRecord)


class Queue(Protocol):
    """Queue that brings work to the workers."""

    def enqueue(
        self, uow: UnitOfWork, resource_id: str, *, is_new: bool = False
    ) -> Awaitable[None]:
        """Queue work in the given transaction; `is_new` if that transaction created the work."""
        ...


@contextmanager
def acting_as(kind: str, record: LeasedRecord) -> Iterator[None]:
    """Act for the key and project that made a record, until the block ends.

    Reads see the data of that project, and calls count against its budgets. Log lines name the
    record, its key, its project and the request that made it.
    """
    told = {
        f"{kind}_id": record.id,
        "key_id": record.created_by,
        "project_id": record.project_id,
        "request_id": record.request_id,
    }
    acting = Acting(record.project_id, record.created_by)
    with structlog.contextvars.bound_contextvars(**told), acting_for(acting):
        yield


def failure_of(error: SextantError) -> Failure:
    """Stored form of the error that ended work."""
    problems = [asdict(problem) for problem in error.problems]
    return {"code": error.code, "detail": error.detail, "errors": problems}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leasing:
    """Settings by which one process holds its leases.

    Attributes:
        lease: Time for which a claim holds without a heartbeat.
        heartbeat_s: Seconds between heartbeats; a fraction of the lease.
    """

    database: Database
    worker_id: str
    lease: timedelta
    heartbeat_s: float


@dataclass(eq=False)
class LeasedRunner(ABC, Generic[R]):
    """Runs claimed work of one `kind` as tasks of one process; a lost lease stops its task."""

    kind: ClassVar[str]

    leasing: Leasing
    _running: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)
    _epochs: dict[str, int] = field(init=False, default_factory=dict)

    @abstractmethod
    def rows(self, uow: UnitOfWork) -> LeasedRepository[R]:
        """The table of this kind of work."""

    @abstractmethod
    async def _run(self, record: R) -> None:
        """Run claimed work to its end, from its stored state."""

    @abstractmethod
    async def _abandon(self, uow: UnitOfWork, record: R, error: SextantError) -> None:
        """Store that claimed work ends without a result, and why."""

    async def run(self, resource_id: str) -> None:
        """Claim work and run it to its end, unless it has ended or another worker has it.

        Cancelling the caller does not cancel the work: the queue's worker may be restarted while
        its sessions go on.
        """
        lease, worker_id = self.leasing.lease, self.leasing.worker_id
        async with self.leasing.database.unit_of_work() as uow:
            record = await self.rows(uow).claim(resource_id, worker_id=worker_id, lease=lease)
        if record is None:
            return
        with acting_as(self.kind, record):
            if record.lapses:
                LEASES_LOST.labels(self.kind).inc()
            task = asyncio.create_task(self.drive(record), name=record.id)  # inherits this context
        self._running[record.id] = task
        self._epochs[record.id] = record.lease_epoch
        task.add_done_callback(lambda done: self._forget(record.id, done))
        await asyncio.shield(task)

    async def owner_of(self, resource_id: str) -> Owner | None:
        """Project and API key that own the work; None where the work was deleted."""
        async with self.leasing.database.reading() as uow:
            return await self.rows(uow).owner_of(resource_id)

    def _forget(self, resource_id: str, done: asyncio.Task[None]) -> None:
        # After a lease was lost and won again, the id may belong to a newer task.
        if self._running.get(resource_id) is done:
            del self._running[resource_id], self._epochs[resource_id]

    async def keep_leases(self) -> None:
        """Renew all leases at every heartbeat; stop tasks whose leases were lost."""
        while True:
            await asyncio.sleep(self.leasing.heartbeat_s)
            mine = dict(self._epochs)
            if not mine:
                continue
            try:
                async with self.leasing.database.unit_of_work() as uow:
                    kept = await self.rows(uow).renew(mine, lease=self.leasing.lease)
            except DatabaseUnavailableError:
                # No other worker can claim anything either; the epoch fences writes.
                logger.warning("heartbeat_missed", leases=len(mine))
                continue
            except Exception:  # no fault may end the worker
                logger.exception("heartbeat_failed")
                continue
            for resource_id in mine.keys() - kept:
                task = self._running.get(resource_id)
                if task is not None and self._epochs[resource_id] == mine[resource_id]:
                    logger.info("lease_taken_away", id=resource_id)
                    task.cancel()

    async def stop(self) -> None:
        """Stop all tasks and release their leases, so that other workers continue at once."""
        leases = dict(self._epochs)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leases:
            try:
                async with self.leasing.database.unit_of_work() as uow:
                    await self.rows(uow).release(leases)
            except DatabaseUnavailableError:
                logger.warning("leases_not_released", leases=len(leases))

    async def drive(self, record: R) -> None:
        """Run claimed work until it ends, or until the lease is lost."""
        if record.lapses > MAX_LAPSES:
            logger.error("lapsed_too_often", lapses=record.lapses)
            await self.fail(record, LeaseLapsedError(_NO_END))
            return
        failed = f"{self.kind}_failed"
        try:
            with run_span(self.kind, record.id, record.lease_epoch):
                await self._run(record)
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
        except Exception as error:  # any fault must end the work, or it runs forever
            if isinstance(error, SextantError):  # its text may quote an item: not logged
                logger.warning(failed, code=error.code)
            else:
                logger.exception(failed)
            await self.fail(record, error)

    async def fail(self, record: R, error: Exception) -> bool:
        """End claimed work with the error as reason; return whether the lease was still held."""
        told = error if isinstance(error, SextantError) else SextantError(_FAULT)

        async def abandoned() -> None:
            async with self.leasing.database.unit_of_work() as uow:
                await self._abandon(uow, record, told)

        try:
            await self._write(abandoned)
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
            return False
        return True

    @staticmethod
    async def _write(write: Callable[[], Awaitable[None]]) -> None:
        """Write under the lease in one transaction; retry while Postgres is away."""
        tries = 0

        async def attempt() -> None:
            nonlocal tries
            tries += 1
            try:
                await write()
            except (AlreadyExistsError, StaleStepError):
                # Nobody else writes under this lease: an earlier try was committed, and only the
                # confirmation was lost with the connection.
                if tries == 1:
                    raise

        await retry_outages(attempt)
