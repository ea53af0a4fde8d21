"""What happened in sessions, rankings and calibrations, read for all of them in one statement."""

from collections.abc import Iterable, Mapping
from typing import Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.events import StoredEvent
from app.storage.repositories.session_queries import WITHHELD_SQL
from app.storage.scoping import SEEN, of_opened

Kind = Literal["session", "ranking", "calibration"]

_BANK = """
    JOIN bank_versions ON bank_versions.id = {table}.bank_version_id
    JOIN banks ON banks.id = bank_versions.bank_id
"""
#: Of each kind its table, whether what it says is withheld, and what that takes.
_KINDS: Mapping[Kind, tuple[str, str, str]] = {
    "session": ("sessions", WITHHELD_SQL, _BANK.format(table="sessions")),
    "ranking": ("rankings", "banks.visibility <> 'open'", _BANK.format(table="rankings")),
    "calibration": ("calibrations", "false", ""),
}
_SEEN = "(CAST(:seen_project AS text) IS NULL OR {table}.project_id = :seen_project)"
_NARROWED = of_opened("none: the text itself asks whose it is")
_NEWEST = {
    kind: text(f"""
        SELECT id, event_seq FROM {table}
        WHERE id = ANY(:ids) AND {_SEEN.format(table=table)}
    """)  # noqa: S608 (constants)
    .bindparams(SEEN)
    .execution_options(**_NARROWED)
    for kind, (table, _, _) in _KINDS.items()
}
_SINCE = {
    kind: text(f"""
        SELECT e.{kind}_id AS id, e.seq, e.type, e.data, e.created_at, {withheld} AS withheld
        FROM unnest(CAST(:ids AS text[]), CAST(:after AS int[])) AS seen(id, seq)
        JOIN {kind}_events AS e ON e.{kind}_id = seen.id AND e.seq > seen.seq
        JOIN {table} ON {table}.id = seen.id AND {_SEEN.format(table=table)}
        {bank}
        ORDER BY e.{kind}_id, e.seq LIMIT :limit
    """)  # noqa: S608 (constants)
    .bindparams(SEEN)
    .execution_options(**_NARROWED)
    for kind, (table, withheld, bank) in _KINDS.items()
}


class EventRepository:
    """Questions about stored events, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def newest(self, kind: Kind, ids: Iterable[str]) -> dict[str, int]:
        """Number of the last event of each; what is not there is left out."""
        found = await self._db.execute(_NEWEST[kind], {"ids": list(ids)})
        return {row.id: row.event_seq for row in found}

    async def since(
        self, kind: Kind, seen: Mapping[str, int], *, limit: int = 500
    ) -> dict[str, list[StoredEvent]]:
        """Events behind the numbers of `seen`, in order; the first `limit` of them altogether.

        Args:
            kind: Of what they tell.
            seen: Number of the last known event of each resource, by its id.
            limit: Of events. What comes in one answer of a resource has no gaps.
        """
        values = {"ids": list(seen), "after": list(seen.values()), "limit": limit}
        told: dict[str, list[StoredEvent]] = {}
        for row in await self._db.execute(_SINCE[kind], values):
            event = StoredEvent(row.type, row.data, row.seq, row.created_at, row.withheld)
            told.setdefault(row.id, []).append(event)
        return told
