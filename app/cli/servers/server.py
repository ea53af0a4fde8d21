"""The API of this process, with or without a worker beside it."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import uvicorn
from typing_extensions import override

from app.cli.terminal.runtime import open_database, warn_of_secrets
from app.errors import InvalidInputError
from app.main import ApiServer, create_app
from app.sandbox.pool import sandbox
from app.services.container import Services
from app.settings import Settings
from app.storage.paging import PageRequest
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker

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
