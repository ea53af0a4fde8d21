"""The API of this process, with or without a worker beside it; also for commands alone."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx2
import uvicorn
from typing_extensions import override

from app.acting import present
from app.cli.servers.options import chosen
from app.cli.servers.problems import in_words
from app.cli.terminal.runtime import open_database, warn_of_secrets
from app.errors import InvalidInputError
from app.main import ApiServer, create_app
from app.observability import configure_logging
from app.records.api_keys import Scope
from app.sandbox.pool import sandbox
from app.services.container import Services
from app.settings import Settings
from app.storage.paging import PageRequest
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from sextant_client import AsyncSextant

#: Files and connections that a process may have open, where the system lets it.
_OPEN_FILES = 65_536


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
        SecretsError: SEXTANT_SECRET_KEY is not a key.
    """
    _raise_open_files()
    SecretBox(settings)  # refused in one line here; in the server's start-up with a traceback
    async with open_database(settings) as database:
        app = create_app(settings, database, background=running_worker if worker else None)
        config = uvicorn.Config(
            app,
            http="h11",  # it ends heads and trailers beyond 64 kB
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=[str(network) for network in settings.trusted_proxies],
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
            await warn_of_secrets(app.state.services)
            banks = app.state.services.banks
            if not (await banks.list_banks(PageRequest(limit=1))).items:
                await banks.ensure_demo_bank()  # something to try, in a new database
            # So that the first import need not wait until its helper has loaded what it needs.
            await asyncio.to_thread(sandbox().start)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            yield LocalServer(f"http://{shown}:{port}", app.state.services)
        finally:
            server.should_exit = True
            await task
            listener.close()
            sandbox().close()


@contextlib.asynccontextmanager
async def own_server(
    bank: str | None, *, changes_banks: bool = False
) -> AsyncIterator[AsyncSextant]:
    """A client of the API and a worker in this process, on the configured database.

    Args:
        bank: What will be asked; `demo` is installed if it is not there.
        changes_banks: The client may do so.
    """
    async with local_server() as local:
        if bank == "demo":
            await local.services.banks.ensure_demo_bank()
        scopes = [Scope.BANKS_WRITE] if changes_banks else []
        async with own_client(local, *scopes) as client:
            yield client


@contextlib.asynccontextmanager
async def in_process() -> AsyncIterator[AsyncSextant]:
    """A client of the API on the configured database, without a server: requests are calls."""
    settings = Settings(auth="off", host="127.0.0.1", log_level="warning")
    configure_logging(settings)
    async with open_database(settings) as database:
        app = create_app(settings, database)
        async with app.router.lifespan_context(app):
            transport = httpx2.ASGITransport(app=app)
            http = httpx2.AsyncClient(transport=transport, timeout=None)
            project = chosen().project or ""
            async with AsyncSextant("http://localhost", "", project=project, http=http) as client:
                yield client


@contextlib.asynccontextmanager
async def local_server() -> AsyncIterator[LocalServer]:
    """The API of this machine alone, with a worker, for as long as the block runs."""
    settings = Settings(host="127.0.0.1", log_level="warning", port=0)
    configure_logging(settings)
    async with serving(settings) as local:
        yield local


@contextlib.asynccontextmanager
async def own_client(local: LocalServer, *more: Scope) -> AsyncIterator[AsyncSextant]:
    """A client of our own server, with a key that outlives no test by long."""
    _, secret = await local.services.api_keys.create(
        name="sextant run",
        scopes=[Scope.READ, Scope.RUN, *more],
        expires_at=datetime.now(UTC) + timedelta(days=1),
        project_id=present().project_id,
    )
    project = chosen().project or ""
    async with AsyncSextant(local.base_url, secret, project=project) as client:
        with in_words(client, {}):
            yield client


def _raise_open_files() -> None:
    """Event streams and connections are files: most systems let a process have 1,024 unasked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class _Server(ApiServer):
    """Leaves the signals to the command, which closes the rest as well."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
