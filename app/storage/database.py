"""The engine, and the one place where driver errors become Sextant's errors."""

import asyncio
import re
import time
from typing import NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic
from sqlalchemy import URL, event, make_url
from sqlalchemy.engine import Connection, ExceptionContext
from sqlalchemy.engine.interfaces import DBAPIConnection, IsolationLevel
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from app.errors import (
    AlreadyExistsError,
    ConflictError,
    DatabaseUnavailableError,
    InvalidInputError,
)
from app.records.leased import UNDERWAY
from app.storage.scoping import ScopedSession
from app.storage.unit_of_work import UnitOfWork

#: The queue's functions name tables without a schema, so all connections search both schemas.
SEARCH_PATH = "public, procrastinate"

_CONNECT_TIMEOUT_S = 10
_POOL_TIMEOUT_S = 30.0
_HEALTH_TIMEOUT_S = 5
#: Callers of `underway` report other things, too, and must not wait for a hanging database.
_COUNT_TIMEOUT_S = 3.0
_RECYCLE_S = 1800
#: A connection taken for use within this time counts as alive, seconds.
_TRUSTED_S = 1.0
_LAST_USE = "sextant_last_use"
# `Key (bank_id)=(bnk_1) is not present in table "banks".`
_GONE = re.compile(r"\)=\((?P<value>.*)\) is not present in table")
_STILL_USED = re.compile(r"\)=\((?P<value>.*)\) is still referenced from table \"(?P<table>\w+)\"")
# `Key (bank_id, key)=(bnk_1, q7) already exists.`
_DUPLICATE_KEY = re.compile(r"Key \((?P<columns>.*?)\)=\((?P<values>.*)\) already exists")
#: For each kind: name, table, states, and a further condition on its rows.
_KINDS = (
    ("session", "sessions", (*UNDERWAY, "waiting", "paused", "awaiting_response"), "true"),
    ("ranking", "rankings", UNDERWAY, "true"),
    ("calibration", "calibrations", UNDERWAY, "parent_id IS NULL"),
    ("calibration_part", "calibrations", UNDERWAY, "parent_id IS NOT NULL"),
    ("installation", "installations", UNDERWAY, "true"),
)
# One query per state, so that the planner uses the index on the state and knows the state is rare.
_COUNT = " UNION ALL ".join(
    [
        f"SELECT '{kind}', '{status}', count(*), "  # noqa: S608 (names above)
        "count(*) FILTER (WHERE lease_expires_at > now()) "
        f"FROM {table} WHERE status = '{status}' AND {condition}"
        for kind, table, states, condition in _KINDS
        for status in states
    ]
    + [
        "SELECT 'webhook_delivery', 'pending', count(*), NULL FROM webhook_deliveries "
        "WHERE due_at IS NOT NULL"
    ]
)


class Underway(NamedTuple):
    """Number of resources of a kind in a state, and how many are leased (None: not applicable)."""

    kind: str
    status: str
    n: int
    leases: int | None


class Database:
    """A pool of connections to one Postgres database.

    Args:
        url: `postgresql+psycopg://...`; `postgresql://` is understood too.
        pool_size: Number of connections kept open; under load, as many more are opened.
    """

    def __init__(self, url: str, *, pool_size: int = 16) -> None:
        self._url = _with_options(make_url(url))
        self._engine = create_async_engine(
            self._url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=_POOL_TIMEOUT_S,
            pool_recycle=_RECYCLE_S,
            pool_use_lifo=True,
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
        event.listen(self._engine.sync_engine, "handle_error", _translate)
        event.listen(self._engine.sync_engine, "checkout", self._ping_after_a_rest)
        # All use one pool; AUTOCOMMIT is without BEGIN and COMMIT around each statement.
        self._sessions, self._reading, self._of_one_moment = (
            async_sessionmaker(engine, expire_on_commit=False, sync_session_class=ScopedSession)
            for engine in (
                self._engine,
                _at(self._engine, "AUTOCOMMIT"),
                _at(self._engine, "REPEATABLE READ"),
            )
        )

    @property
    def conninfo(self) -> str:
        """Connection string for libpq clients, such as the queue's pool; contains the password."""
        # Keywords, not a URL, because libpq does not decode a + in a URL as a space.
        _, keywords = self._engine.dialect.create_connect_args(self._url)
        del keywords["context"]  # SQLAlchemy's own, psycopg's way of adapting types
        return make_conninfo(**keywords)

    def unit_of_work(self) -> UnitOfWork:
        """One transaction: commits on clean exit, rolls back on an error."""
        return UnitOfWork(self._sessions)

    def reading(self) -> UnitOfWork:
        """For queries without a transaction: each statement sees the present state in one trip.

        Several statements that must agree with each other need a `unit_of_work`. So do all writes
        that take more than one statement.
        """
        return UnitOfWork(self._reading)

    def snapshot(self) -> UnitOfWork:
        """For queries that must agree: all of them see the state at the first one."""
        return UnitOfWork(self._of_one_moment)

    def _ping_after_a_rest(
        self, connection: DBAPIConnection, record: ConnectionPoolEntry, _: PoolProxiedConnection
    ) -> None:
        """Replace a connection that died with a stopped server before it is used.

        SQLAlchemy's own pre-ping runs at every checkout, and costs each transaction a round trip.
        """
        now, used_at = time.monotonic(), record.info.get(_LAST_USE)
        record.info[_LAST_USE] = now
        # New connections have just answered, and refusing them here would hide the real error.
        if used_at is None or now - used_at < _TRUSTED_S:
            return
        try:
            self._engine.sync_engine.dialect.do_ping(connection)
        except psycopg.Error as error:
            raise DisconnectionError from error

    async def healthy(self) -> bool:
        """Whether the database answers within a few seconds."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S), self.reading() as uow:
                await uow.ping()
                return True
        except (DatabaseUnavailableError, TimeoutError):
            return False

    async def underway(self) -> list[Underway]:
        """Count the unended work of all projects by state, including empty states.

        Raises:
            DatabaseUnavailableError: The database does not answer.
        """
        try:
            async with asyncio.timeout(_COUNT_TIMEOUT_S), self.reading() as uow:
                cursor = await (await uow.driver_connection()).execute(_COUNT.encode())
                return [Underway(*row) for row in await cursor.fetchall()]
        except (TimeoutError, psycopg.Error) as exc:
            raise DatabaseUnavailableError(
                "The database did not answer how much work is in progress."
            ) from exc

    async def dispose(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


def _at(engine: AsyncEngine, level: IsolationLevel) -> AsyncEngine:
    """The same pool, at another isolation level.

    With SQLAlchemy's option of engines, a task that is cancelled while the level is set leaves the
    connection to the garbage collector.
    """
    other = engine.execution_options()

    @event.listens_for(other.sync_engine, "engine_connect")
    def set_level(connection: Connection) -> None:
        try:
            connection.execution_options(isolation_level=level)
        except BaseException:
            connection.invalidate()  # it may be at that level, or not
            connection.close()
            raise

    return other


def _with_options(url: URL) -> URL:
    options = url.query.get("options", "")
    given = " ".join(options) if isinstance(options, tuple) else options
    # In a zone ahead of UTC, the last times that Python can hold are read as of the year 10000.
    own = f"-c search_path={SEARCH_PATH.replace(' ', '')} -c timezone=UTC"
    return url.set(drivername="postgresql+psycopg").update_query_dict(
        {"options": f"{given} {own}".strip()}
    )


def _translate(context: ExceptionContext) -> None:
    """Raise the Sextant error that corresponds to a driver's error, if there is one."""
    # A cancelled task counts as a disconnect here, but it must stay a cancelled task.
    if not isinstance(context.original_exception, Exception):
        return
    match context.original_exception:
        case psycopg.errors.UniqueViolation() as error:
            raise AlreadyExistsError(_duplicate(error.diag))
        case psycopg.errors.ForeignKeyViolation() as error:
            raise ConflictError(_reference(error.diag))
        case psycopg.DataError() as error:
            raise InvalidInputError(f"A value cannot be stored: {_first_line(error)}.")
        case UnicodeEncodeError() as error:
            raise InvalidInputError(f"A text cannot be stored as UTF-8: {error.reason}.")
        case psycopg.errors.UndefinedTable() as error:
            raise DatabaseUnavailableError(
                f"The database lacks tables ({_first_line(error)}): run `sextant migrate`."
            )
        case psycopg.OperationalError() as error:
            raise DatabaseUnavailableError(
                f"The database cannot serve this now: {_first_line(error)}."
            )
        case error if context.is_disconnect:
            raise DatabaseUnavailableError(
                f"The connection to the database broke: {_first_line(error)}."
            )
        case _:
            pass  # a fault in our own SQL is not translated


def _reference(diag: Diagnostic) -> str:
    detail = diag.message_detail or ""
    if found := _STILL_USED.search(detail):
        return f"{found['value']} cannot be deleted: something in {found['table']} refers to it."
    if found := _GONE.search(detail):
        return f"{found['value']} is not there any more: it was deleted meanwhile."
    return f"A row of {diag.table_name} refers to something that is not there: {detail}"


def _duplicate(diag: Diagnostic) -> str:
    found = _DUPLICATE_KEY.search(diag.message_detail or "")
    # Expressions and very long values come without a detail; then the constraint's name helps.
    what = f"this {diag.constraint_name}"
    if found:
        columns, values = found["columns"], found["values"]
        # Names are unique within a project or bank; its id means nothing to users.
        while (first := columns.partition(", "))[2] and first[0].endswith("_id"):
            columns, values = first[2], values.partition(", ")[2]
        while columns.endswith(")"):  # an expression is not what the user named
            columns, values = columns.rpartition(", ")[0], values.rpartition(", ")[0]
        what = f"the {columns} {values!r}"
    among = (diag.table_name or "").replace("_", " ")
    return f"Among the {among} there is already one with {what}."


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
