"""Databases of the tests: one that is emptied after each test, and new ones beside it.

Emptying costs a hundredth of creating a database, because a function in the database does it over
one connection with prepared plans. Other connections stay open, too: Postgres starts a process for
each, which must read the catalogue of all tables anew.
"""

import asyncio
import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any, ClassVar, Self

import psycopg
from psycopg import pq
from sqlalchemy import event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SAWarning
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, Pool
from typing_extensions import override

from app.storage.database import Database

_numbers = count(1)
#: Checked-out connections, and the loop on which they were taken.
_taken: dict[ConnectionPoolEntry, asyncio.AbstractEventLoop] = {}


@event.listens_for(Pool, "checkout")
def _note_taken(_: DBAPIConnection, record: ConnectionPoolEntry, __: object) -> None:
    with suppress(RuntimeError):  # no loop runs: not one of ours
        _taken[record] = asyncio.get_running_loop()


@event.listens_for(Pool, "checkin")
def _note_given_back(_: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    _taken.pop(record, None)


def drop_what_loops_left() -> None:
    """Drop connections that were checked out when their loop was closed.

    A task cancelled at the end of its loop, while it returns a connection, leaves it to the garbage
    collector, which would warn during a later test and fail that one.
    """
    left = [record for record, loop in _taken.items() if loop.is_closed()]
    for record in left:
        del _taken[record]
    if left:
        collect_cancelled()


def collect_cancelled() -> None:
    """Collect connections of tasks cancelled while they took or returned them.

    SQLAlchemy leaves them to the garbage collector, which warns wherever it finds them.
    """
    with warnings.catch_warnings():
        for of_lost_connections in (SAWarning, ResourceWarning):
            warnings.simplefilter("ignore", of_lost_connections)
        gc.collect()


#: Deletes all rows and ends all other connections, so that none of them holds a lock. Returns how
#: many of the connections to keep are still there: the others have ended, or were in use.
#: Foreign keys are not checked meanwhile.
_MAKE_EMPTYING = """
    DO $$
    DECLARE deletions text;
    BEGIN
        SELECT string_agg(format(
                'IF EXISTS (SELECT FROM %1$I.%2$I) THEN DELETE FROM %1$I.%2$I %3$s; END IF;',
                schemaname, tablename,
                CASE tablename WHEN 'projects' THEN 'WHERE name <> ''default''' END), ' ')
            INTO deletions FROM pg_tables
            WHERE schemaname IN ('public', 'procrastinate') AND tablename <> 'alembic_version';
        EXECUTE format($make$
            CREATE FUNCTION kept.make_empty(stay int[]) RETURNS bigint LANGUAGE plpgsql
            SET session_replication_role = replica AS $body$
            DECLARE staying bigint;
            BEGIN
                SELECT count(*) FILTER (WHERE stays), count(pg_terminate_backend(ends)) INTO staying
                    FROM pg_stat_activity,
                    LATERAL (SELECT state = 'idle' AND pid = ANY (stay) AS stays) AS one,
                    LATERAL (SELECT CASE WHEN NOT stays THEN pid END AS ends) AS other
                    WHERE datname = current_database() AND pid <> pg_backend_pid();
                %s
                UPDATE public.projects SET limits = '{}', retention = '{}', revision = 1;
                RETURN staying;
            END $body$ $make$, deletions);
    END $$
"""
#: All columns, and the current migration.
_SCHEMA = """
    SELECT md5(string_agg(attrelid || '.' || attname, ' ' ORDER BY attrelid, attnum)),
        (SELECT max(version_num) FROM alembic_version)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace IN ('public'::regnamespace, 'procrastinate'::regnamespace) AND attnum > 0
"""


def libpq(url: str) -> str:
    """Return the URL of the same database for psycopg."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def executed(database: Database, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """Execute a statement that no code of Sextant would; return its rows, if it has any."""
    async with database.unit_of_work() as uow:
        connection = await uow.driver_connection()
        cursor = await connection.execute(statement.encode(), values or None)
        return await cursor.fetchall() if cursor.description else []


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return what a query finds in the database with this URL."""
    with psycopg.connect(libpq(url)) as connection:
        return connection.execute(query.encode()).fetchall()


def keep_what_empties(url: str) -> None:
    """Create the function that `SharedDatabase` calls in a database with all tables."""
    with psycopg.connect(libpq(url)) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS kept")
        connection.execute(_MAKE_EMPTYING)


@contextmanager
def new_database(server_url: str, template: str) -> Iterator[str]:
    """Copy a database that has no connections; remove the copy at the end."""
    name = f"test_{next(_numbers)}"
    server = make_url(server_url).set(database="postgres")
    address = libpq(server.render_as_string(hide_password=False))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name} TEMPLATE "{template}" STRATEGY file_copy')
    yield server.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class SharedDatabase:
    """One database for all tests of this process in turn, created when needed."""

    def __init__(self, template_url: str) -> None:
        self._template_url = template_url
        self._open = ExitStack()
        self._url: str | None = None
        self._schema: object = None
        self._connection: psycopg.Connection | None = None
        self._database: Database | None = None
        #: Backend processes of Postgres that serve `database`.
        self._served_by: dict[DBAPIConnection, int] = {}

    @property
    def url(self) -> str:
        """Return its URL, `postgresql+psycopg://...`."""
        if self._url is None:
            template = str(make_url(self._template_url).database)
            self._url = self._open.enter_context(new_database(self._template_url, template))
            self._schema = self._connected().execute(_SCHEMA).fetchone()
            KeptConnection.conninfo = Database(self._url).conninfo
        return self._url

    @property
    def database(self) -> Database:
        """Return it opened; cached plans and types of its connections stay."""
        if self._database is None:
            self._database = Database(self.url)
            engine = self._database._engine.sync_engine
            event.listen(engine, "connect", self._note_opened)
            event.listen(engine, "close", lambda gone, _: self._served_by.pop(gone, None))
        return self._database

    def empty(self) -> None:
        """Empty the database after a test; drop it if its tables have changed."""
        connection = self._connected()
        try:
            is_whole = connection.execute(_SCHEMA).fetchone() == self._schema
        except psycopg.errors.UndefinedTable:
            is_whole = False
        if not is_whole:
            self.close()
            return
        kept = [one.backend_pid for one in KeptConnection.kept]
        stay = [*kept, *self._served_by.values()]
        found = connection.execute("SELECT kept.make_empty(%s::int[])", [stay]).fetchone()
        pool = None if self._database is None else self._database._engine.pool
        assert pool is None or isinstance(pool, AsyncAdaptedQueuePool)
        n_idle = len(kept) + (pool.checkedin() if pool else 0)
        if found != (n_idle,) or (pool and pool.checkedout()):
            self._end_connections()
        elif pool:  # the next test waits for a connection on its own loop
            queue: Any = pool._pool
            queue._queue._loop = None

    def close(self) -> None:
        """Remove the database; the next one is new."""
        self._end_connections()
        if self._connection is not None:
            self._connection.close()
        self._open.close()
        self._url = self._database = self._connection = None

    def _end_connections(self) -> None:
        KeptConnection.end_kept()
        if self._database is not None:
            asyncio.run(self._database.dispose())

    def _note_opened(self, opened: DBAPIConnection, _: object) -> None:
        self._served_by[opened] = opened.driver_connection.info.backend_pid

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.broken:
            self._connection = psycopg.connect(libpq(self.url), autocommit=True)
        return self._connection


def _ended() -> pq.abc.PGconn:
    """Return a closed libpq connection."""
    made = pq.PGconn.connect_start(b"host=/nonexistent")
    made.finish()
    return made


class KeptConnection(psycopg.AsyncConnection[Any]):
    """A connection to the tests' database that stays open when this object is closed.

    Attributes:
        conninfo: Connection string of the tests' database.
        kept: Free connections to it, in the state of new ones.
    """

    conninfo: ClassVar[str | None] = None
    kept: ClassVar[list[pq.abc.PGconn]] = []
    _is_of_tests = False

    @classmethod
    @override
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        is_of_tests = conninfo == cls.conninfo
        if is_of_tests and cls.kept:
            connection = cls(cls.kept.pop())
            await connection.set_autocommit(bool(options.get("autocommit")))
        else:
            connection = await super().connect(conninfo, **options)
        connection._is_of_tests = is_of_tests
        return connection

    @override
    async def close(self) -> None:
        is_as_new = False
        try:
            if self._is_of_tests and self.pgconn.transaction_status == pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    await self.execute("DISCARD ALL")
                    is_as_new = True
        finally:
            if is_as_new:
                self.kept.append(self.pgconn)
                self.pgconn = _ended()
            else:
                await super().close()

    @classmethod
    def end_kept(cls) -> None:
        """Close the free connections."""
        while cls.kept:
            cls.kept.pop().finish()
