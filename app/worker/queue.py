"""The job queue: procrastinate as transport, nothing more.

A job only says "somebody should run this session". Who may run it is settled by the lease in the
table `sessions`, so a job that is lost, doubled or woken too late does no harm.
"""

from contextlib import suppress

import procrastinate
from procrastinate.exceptions import AlreadyEnqueued

from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork

QUEUE = "sessions"
RUN_SESSION = "sextant.run_session"

#: Connections of one worker to the queue: listener, heartbeat, fetch, and some for finishing jobs.
_POOL_SIZE = 6


def queue_app(database: Database) -> procrastinate.App:
    """A procrastinate app on Sextant's database."""
    connector = procrastinate.PsycopgConnector(
        conninfo=database.conninfo, min_size=1, max_size=_POOL_SIZE
    )
    return procrastinate.App(connector=connector)


class JobQueue:
    """Asks the fleet of workers to run a session."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._app = queue_app(database)

    async def enqueue(self, uow: UnitOfWork, session_id: str) -> None:
        """Add the job in the unit of work's own transaction: both are stored, or neither."""
        await self._app.configure_task(
            RUN_SESSION,
            queue=QUEUE,
            queueing_lock=session_id,
            connection=await uow.driver_connection(),
        ).defer_async(session_id=session_id)

    async def enqueue_again(self, session_id: str) -> None:
        """Add a job for a session that nobody runs; one that is already waiting is enough."""
        with suppress(AlreadyEnqueued):
            async with self._database.unit_of_work() as uow:
                await self.enqueue(uow, session_id)
