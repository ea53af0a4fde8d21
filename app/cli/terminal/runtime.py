"""What commands are built on: the configured, migrated database and the services on it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from app.acting import acting_for, present
from app.cli.servers.options import chosen
from app.cli.terminal.console import show_warning
from app.errors import DatabaseUnavailableError, SecretsError
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade

if TYPE_CHECKING:
    from app.services.container import Services

#: Seconds between two checks of the embedded server.
_LOOK_S = 2.0


@contextlib.asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database, DATABASE_URL or the embedded Postgres, and bring its schema up to date."""
    async with contextlib.AsyncExitStack() as stack:
        url, postgres = settings.database_url, None
        if url is None:
            postgres = await stack.enter_async_context(EmbeddedPostgres(settings.data_dir))
            url = postgres.url
        await asyncio.to_thread(upgrade, url)
        database = Database(url, pool_size=settings.database_pool_size)
        stack.push_async_callback(database.dispose)
        if (named := chosen().project) is not None:
            from app.services.projects import ProjectService

            project = await ProjectService(database).find(named)
            stack.enter_context(acting_for(replace(present(), project_id=project.id)))
        if postgres is not None:
            keeper = asyncio.create_task(_keep_up(postgres, database), name="postgres keeper")
            stack.push_async_callback(_cancelled, keeper)
        yield database


async def _keep_up(postgres: EmbeddedPostgres, database: Database) -> None:
    """Restart the embedded server if it was killed."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not await database.healthy():
            with contextlib.suppress(DatabaseUnavailableError):
                await asyncio.to_thread(postgres.start)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def runtime(settings: Settings | None = None) -> AsyncIterator["Services"]:
    """Open the services, for commands that need neither the API nor a worker."""
    # Imported late: commands that only read a table need not wait for all services to load.
    from app.services.container import open_services
    from app.worker.queue import JobQueue

    settings = settings or Settings()
    async with (
        open_database(settings) as database,
        open_services(settings, database, JobQueue(database)) as services,
    ):
        yield services


async def warn_of_secrets(services: "Services") -> None:
    """Warn if stored secrets cannot be decrypted; work that needs none goes on."""
    try:
        await services.secret_keys.check()
    except SecretsError as error:
        show_warning(
            f"{error.detail} Until then sessions and rankings that need such a secret wait, calls "
            "that need one answer 503 (secrets_error), and all else goes on."
        )
    except DatabaseUnavailableError as error:
        show_warning(f"The secret key was not checked: {error.detail}")
