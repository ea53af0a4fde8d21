"""The API in this process, with or without a worker, for `sextant serve` and other commands."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx2
import uvicorn
from typing_extensions import override

from app.cli.servers.options import chosen, in_words
from app.cli.terminal.runtime import open_database, warn_of_secrets
from app.errors import InvalidInputError
from app.main import ApiServer, create_app
from app.observability import configure_logging
from app.sandbox.pool import sandbox
from app.services.container import Services
from app.settings import Settings
from app.storage.paging import PageRequest
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from sextant_client import AsyncSextant

#: Open files and connections that the process asks for; the system may allow fewer.
_OPEN_FILES = 65_536


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The API of this process, started and ready."""

    base_url: str
    services: Services


@contextlib.asynccontextmanager
async def serving(settings: Settings, *, worker: bool = True) -> AsyncIterator[LocalServer]:
    """Run the API, by default with a worker, while the block runs.

    Raises:
        InvalidInputError: The server cannot listen on its address.
        SecretsError: SEXTANT_SECRET_KEY is not a valid key.
    """
    _raise_open_files()
    SecretBox(settings)  # fails here with one line; the server's start would print a traceback
    async with open_database(settings) as database:
        app = create_app(settings, database, background=running_worker if worker else None)
        config = uvicorn.Config(
            app,
            http="h11",  # limits heads and trailers to 64 kB
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
                await banks.ensure_demo_bank()  # a new database gets something to try
            # Starts the helper process now, so that the first import need not wait for it.
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
async def in_process(*, worker: bool = False) -> AsyncIterator[tuple[AsyncSextant, Services]]:
    """Client of the API on the configured database, without a server: a request is a call.

    The work that requests begin goes on if there is a `worker`.
    """
    _raise_open_files()
    settings = Settings(auth="off", host="127.0.0.1", log_level="warning")
    configure_logging(settings)
    async with open_database(settings) as database:
        app = create_app(settings, database, background=running_worker if worker else None)
        async with app.router.lifespan_context(app):
            services: Services = app.state.services
            if worker:
                await warn_of_secrets(services)
            transport = httpx2.ASGITransport(app=app)
            http = httpx2.AsyncClient(transport=transport, timeout=None)
            project = chosen().project or ""
            async with AsyncSextant("http://localhost", "", project=project, http=http) as client:
                with in_words(client):
                    yield client, services


def _raise_open_files() -> None:
    """Raise the limit on open files: most systems allow 1,024, and connections count as files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class _Server(ApiServer):
    """Leaves signals to the command, which closes everything else, too."""

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
