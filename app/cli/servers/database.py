"""What commands do on the configured database alone, without services."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import database_url
from app.storage.migrate import upgrade

T = TypeVar("T")


def on_database(
    settings: Settings, use: Callable[[Database], Awaitable[T]], *, connections: int = 1
) -> T:
    """Run `use` on the configured database, migrated."""

    async def run(url: str) -> T:
        database = Database(url, pool_size=connections)
        try:
            return await use(database)
        finally:
            await database.dispose()

    with database_url(settings) as url:
        upgrade(url)
        return asyncio.run(run(url))
