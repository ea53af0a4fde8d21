"""What a project may still store: asked before something new is begun."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import owner
from app.errors import StorageFullError
from app.storage.rows.projects import ProjectRow
from app.storage.rows.spend import StoredBytesRow


async def require_space(db: AsyncSession) -> None:
    """Refuse to store more where the project has all that it may have.

    Raises:
        StorageFullError: It has.
    """
    limited = select(ProjectRow.limits["stored_bytes"].as_integer()).where(
        ProjectRow.id == owner(), ProjectRow.limits.has_key("stored_bytes")
    )
    most = await db.scalar(limited)
    if most is None:
        return
    stored = await stored_bytes(db, owner())
    if stored >= most:
        raise StorageFullError(
            f"This project stores {stored:,} bytes of {most:,} that it may store: delete sessions, "
            "banks or response sets, or have its limit stored_bytes raised."
        )


async def stored_bytes(db: AsyncSession, project_id: str) -> int:
    """What a project stores, bytes, by a count that is kept."""
    total = func.coalesce(func.sum(StoredBytesRow.bytes), 0)
    found = await db.scalar(select(total).where(StoredBytesRow.project_id == project_id))
    return int(found or 0)
