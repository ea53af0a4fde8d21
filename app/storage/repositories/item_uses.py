"""What became of a version's items in the tests that asked them."""

from sqlalchemy import Float, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.fields import convert
from app.records.item_uses import ItemAnswer, ItemUse
from app.storage.rows.endpoints import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow


class ItemUseRepository:
    """Questions about the answers to items, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def tests(self, version_id: str) -> int:
        """How many tests of a version asked any item and are not made of another one."""
        query = (
            select(func.count(AdministrationRow.session_id.distinct()))
            .join(SessionRow, SessionRow.id == AdministrationRow.session_id)
            .where(SessionRow.bank_version_id == version_id, SessionRow.parent_id.is_(None))
        )
        return await self._db.scalar(query) or 0

    async def of_version(self, version_id: str) -> dict[int, ItemUse]:
        """Position to use, for the items that were asked."""
        given = AdministrationRow
        query = (
            select(
                given.position,
                func.count().label("asked"),
                func.count(given.score).label("marked"),
                func.avg(given.score).label("mean"),
            )
            .join(SessionRow, SessionRow.id == given.session_id)
            .where(SessionRow.bank_version_id == version_id, SessionRow.parent_id.is_(None))
            .group_by(given.position)
        )
        return {row.position: convert(ItemUse, row) for row in await self._db.execute(query)}

    async def answers(
        self, version_id: str, position: int, limit: int, skip: int
    ) -> list[ItemAnswer]:
        """The latest answers to an item, with the ability that each test ended with.

        They begin behind the first `skip`.
        """
        given = AdministrationRow
        theta = SessionRow.summary["estimate"]["theta"].astext.cast(Float)
        query = (
            select(
                SessionRow.id.label("session_id"),
                func.coalesce(EndpointRow.name, EndpointRow.model).label("examinee"),
                theta.label("theta"),
                given.step,
                given.outcome,
                given.score,
                given.answered_at,
            )
            .join(SessionRow, SessionRow.id == given.session_id)
            .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
            .where(
                SessionRow.bank_version_id == version_id,
                SessionRow.parent_id.is_(None),
                given.position == position,
                given.arrival.is_not(None),
            )
            .order_by(SessionRow.id.desc())
            .offset(skip)
            .limit(limit)
        )
        return [convert(ItemAnswer, row) for row in await self._db.execute(query)]
