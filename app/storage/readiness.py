"""State of the database: the revision of its tables, and the work that has not ended."""

import asyncio
from typing import NamedTuple

import psycopg

from app.errors import DatabaseUnavailableError
from app.records.leased import UNDERWAY
from app.storage.database import Database
from app.storage.migrate import is_known, newest_revision

#: Time limit, seconds: callers report other things, too, and must not wait for a hanging database.
_PATIENCE_S = 3.0
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


async def require_current_schema(database: Database) -> str:
    """The revision of the database's tables, which must be the one this code needs or a newer one.

    Processes of the old version continue during an upgrade: migrations remove nothing that they
    use.

    Raises:
        DatabaseUnavailableError: No answer, or no tables, or those of an older revision.
    """
    async with database.unit_of_work() as uow:
        connection = await uow.driver_connection()
        try:
            cursor = await connection.execute("SELECT version_num FROM alembic_version")
            row = await cursor.fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        except psycopg.OperationalError as exc:
            raise DatabaseUnavailableError(f"The database gives no answer: {exc}") from exc
    found, needed = (row[0] if row else None), newest_revision()
    if found is None or (found != needed and is_known(found)):
        raise DatabaseUnavailableError(
            f"The database's tables are at revision {found or 'none'}, this version needs "
            f"{needed}: run `sextant migrate`."
        )
    return str(found)


class Underway(NamedTuple):
    """Number of resources of a kind in a state, and how many are leased (None: not applicable)."""

    kind: str
    status: str
    n: int
    leases: int | None


async def underway(database: Database) -> list[Underway]:
    """Count the unended work of all projects by state, including empty states.

    Raises:
        DatabaseUnavailableError: The database does not answer.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S), database.reading() as uow:
            cursor = await (await uow.driver_connection()).execute(_COUNT.encode())
            return [Underway(*row) for row in await cursor.fetchall()]
    except (TimeoutError, psycopg.Error) as exc:
        raise DatabaseUnavailableError(
            "The database did not answer how much work is in progress."
        ) from exc
