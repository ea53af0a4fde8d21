"""What has not ended, of all projects: few rows, however much was done before."""

import asyncio
from typing import NamedTuple

import psycopg

from app.errors import DatabaseUnavailableError
from app.records.leased import UNDERWAY
from app.storage.database import Database

#: Whoever asks has more to tell, and shall not wait for a database that hangs.
_PATIENCE_S = 3.0
#: Of each kind the table, its states and what else is true of it.
_KINDS = (
    ("session", "sessions", (*UNDERWAY, "waiting", "paused", "awaiting_response"), "true"),
    ("ranking", "rankings", UNDERWAY, "true"),
    ("calibration", "calibrations", UNDERWAY, "parent_id IS NULL"),
    ("calibration_part", "calibrations", UNDERWAY, "parent_id IS NOT NULL"),
    ("installation", "installations", UNDERWAY, "true"),
)
# One state at a time, by the index that begins with it, and known to the planner to be rare.
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
    """How many of one kind are in one state, and how many of them are leased; None: none can be."""

    kind: str
    status: str
    n: int
    leases: int | None


async def underway(database: Database) -> list[Underway]:
    """What is underway, states in which there is nothing included.

    Raises:
        DatabaseUnavailableError: The database does not tell.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S), database.reading() as uow:
            cursor = await (await uow.driver_connection()).execute(_COUNT.encode())
            return [Underway(*row) for row in await cursor.fetchall()]
    except (TimeoutError, psycopg.Error) as exc:
        raise DatabaseUnavailableError("The database does not tell what is underway.") from exc
