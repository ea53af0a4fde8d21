"""The databases of the tests: one that is emptied after each test, and new ones beside it.

Emptying costs a hundredth of making a new one: what does it is a function of the database itself,
called over one connection whose plans are made once. The connections of the tests stay open, too:
Postgres starts a process for each, which has to learn all tables anew.
"""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
from sqlalchemy import event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SAWarning
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, Pool

from app.storage.database import Database
from tests.kept_connections import KeptConnection

_numbers = count(1)
#: Connections that are out, and the loop on which they were taken.
_taken: dict[ConnectionPoolEntry, asyncio.AbstractEventLoop] = {}


@event.listens_for(Pool, "checkout")
def _note_taken(_: DBAPIConnection, record: ConnectionPoolEntry, __: object) -> None:
    with suppress(RuntimeError):  # no loop runs: it is none of ours
        _taken[record] = asyncio.get_running_loop()


@event.listens_for(Pool, "checkin")
def _note_given_back(_: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
    _taken.pop(record, None)


def drop_what_loops_left() -> None:
    """Drop the connections that were out as their loop was closed.

    A task that is cancelled by the end of its loop, as it gives its connection back, leaves that to
    the garbage collector, which would find it during a later test and fail that one.
    """
    left = [record for record, loop in _taken.items() if loop.is_closed()]
    for record in left:
        del _taken[record]
    if left:
        collect_cancelled()


def collect_cancelled() -> None:
    """Collect the connections of tasks that were cancelled while they took them or gave them back.

    SQLAlchemy leaves them to the garbage collector, which warns wherever it finds them.
    """
    with warnings.catch_warnings():
        for of_lost_connections in (SAWarning, ResourceWarning):
            warnings.simplefilter("ignore", of_lost_connections)
        gc.collect()


#: Removes all rows and ends all other connections, so that whoever is left in it holds no lock; of
#: those that shall stay it tells how many do: the others have ended, or were at work.
#: Foreign keys are not looked at while everything goes.
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
#: All columns, and where the migrations stand.
_SCHEMA = """
    SELECT md5(string_agg(attrelid || '.' || attname, ' ' ORDER BY attrelid, attnum)),
        (SELECT max(version_num) FROM alembic_version)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace IN ('public'::regnamespace, 'procrastinate'::regnamespace) AND attnum > 0
"""


def libpq(url: str) -> str:
    """The same database for psycopg."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def keep_what_empties(url: str) -> None:
    """Put the function that `SharedDatabase` calls into a database with all its tables."""
    with psycopg.connect(libpq(url)) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS kept")
        connection.execute(_MAKE_EMPTYING)


@contextmanager
def new_database(server_url: str, template: str) -> Iterator[str]:
    """A copy of a database to which nobody is connected; gone at the end."""
    name = f"test_{next(_numbers)}"
    server = make_url(server_url).set(database="postgres")
    address = libpq(server.render_as_string(hide_password=False))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name} TEMPLATE "{template}" STRATEGY file_copy')
    yield server.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


class SharedDatabase:
    """The database that tests of this process have one after the other, made when it is needed."""

    def __init__(self, template_url: str) -> None:
        self._template_url = template_url
        self._open = ExitStack()
        self._url: str | None = None
        self._schema: object = None
        self._connection: psycopg.Connection | None = None
        self._database: Database | None = None
        #: Processes of Postgres that serve `database`.
        self._served_by: dict[DBAPIConnection, int] = {}

    @property
    def url(self) -> str:
        """Where it is, `postgresql+psycopg://...`."""
        if self._url is None:
            template = str(make_url(self._template_url).database)
            self._url = self._open.enter_context(new_database(self._template_url, template))
            self._schema = self._connected().execute(_SCHEMA).fetchone()
            KeptConnection.conninfo = Database(self._url).conninfo
        return self._url

    @property
    def database(self) -> Database:
        """The same, opened: what it has learned of Postgres and of our statements stays."""
        if self._database is None:
            self._database = Database(self.url)
            engine = self._database._engine.sync_engine
            event.listen(engine, "connect", self._note_opened)
            event.listen(engine, "close", lambda gone, _: self._served_by.pop(gone, None))
        return self._database

    def empty(self) -> None:
        """Take out what a test has left; a database with other tables is given up."""
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
        elif pool:  # who waits for a connection in the next test does so on a loop of its own
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
