"""The job queue: procrastinate as transport, nothing more.

A job only says "somebody should run this session", or this calibration. Who may run it is settled
by the lease in its table, so a job that is lost, doubled or woken too late does no harm.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

from app.errors import DatabaseUnavailableError
from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class JobKind:
    """Work under a lease: the task that runs it, and the queue in which its jobs wait."""

    task: str
    queue: str


SESSION = JobKind("sextant.run_session", "sessions")
CALIBRATION = JobKind("sextant.run_calibration", "calibrations")
RANKING = JobKind("sextant.run_ranking", "rankings")
INSTALLATION = JobKind("sextant.run_installation", "installations")
#: By what the prefix of an id names.
_KIND_OF = {"ses": SESSION, "cal": CALIBRATION, "rnk": RANKING, "ins": INSTALLATION}

#: Connections of one worker to the queue: listener, heartbeat, fetch, and some for finishing jobs.
_POOL_SIZE = 6


async def _one_by_one(connection: psycopg.AsyncConnection[Any]) -> None:
    """Each of the queue's own statements is a transaction: it needs no BEGIN and COMMIT."""
    await connection.set_autocommit(True)


def queue_app(database: Database) -> procrastinate.App:
    """A procrastinate app on Sextant's database."""
    connector = procrastinate.PsycopgConnector(
        conninfo=database.conninfo,
        min_size=1,
        max_size=_POOL_SIZE,
        configure=_one_by_one,
    )
    return procrastinate.App(connector=connector)


#: Sessions of the same key that wait or run and were made before: one's tenth comes after
#: everybody else's ninth. Of very many it does not matter how many there are.
_EARLIER = """
    SELECT count(*) FROM (
        SELECT FROM sessions s JOIN sessions me ON me.id = %(id)s
            AND s.project_id = me.project_id AND s.created_by IS NOT DISTINCT FROM me.created_by
        WHERE s.finished_at IS NULL AND s.status IN ('queued', 'running', 'waiting')
            AND s.id < me.id LIMIT 100
    ) AS earlier
"""


class JobQueue:
    """Asks the workers to run a session, a ranking or a calibration."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._app = queue_app(database)

    async def enqueue(self, uow: UnitOfWork, resource_id: str, *, is_new: bool = False) -> None:
        """Add the job in the unit of work's own transaction: both are stored, or neither.

        A job that waits for this resource already is enough.

        Args:
            uow: The transaction.
            resource_id: What is to be run.
            is_new: It was made in this transaction, so that no job can wait for it.

        Raises:
            DatabaseUnavailableError: Postgres went away, or has no room.
        """
        kind = _KIND_OF[resource_id.partition("_")[0]]
        connection = await uow.driver_connection()
        # A savepoint: the refusal of a second job must not undo the caller's own writes.
        savepoint = contextlib.nullcontext() if is_new else connection.transaction()
        try:
            async with savepoint:
                earlier = 0
                if kind is SESSION:
                    found = await connection.execute(_EARLIER, {"id": resource_id})
                    earlier = int((await found.fetchone() or (0,))[0])
                await self._app.configure_task(
                    kind.task,
                    queue=kind.queue,
                    priority=-earlier,
                    queueing_lock=resource_id,
                    connection=connection,
                ).defer_async(resource_id=resource_id)
        except AlreadyEnqueued:
            pass
        except (ConnectorException, psycopg.OperationalError) as error:
            cause = error.__cause__ or error
            if not isinstance(cause, psycopg.OperationalError):
                raise
            raise DatabaseUnavailableError(f"The queue cannot be written now: {cause}.") from error

    async def enqueue_again(self, resource_ids: Sequence[str]) -> None:
        """Add jobs for what nobody runs, all of them or none."""
        async with self._database.unit_of_work() as uow:
            for resource_id in resource_ids:
                await self.enqueue(uow, resource_id)
