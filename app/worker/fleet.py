"""What one worker process runs now, and the leases under which it does."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from app.errors import DatabaseUnavailableError, LeaseLapsedError
from app.services.leased import Claimed, LeasedRunner
from app.storage.leased import MAX_LAPSES

logger = structlog.get_logger(__name__)

R = TypeVar("R", bound=Claimed)

_NO_END = (
    f"It was begun {MAX_LAPSES + 1} times, the last time alone, and each time its worker showed no "
    "sign of life until the lease ran out: something in it stops the process that runs it, such as "
    "a scorer that never ends. The answers so far are kept."
)


#: Does claimed work, by its id and lease, in a process of its own; calls back once that has started
#: and keeps the lease itself.
Alone = Callable[[str, int, Callable[[], object]], Coroutine[Any, Any, None]]


class Fleet(Generic[R]):
    """Runs claimed work of one kind as tasks; a lost lease stops its task.

    Args:
        runner: Drives one session, ranking or calibration.
        heartbeat_s: Seconds between heartbeats; a fraction of the runner's lease.
        alone: Does what has lapsed too often once more; None where work has its own process anyhow.
        on_heartbeat: Told of each renewal.
    """

    def __init__(
        self,
        *,
        runner: LeasedRunner[R],
        heartbeat_s: float,
        alone: Alone | None = None,
        on_heartbeat: Callable[[], object] = lambda: None,
    ) -> None:
        self._runner = runner
        self._heartbeat_s = heartbeat_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._epochs: dict[str, int] = {}
        self._alone = alone
        self._on_heartbeat = on_heartbeat
        self._apart: set[str] = set()

    async def run(self, resource_id: str) -> None:
        """Claim a session and see it through, unless it has ended or somebody else has it.

        Cancelling the caller does not cancel the session: the queue's worker may be restarted
        while its sessions go on. Calibrations likewise.
        """
        record = await self._runner.claim(resource_id)
        if record is None:
            return
        await self.take_on(resource_id, record)

    async def take_on(self, resource_id: str, record: R) -> None:
        """See claimed work through."""
        task = asyncio.create_task(self._see_through(resource_id, record), name=resource_id)
        self._running[resource_id] = task
        self._epochs[resource_id] = record.lease_epoch
        task.add_done_callback(lambda done: self._forget(resource_id, done))
        await asyncio.shield(task)

    async def _see_through(self, resource_id: str, record: R) -> None:
        if record.lapses > MAX_LAPSES:
            logger.error("lapsed_too_often", id=resource_id, lapses=record.lapses)
            await self._runner.fail(record, LeaseLapsedError(_NO_END))
        elif record.lapses == MAX_LAPSES and self._alone is not None:
            logger.warning("runs_alone", id=resource_id, lapses=record.lapses)
            try:
                started = partial(self._apart.add, resource_id)
                await self._alone(resource_id, record.lease_epoch, started)
            finally:
                self._apart.discard(resource_id)
        else:
            await self._runner.drive(record)

    def _forget(self, resource_id: str, done: asyncio.Task[None]) -> None:
        # After a lease was lost and won again, the name may stand for a newer task.
        if self._running.get(resource_id) is done:
            del self._running[resource_id], self._epochs[resource_id]

    async def keep_leases(self) -> None:
        """Renew all leases at every heartbeat; stop what is no longer ours."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            mine = {id_: epoch for id_, epoch in self._epochs.items() if id_ not in self._apart}
            if not mine:
                continue
            try:
                kept = await self._runner.renew(mine)
            except DatabaseUnavailableError:
                # Nobody else can claim anything either; writes are fenced by the epoch.
                logger.warning("heartbeat_missed", leases=len(mine))
                continue
            except Exception:  # it must not take the worker with it
                logger.exception("heartbeat_failed")
                continue
            self._on_heartbeat()
            for resource_id in mine.keys() - kept:
                task = self._running.get(resource_id)
                if task is not None and self._epochs[resource_id] == mine[resource_id]:
                    logger.info("lease_taken_away", id=resource_id)
                    task.cancel()

    async def stop(self) -> None:
        """Stop everything and give the leases back, so that other workers go on at once."""
        leases = dict(self._epochs)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leases:
            try:
                await self._runner.release(leases)
            except DatabaseUnavailableError:
                logger.warning("leases_not_released", leases=len(leases))
