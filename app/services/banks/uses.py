"""How often a version's items were asked, and how they were answered."""

from app.records.item_uses import ItemAnswer, ItemUse
from app.storage.database import Database


class ItemUses:
    """Looks at the tests of a version; nothing is stored."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_version(self, version_id: str) -> tuple[int, dict[int, ItemUse]]:
        """How many tests there are, and the use of each item that was asked, by position."""
        async with self._database.reading() as uow:
            return await uow.item_uses.tests(version_id), await uow.item_uses.of_version(version_id)

    async def answers(
        self, version_id: str, position: int, *, limit: int, skip: int = 0
    ) -> list[ItemAnswer]:
        """The latest answers to the item at a position, behind the first `skip`."""
        async with self._database.reading() as uow:
            return await uow.item_uses.answers(version_id, position, limit, skip)
