"""What a project and its keys may still store: asked before something new is begun."""

import time
from typing import Any

from cachetools import TTLCache
from sqlalchemy import and_, bindparam, func, select, text, true
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import maker, owner
from app.errors import StorageFullError, TooManySessionsError
from app.records.projects import Allotment
from app.storage.rows.endpoints import ApiKeyRow
from app.storage.rows.projects import ProjectRow
from app.storage.rows.sessions import SessionRow
from app.storage.scoping import of_opened

_OPEN_SESSIONS, _STORED_BYTES = "open_sessions", "stored_bytes"
_OWN_KEY = and_(ApiKeyRow.id == bindparam("key_id"), ApiKeyRow.project_id == ProjectRow.id)
#: Of banks, response sets, baselines and ended sessions, as it lies on the disk.
_BYTES = text("""
    SELECT coalesce(sum(bytes), 0)::bigint FROM (
        SELECT pg_column_size(i.content) AS bytes FROM banks o JOIN items i ON i.bank_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT pg_column_size(a.examinee) + pg_column_size(a.codes)
            + coalesce(pg_column_size(a.fractions), 0)
        FROM response_sets o JOIN answer_sheets a ON a.set_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT pg_column_size(o.baseline) FROM baselines o
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
        FROM sessions o JOIN administrations a ON a.session_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
            AND o.finished_at IS NOT NULL
        UNION ALL
        SELECT pg_column_size(k.answer) FROM sessions o JOIN kept_answers k ON k.session_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
            AND o.finished_at IS NOT NULL
    ) AS stored
""").execution_options(**of_opened("the project"))
#: A count that took longer, seconds, is used again for ten minutes.
_LONG_COUNT_S, _USED_AGAIN_S = 1.0, 600.0
_counted: TTLCache[tuple[str, str | None], int] = TTLCache(10_000, _USED_AGAIN_S)
_LIMITS = (
    select(ProjectRow.limits, ApiKeyRow.limits)
    .outerjoin(ApiKeyRow, _OWN_KEY)
    .where(ProjectRow.id == bindparam("project_id"))
)


async def require_room(db: AsyncSession) -> None:
    """Refuse one session more than the project, or the key that acts, may have.

    Raises:
        TooManySessionsError: As many as it, or this key of several, may have have not ended.
        StorageFullError: It, or what this key made, takes all that it may.
    """
    limits, own = await _limits(db)
    if _OPEN_SESSIONS in limits or _OPEN_SESSIONS in own:
        await _require_few_open(db)
    await _require_below(db, limits.get(_STORED_BYTES), own.get(_STORED_BYTES))


async def require_space(db: AsyncSession) -> None:
    """Refuse to store more where the project, or the key that acts, has all that it may have.

    Raises:
        StorageFullError: It has.
    """
    limits, own = await _limits(db)
    await _require_below(db, limits.get(_STORED_BYTES), own.get(_STORED_BYTES))


async def stored_bytes(db: AsyncSession, project_id: str, key_id: str | None = None) -> int:
    """What a project stores, bytes; a count of millions of answers may be minutes old.

    Args:
        db: Reads it.
        project_id: The project.
        key_id: Only what this key of it made.
    """
    of = {"project": project_id, "key": key_id}
    known = _counted.get((project_id, key_id))
    if known is not None:
        return known
    began = time.monotonic()
    total = int(await db.scalar(_BYTES, of) or 0)
    if time.monotonic() - began > _LONG_COUNT_S:
        _counted[project_id, key_id] = total
    return total


async def _limits(db: AsyncSession) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the project that is acted for, and of the key that acts, if it is one of it."""
    of = {"project_id": owner(), "key_id": maker()}
    limits, own = (await db.execute(_LIMITS, of)).one()
    return limits, own or {}


async def allotment(
    db: AsyncSession, limit: str, key_id: str | None, *, for_update: bool = False
) -> Allotment | None:
    """What the project that is acted for, and a key of it, may have; None: as much as there is.

    Args:
        db: Reads it.
        limit: Name among the limits of projects.
        key_id: Who asks; None: the command line.
        for_update: One after the other asks.
    """
    others = select(ApiKeyRow.id).where(
        ApiKeyRow.project_id == ProjectRow.id,
        ApiKeyRow.id != key_id,
        ApiKeyRow.revoked_at.is_(None),
        func.coalesce(ApiKeyRow.expires_at > func.now(), true()),
    )
    own = select(ApiKeyRow.limits[limit].as_integer()).where(
        ApiKeyRow.project_id == ProjectRow.id, ApiKeyRow.id == key_id
    )
    asked = select(
        ProjectRow.name,
        ProjectRow.limits[limit].as_integer(),
        own.scalar_subquery(),
        others.exists(),
    ).where(ProjectRow.id == owner())
    if for_update:
        asked = asked.with_for_update(key_share=True, of=ProjectRow)
    name, most, own_most, are_shared = (await db.execute(asked)).one()
    if most is None and own_most is None:
        return None
    return Allotment(limit=limit, project=name, most=most, own_most=own_most, are_shared=are_shared)


async def _require_few_open(db: AsyncSession) -> None:
    """One after the other asks: the limit is read again under a lock."""
    key_id = maker()
    found = await allotment(db, _OPEN_SESSIONS, key_id, for_update=True)
    if found is None:
        return
    # No more rows are looked at than there may be, however many are open since the limit was set.
    is_open = select(SessionRow.created_by).where(SessionRow.finished_at.is_(None))
    if found.most is None:
        is_open = is_open.where(SessionRow.created_by == key_id)
    most = found.own_most if found.most is None else found.most
    counted = is_open.limit(most).subquery()
    own = func.count().filter(counted.c.created_by == key_id)
    n_taken, n_own = (await db.execute(select(func.count(), own).select_from(counted))).one()
    if why := found.refusal("sessions that have not ended", own=n_own, taken=n_taken):
        raise TooManySessionsError(f"{why} Wait for some to end, or cancel them.")


async def _require_below(db: AsyncSession, most: int | None, own_most: int | None) -> None:
    for whose, cap, key_id in (
        ("This project stores", most, None),
        ("What this key made takes", own_most, maker()),
    ):
        if cap is None:
            continue
        stored = await stored_bytes(db, owner(), key_id)
        if stored >= cap:
            raise StorageFullError(
                f"{whose} {stored:,} bytes of {cap:,} that it may: delete sessions, banks, "
                f"baselines or response sets{' of it' if key_id else ''}, or have its limit "
                "stored_bytes raised."
            )
