"""What a project may still store: asked before something new is begun."""

from typing import Any

from sqlalchemy import bindparam, func, select, true
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import maker, owner
from app.errors import StorageFullError, TooManySessionsError
from app.records.places import Places
from app.storage.rows.endpoints import ApiKeyRow
from app.storage.rows.projects import ProjectRow
from app.storage.rows.sessions import SessionRow
from app.storage.rows.spend import StoredBytesRow

_OPEN_SESSIONS, _STORED_BYTES = "open_sessions", "stored_bytes"
#: The limits of a project that has any of these.
_LIMITS = select(ProjectRow.limits).where(
    ProjectRow.id == bindparam("project_id"),
    ProjectRow.limits.has_any(array([_OPEN_SESSIONS, _STORED_BYTES])),
)


async def require_room(db: AsyncSession) -> None:
    """Refuse one session more than the project may have.

    Raises:
        TooManySessionsError: As many as it, or this key of several, may have have not ended.
        StorageFullError: It stores all that it may.
    """
    limits = await _limits(db)
    if _OPEN_SESSIONS in limits:
        await _require_few_open(db)
    await _require_below(db, limits.get(_STORED_BYTES))


async def require_space(db: AsyncSession) -> None:
    """Refuse to store more where the project has all that it may have.

    Raises:
        StorageFullError: It has.
    """
    await _require_below(db, (await _limits(db)).get(_STORED_BYTES))


async def stored_bytes(db: AsyncSession, project_id: str) -> int:
    """What a project stores, bytes, by a count that is kept."""
    total = func.coalesce(func.sum(StoredBytesRow.bytes), 0)
    found = await db.scalar(select(total).where(StoredBytesRow.project_id == project_id))
    return int(found or 0)


async def _limits(db: AsyncSession) -> dict[str, Any]:
    return await db.scalar(_LIMITS, {"project_id": owner()}) or {}


async def places(
    db: AsyncSession, limit: str, key_id: str | None, *, for_update: bool = False
) -> Places | None:
    """What the project that is acted for may have of something; None: as much as there is.

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
    asked = select(ProjectRow.name, ProjectRow.limits[limit].as_integer(), others.exists()).where(
        ProjectRow.id == owner()
    )
    if for_update:
        asked = asked.with_for_update(key_share=True, of=ProjectRow)
    name, most, are_shared = (await db.execute(asked)).one()
    if most is None:
        return None
    return Places(limit=limit, project=name, most=most, are_shared=are_shared)


async def _require_few_open(db: AsyncSession) -> None:
    """One after the other asks: the limit is read again under a lock."""
    key_id = maker()
    most = await places(db, _OPEN_SESSIONS, key_id, for_update=True)
    if most is None:
        return
    # No more rows are looked at than there may be, however many are open since the limit was set.
    is_open = select(SessionRow.created_by).where(SessionRow.finished_at.is_(None))
    counted = is_open.limit(most.most).subquery()
    own = func.count().filter(counted.c.created_by == key_id)
    n_taken, n_own = (await db.execute(select(func.count(), own).select_from(counted))).one()
    if why := most.refusal("sessions that have not ended", own=n_own, taken=n_taken):
        raise TooManySessionsError(f"{why} Wait for some to end, or cancel them.")


async def _require_below(db: AsyncSession, most: int | None) -> None:
    if most is None:
        return
    stored = await stored_bytes(db, owner())
    if stored >= most:
        raise StorageFullError(
            f"This project stores {stored:,} bytes of {most:,} that it may store: delete sessions, "
            "banks or response sets, or have its limit stored_bytes raised."
        )
