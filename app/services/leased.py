"""Runs claimed work: what the runners of sessions, rankings and calibrations have in common."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import ClassVar, Generic, Protocol, TypeVar

import structlog

from app.errors import AlreadyExistsError, LeaseLostError, SextantError, StaleStepError
from app.services.patience import patiently
from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

#: What people are told of a fault that is not theirs.
_FAULT = (
    "An unexpected fault ended it; the server's log has the details under its id. What was stored "
    "so far is kept."
)


class Claimed(Protocol):
    """What a claim gives: a row under our lease."""

    @property
    def id(self) -> str:
        """Of the session, ranking or calibration."""
        ...

    @property
    def lease_epoch(self) -> int:
        """Number of the lease, which every write names."""
        ...

    @property
    def lapses(self) -> int:
        """How often in a row its lease ran out without a step."""
        ...


R = TypeVar("R", bound=Claimed)
T_co = TypeVar("T_co", covariant=True)


class Leases(Protocol[T_co]):
    """The table in which the work stands, within one transaction."""

    async def claim(self, resource_id: str, /, *, worker_id: str, lease: timedelta) -> T_co | None:
        """Take the lease; None when the work has ended or somebody else has it."""
        ...

    async def renew(self, leases: Mapping[str, int], /, *, lease: timedelta) -> set[str]:
        """Prolong leases (id -> epoch) that are still ours; returns which those are."""
        ...

    async def release(self, leases: Mapping[str, int], /) -> None:
        """Give leases up."""
        ...


class LeasedRunner(ABC, Generic[R]):
    """Drives claimed work of one kind, in one worker process.

    Attributes:
        kind: The work's name in logs.

    Args:
        database: Where it stands.
        worker_id: Names this process in leases.
        lease: How long a claim holds without a heartbeat.
    """

    kind: ClassVar[str]

    def __init__(self, *, database: Database, worker_id: str, lease: timedelta) -> None:
        self._database = database
        self._worker_id = worker_id
        self._lease = lease

    @abstractmethod
    def _leases(self, uow: UnitOfWork) -> Leases[R]:
        """The table of this kind of work."""

    @abstractmethod
    async def _run(self, record: R) -> None:
        """Go on with claimed work to its end.

        Raises:
            LeaseLostError: It is somebody else's by now.
        """

    @abstractmethod
    async def _abandon(self, uow: UnitOfWork, record: R, error: SextantError) -> None:
        """Store that claimed work ends without a result, and why."""

    async def claim(self, resource_id: str) -> R | None:
        """Take the lease; None when the work has ended or somebody else has it."""
        async with self._database.unit_of_work() as uow:
            return await self._leases(uow).claim(
                resource_id, worker_id=self._worker_id, lease=self._lease
            )

    async def renew(self, leases: Mapping[str, int]) -> set[str]:
        """Prolong leases (id -> epoch) that are still ours; returns which those are."""
        async with self._database.unit_of_work() as uow:
            return await self._leases(uow).renew(leases, lease=self._lease)

    async def release(self, leases: Mapping[str, int]) -> None:
        """Give leases up, so that another worker goes on at once."""
        async with self._database.unit_of_work() as uow:
            await self._leases(uow).release(leases)

    async def drive(self, record: R) -> None:
        """Go on with claimed work until it ends, or until the lease is lost."""
        failed = f"{self.kind}_failed"
        with structlog.contextvars.bound_contextvars(**{f"{self.kind}_id": record.id}):
            try:
                await self._run(record)
            except LeaseLostError:
                logger.info("lease_lost", epoch=record.lease_epoch)
            except Exception as error:  # any fault must end the work, or it is run forever
                if isinstance(error, SextantError):  # its words may quote an item: not for a log
                    logger.warning(failed, code=error.code)
                else:
                    logger.exception(failed)
                await self.fail(record, error)

    async def fail(self, record: R, error: Exception) -> bool:
        """End claimed work that cannot go on, with the reason; whether it was still ours."""
        told = error if isinstance(error, SextantError) else SextantError(_FAULT)
        try:
            await self._write(lambda uow: self._abandon(uow, record, told))
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
            return False
        return True

    async def _write(self, write: Callable[[UnitOfWork], Awaitable[None]]) -> None:
        """Write under the lease in one transaction; see `_persist`."""

        async def attempt() -> None:
            async with self._database.unit_of_work() as uow:
                await write(uow)

        await self._persist(attempt)

    @staticmethod
    async def _persist(write: Callable[[], Awaitable[None]]) -> None:
        """Write under the lease, again while Postgres is away.

        Raises:
            LeaseLostError: It is somebody else's by now.
        """
        tries = 0

        async def attempt() -> None:
            nonlocal tries
            tries += 1
            try:
                await write()
            except (AlreadyExistsError, StaleStepError):
                # Nobody else writes under this lease: it was stored before, and only the word of
                # its commit was lost with the connection.
                if tries == 1:
                    raise

        await patiently(attempt)
