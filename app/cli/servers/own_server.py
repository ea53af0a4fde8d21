"""A server of our own for commands that work over the API and are not told of another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from app.acting import present
from app.cli.servers.chosen_project import chosen_project
from app.cli.servers.problems import in_words
from app.cli.servers.server import LocalServer, serving
from app.cli.terminal.runtime import open_database
from app.main import create_app
from app.observability import configure_logging
from app.records.api_keys import Scope
from app.settings import Settings
from sextant_client import AsyncSextant


@asynccontextmanager
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


@asynccontextmanager
async def in_process() -> AsyncIterator[AsyncSextant]:
    """A client of the API on the configured database, without a server: requests are calls."""
    settings = Settings(auth="off", host="127.0.0.1", log_level="warning")
    configure_logging(settings)
    async with open_database(settings) as database:
        app = create_app(settings, database)
        async with app.router.lifespan_context(app):
            transport = httpx2.ASGITransport(app=app)
            http = httpx2.AsyncClient(transport=transport, timeout=None)
            project = chosen_project() or ""
            async with AsyncSextant("http://localhost", "", project=project, http=http) as client:
                yield client


@asynccontextmanager
async def local_server(*, stays: bool = False) -> AsyncIterator[LocalServer]:
    """The API of this machine alone, with a worker, for as long as the block runs.

    Args:
        stays: People will look at its pages: it listens where it always does, SEXTANT_PORT, and
            asks nobody for a key. Else on a free port.
    """
    own: dict[str, Any] = {"auth": "off"} if stays else {"port": 0}
    settings = Settings(host="127.0.0.1", log_level="warning", **own)
    configure_logging(settings)
    async with serving(settings) as local:
        yield local


@asynccontextmanager
async def own_client(local: LocalServer, *more: Scope) -> AsyncIterator[AsyncSextant]:
    """A client of our own server, with a key that outlives no test by long."""
    _, secret = await local.services.api_keys.create(
        name="sextant run",
        scopes=[Scope.READ, Scope.RUN, *more],
        expires_at=datetime.now(UTC) + timedelta(days=1),
        project_id=present().project_id,
    )
    project = chosen_project() or ""
    async with AsyncSextant(local.base_url, secret, project=project) as client:
        with in_words(client, {}):
            yield client
