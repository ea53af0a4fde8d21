"""What commands stand on: the configured database, migrated, with the services or the API on it."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import uvicorn
from typing_extensions import override

from app.errors import DatabaseUnavailableError, InvalidInputError
from app.main import ApiServer, create_app
from app.services.container import Services, open_services
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from app.worker.loop import running_worker
from app.worker.queue import JobQueue

T = TypeVar("T")

#: Seconds between two looks at the embedded server.
_LOOK_S = 2.0


@contextlib.asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The configured database: DATABASE_URL, or the embedded Postgres; schema up to date."""
    async with contextlib.AsyncExitStack() as stack:
        url, postgres = settings.database_url, None
        if url is None:
            postgres = await stack.enter_async_context(EmbeddedPostgres(settings.data_dir))
            url = postgres.url
        await asyncio.to_thread(upgrade, url)
        database = Database(url, pool_size=settings.database_pool_size)
        stack.push_async_callback(database.dispose)
        if postgres is not None:
            keeper = asyncio.create_task(_keep_up(postgres, database), name="postgres keeper")
            stack.push_async_callback(_cancelled, keeper)
        yield database


async def _keep_up(postgres: EmbeddedPostgres, database: Database) -> None:
    """Start the embedded server again when it was killed under us."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not await database.healthy():
            with contextlib.suppress(DatabaseUnavailableError):
                await asyncio.to_thread(postgres.start)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def runtime(settings: Settings | None = None) -> AsyncIterator[Services]:
    """The services, for commands that need neither the API nor a worker."""
    settings = settings or Settings()
    async with (
        open_database(settings) as database,
        open_services(settings, database, JobQueue(database)) as services,
    ):
        yield services


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The API of this process, up and answering."""

    base_url: str
    services: Services


@contextlib.asynccontextmanager
async def serving(settings: Settings, *, worker: bool = True) -> AsyncIterator[LocalServer]:
    """The API, and a worker beside it, for as long as the block runs.

    Raises:
        InvalidInputError: The address cannot be listened on.
    """
    async with open_database(settings) as database:
        app = create_app(settings, database, background=running_worker if worker else None)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        )
        server = _Server(config, app)
        listener = _listen(settings)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="api")
        try:
            while not server.started:
                if task.done():
                    await task
                    raise InvalidInputError("The server ended while it started; see its log.")
                await asyncio.sleep(0.01)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            yield LocalServer(f"http://{shown}:{port}", app.state.services)
        finally:
            server.should_exit = True
            await task
            listener.close()


class _Server(ApiServer):
    """Leaves the signals to the command, which closes the rest as well."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; SIGINT and SIGTERM cancel it, so that everything is closed.

    Raises:
        KeyboardInterrupt: It was cancelled by a signal.
    """

    async def cancellable() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(cancellable())


def _listen(settings: Settings) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise InvalidInputError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
            "Choose another address with SEXTANT_HOST and SEXTANT_PORT (0 takes a free port)."
        ) from error
    return listener
