"""The job queue, for which procrastinate is the transport and nothing more.

A job only says that some worker should run a session or other work. The lease in the work's table
decides who may run it, so a job that is lost, doubled or late does no harm. `Turns` decides whose
work comes next in one process.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

from app.errors import DatabaseUnavailableError
from app.fair_semaphore import Owner
from app.records.projects import SHARE, share_of
from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of leased work: the task that runs it, and the queue in which its jobs wait."""

    task: str
    queue: str


SESSION = JobKind("sextant.run_session", "sessions")
CALIBRATION = JobKind("sextant.run_calibration", "calibrations")
RANKING = JobKind("sextant.run_ranking", "rankings")
INSTALLATION = JobKind("sextant.run_installation", "installations")
#: Prefix of an id -> kind of work.
_KIND_OF = {"ses": SESSION, "cal": CALIBRATION, "rnk": RANKING, "ins": INSTALLATION}

#: Connections of one worker to the queue: listener, heartbeat, fetch, and some for finishing jobs.
_POOL_SIZE = 6


async def _one_by_one(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make each statement of the queue its own transaction, without BEGIN and COMMIT."""
    await connection.set_autocommit(True)


def queue_app(database: Database) -> procrastinate.App:
    """A procrastinate app on Sextant's database."""
    connector = procrastinate.PsycopgConnector(
        conninfo=database.conninfo, min_size=1, max_size=_POOL_SIZE, configure=_one_by_one
    )
    return procrastinate.App(connector=connector)


#: Number of earlier sessions of the same key that wait or run, up to 100. Its negative is a job's
#: priority, so that the tenth session of one key comes after the ninth of every other key.
_EARLIER = """
    SELECT count(*) FROM (
        SELECT FROM sessions s JOIN sessions me ON me.id = %(id)s
            AND s.project_id = me.project_id AND s.created_by IS NOT DISTINCT FROM me.created_by
        WHERE s.finished_at IS NULL AND s.status IN ('queued', 'running', 'waiting')
            AND s.id < me.id LIMIT 100
    ) AS earlier
"""


class JobQueue:
    """Asks the workers to run sessions, rankings, calibrations and installations."""

    def __init__(self, database: Database) -> None:
        self._app = queue_app(database)

    async def enqueue(self, uow: UnitOfWork, resource_id: str, *, is_new: bool = False) -> None:
        """Add a job in the transaction of the unit of work: both are stored, or neither.

        Nothing is added where a job for this resource waits already; none can if the work `is_new`,
        created by this transaction.

        Raises:
            DatabaseUnavailableError: Postgres went away, or has no space.
        """
        kind = _KIND_OF[resource_id.partition("_")[0]]
        connection = await uow.driver_connection()
        # With a savepoint, the refusal of a second job does not undo the caller's own writes.
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


class Turns:
    """Lets work begin unless its owner runs too much already; other work waits.

    Waiting work has no job any more. It begins when other work ends here, or, since it stays
    queued in its table, in another process that rescues it.

    Args:
        alone: Most work that one key may run at a time while no other key wants any.
        run: Runs the work with an id to its end.
        owner_of: Owner of the work with an id; None where the work was deleted.
    """

    def __init__(
        self,
        alone: int,
        *,
        run: Callable[[str], Awaitable[None]],
        owner_of: Callable[[str], Awaitable[Owner | None]],
    ) -> None:
        self.alone = alone
        #: Most work that all owners together run at a time.
        self.places = math.ceil(math.ceil(alone / SHARE) / SHARE)
        self._run = run
        self._owner_of = owner_of
        self._projects: Counter[str | None] = Counter()
        self._owners: Counter[Owner] = Counter()
        self._waiting: dict[Owner, dict[str, None]] = {}

    @property
    def waiting(self) -> list[str]:
        """Ids of the work that waits here for its turn."""
        return [resource_id for line in self._waiting.values() for resource_id in line]

    async def run(self, resource_id: str) -> None:
        """Run work now, and then the work that waits for its place; or let it wait."""
        owner = await self._owner_of(resource_id)
        if owner is None:
            return
        if not self._may_begin(owner):
            self._waiting.setdefault(owner, {})[resource_id] = None
            return
        begun: tuple[Owner, str] | None = (owner, resource_id)
        while begun is not None:
            owner, resource_id = begun
            self._projects[owner.project_id] += 1
            self._owners[owner] += 1
            try:
                await self._run(resource_id)
            finally:
                self._projects[owner.project_id] -= 1
                self._owners[owner] -= 1
            begun = self._next()

    def _may_begin(self, owner: Owner) -> bool:
        mine, keys = self._projects[owner.project_id], self._owners[owner]
        allowed = share_of(self.places - (self._projects.total() - mine))
        return mine < allowed and keys < share_of(allowed - (mine - keys))

    def _next(self) -> tuple[Owner, str] | None:
        """Waiting work of the owner that runs least, if any may begin."""
        ready = [owner for owner in self._waiting if self._may_begin(owner)]
        if not ready:
            return None
        owner = min(ready, key=lambda one: (self._projects[one.project_id], self._owners[one]))
        waiting = self._waiting[owner]
        resource_id = next(iter(waiting))
        del waiting[resource_id]
        if not waiting:
            del self._waiting[owner]
        return owner, resource_id
