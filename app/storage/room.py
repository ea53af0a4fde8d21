"""What a project may still store: asked before something new is begun."""

from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import owner
from app.errors import StorageFullError, TooManySessionsError
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
        TooManySessionsError: As many as it may have have not ended.
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


async def _require_few_open(db: AsyncSession) -> None:
    """One after the other asks: the limit is read again under a lock."""
    limit = select(ProjectRow.limits[_OPEN_SESSIONS].as_integer()).where(ProjectRow.id == owner())
    most = await db.scalar(limit.with_for_update(key_share=True))
    if most is None:
        return
    is_open = SessionRow.finished_at.is_(None)
    n_open = await db.scalar(select(func.count(SessionRow.id)).where(is_open)) or 0
    if n_open >= most:
        raise TooManySessionsError(
            f"{n_open} sessions of this project have not ended, as many as it may have: "
            f"{most}. Wait for some to end, or cancel them."
        )


async def _require_below(db: AsyncSession, most: int | None) -> None:
    if most is None:
        return
    stored = await stored_bytes(db, owner())
    if stored >= most:
        raise StorageFullError(
            f"This project stores {stored:,} bytes of {most:,} that it may store: delete sessions, "
            "banks or response sets, or have its limit stored_bytes raised."
        )
