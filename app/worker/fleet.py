"""The sessions that one worker process runs now, and the leases under which it runs them."""

import asyncio
from datetime import timedelta

import structlog

from app.errors import DatabaseUnavailableError
from app.services.session_runner import SessionRunner
from app.storage.database import Database

logger = structlog.get_logger(__name__)


class Fleet:
    """Runs claimed sessions as tasks; a lost lease stops its task.

    Args:
        database: Where the leases are.
        runner: Drives one session.
        lease: How long a session stays ours without a heartbeat.
        heartbeat_s: Seconds between heartbeats; a fraction of `lease`.
    """

    def __init__(
        self, *, database: Database, runner: SessionRunner, lease: timedelta, heartbeat_s: float
    ) -> None:
        self._database = database
        self._runner = runner
        self._lease = lease
        self._heartbeat_s = heartbeat_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._epochs: dict[str, int] = {}

    async def run(self, session_id: str) -> None:
        """Claim a session and see it through, unless it has ended or somebody else has it.

        Cancelling the caller does not cancel the session: the queue's worker may be restarted
        while its sessions go on.
        """
        record = await self._runner.claim(session_id)
        if record is None:
            return
        task = asyncio.create_task(self._runner.drive(record), name=f"session {session_id}")
        self._running[session_id] = task
        self._epochs[session_id] = record.lease_epoch
        task.add_done_callback(lambda done: self._forget(session_id, done))
        await asyncio.shield(task)

    def _forget(self, session_id: str, done: asyncio.Task[None]) -> None:
        # After a lease was lost and won again, the name may stand for a newer task.
        if self._running.get(session_id) is done:
            del self._running[session_id], self._epochs[session_id]

    async def keep_leases(self) -> None:
        """Renew all leases at every heartbeat; stop the sessions that are no longer ours."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            mine = dict(self._epochs)
            if not mine:
                continue
            try:
                async with self._database.unit_of_work() as uow:
                    kept = await uow.sessions.renew(mine, lease=self._lease)
            except DatabaseUnavailableError:
                # Nobody else can claim anything either; writes are fenced by the epoch.
                logger.warning("heartbeat_missed", sessions=len(mine))
                continue
            for session_id in mine.keys() - kept:
                task = self._running.get(session_id)
                if task is not None and self._epochs[session_id] == mine[session_id]:
                    logger.info("session_taken_away", session_id=session_id)
                    task.cancel()

    async def stop(self) -> None:
        """Stop all sessions and give their leases back, so that other workers go on at once."""
        leases = dict(self._epochs)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leases:
            try:
                async with self._database.unit_of_work() as uow:
                    await uow.sessions.release(leases)
            except DatabaseUnavailableError:
                logger.warning("leases_not_released", sessions=len(leases))
