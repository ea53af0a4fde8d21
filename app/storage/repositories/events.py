"""Events of sessions, rankings and calibrations; one statement reads those of many resources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from sqlalchemy import Integer, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.leased import StoredEvent
from app.records.sessions import SessionEvent
from app.storage.repositories.session_statements import WITHHELD_SQL, as_json
from app.storage.scoping import SEEN, Repository, of_opened

Kind = Literal["session", "ranking", "calibration"]

_BANK = """
    JOIN bank_versions ON bank_versions.id = {table}.bank_version_id
    JOIN banks ON banks.id = bank_versions.bank_id
"""
#: For each kind: its table, the condition for withheld events, and the joins of this condition.
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
_NOTE = {
    kind: text(f"""
        WITH counted AS (
            UPDATE {table} SET event_seq = event_seq + :n WHERE id = :id RETURNING event_seq
        )
        INSERT INTO {kind}_events ({kind}_id, seq, type, data)
        SELECT :id, counted.event_seq - :n + e.nth, e.event ->> 'type', e.event -> 'data'
        FROM counted, jsonb_array_elements(CAST(:events AS jsonb)) WITH ORDINALITY AS e(event, nth)
    """)  # noqa: S608 (constants)
    .bindparams(bindparam("id", type_=Text()), bindparam("n", type_=Integer()))
    .execution_options(**of_opened("the row itself, which was written before"))
    for kind, (table, _, _) in _KINDS.items()
}


async def note_events(
    db: AsyncSession, kind: Kind, resource_id: str, events: Sequence[SessionEvent]
) -> None:
    """Add events of a resource whose row this transaction has written before."""
    if events:
        told = as_json([{"type": event.type, "data": event.data} for event in events])
        await db.execute(_NOTE[kind], {"id": resource_id, "n": len(events), "events": told})


class EventRepository(Repository):
    """Queries of stored events, within one transaction."""

    async def newest(self, kind: Kind, ids: Iterable[str]) -> dict[str, int]:
        """Number of the last event of each resource; resources that do not exist are left out."""
        found = await self._db.execute(_NEWEST[kind], {"ids": list(ids)})
        return {row.id: row.event_seq for row in found}

    async def since(
        self, kind: Kind, seen: Mapping[str, int], *, limit: int = 500
    ) -> dict[str, list[StoredEvent]]:
        """Events after the last known ones, in order; those of a resource come without gaps.

        `seen` has the number of the last known event of each resource, by id.
        """
        values = {"ids": list(seen), "after": list(seen.values()), "limit": limit}
        told: dict[str, list[StoredEvent]] = {}
        for row in await self._db.execute(_SINCE[kind], values):
            event = StoredEvent(row.type, row.data, row.seq, row.created_at, row.withheld)
            told.setdefault(row.id, []).append(event)
        return told
