"""Baselines: figures of sessions under names."""

from dataclasses import asdict

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import maker, owner
from app.errors import NotFoundError
from app.records.baselines import Baseline, NamedBaseline
from app.records.fields import convert
from app.storage.room import require_space
from app.storage.rows.sessions import BaselineRow


class BaselineRepository:
    """Questions and changes about baselines, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def put(self, name: str, baseline: Baseline, *, is_admin: bool) -> NamedBaseline | None:
        """Store a baseline under a name, in the place of what had it; its maker stays.

        Returns:
            None where another key made it, unless `is_admin`.

        Raises:
            StorageFullError: The project, or this key of it, stores all that it may.
        """
        await require_space(self._db)
        stored = asdict(baseline)
        is_own = BaselineRow.created_by.is_not_distinct_from(maker())
        moved = await self._db.scalar(
            insert(BaselineRow)
            .values(project_id=owner(), created_by=maker(), name=name, baseline=stored)
            .on_conflict_do_update(
                index_elements=["project_id", "name"],
                set_={"baseline": stored, "set_at": func.now()},
                where=None if is_admin else is_own,
            )
            .returning(BaselineRow.name)
        )
        return None if moved is None else await self.get(name)

    async def get(self, name: str) -> NamedBaseline:
        """The baseline of a name.

        Raises:
            NotFoundError: There is none.
        """
        found = await self._db.scalar(
            select(BaselineRow)
            .where(BaselineRow.name == name)
            .execution_options(populate_existing=True)
        )
        if found is None:
            raise NotFoundError("baseline", name)
        return _read(found)

    async def every(self) -> list[NamedBaseline]:
        """All of the project, by name."""
        return [
            _read(row)
            for row in await self._db.scalars(select(BaselineRow).order_by(BaselineRow.name))
        ]

    async def delete(self, name: str) -> None:
        """Forget a name; gates that were made against it stay as they are."""
        await self._db.execute(delete(BaselineRow).where(BaselineRow.name == name))


def _read(row: BaselineRow) -> NamedBaseline:
    return convert(NamedBaseline, row, baseline=Baseline(**row.baseline))
