"""A server of our own for commands that work over the API and are not told of another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from app.cli.client import ApiClient
from app.cli.server import LocalServer, serving
from app.observability import configure_logging
from app.records.api_keys import Scope
from app.settings import Settings


@asynccontextmanager
async def own_server(bank: str | None) -> AsyncIterator[ApiClient]:
    """A client of the API and a worker in this process, on the configured database.

    Args:
        bank: What will be asked; `demo` is installed if it is not there.
    """
    async with local_server() as local:
        if bank == "demo":
            await local.services.banks.ensure_demo_bank()
        async with await own_client(local) as client:
            yield client


@asynccontextmanager
async def local_server() -> AsyncIterator[LocalServer]:
    """The API on a free port of this machine, with a worker, for as long as the block runs."""
    settings = Settings(port=0, host="127.0.0.1", log_level="warning")
    configure_logging(settings)
    async with serving(settings) as local:
        yield local


async def own_client(local: LocalServer) -> ApiClient:
    """A client of our own server, with a key that outlives no test by long."""
    _, secret = await local.services.api_keys.create(
        name="sextant run",
        scopes=[Scope.READ, Scope.RUN],
        expires_at=datetime.now(UTC) + timedelta(days=1),
    )
    return ApiClient(local.base_url, secret)
