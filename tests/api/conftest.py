"""The API in this process, over a database of its own, and clients of several kinds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI
from structlog.typing import EventDict

from app.api import rates
from app.deps import ScopeName
from app.main import create_app
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database

BASE_URL = "http://sextant.test"
Client = httpx2.AsyncClient
NewClient = Callable[..., Awaitable[Client]]
#: What the API says of itself, once it was asked: making it takes half a second.
_descriptions: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[EventDict]]:
    """What is logged during a test."""
    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as logs:
        yield logs


@pytest.fixture(scope="session", autouse=True)
def _helpers_stay(helpers_stay: None) -> None:
    pass


@pytest.fixture
async def app(settings: Settings, database: Database) -> AsyncIterator[FastAPI]:
    """The application between start and stop; nobody has asked it for anything yet."""
    for known in (rates._scheduled, rates._of_keys, rates._own, rates._asked):
        known.clear()
    app = create_app(settings, database)
    app.openapi_schema = _descriptions[0] if _descriptions else None
    async with app.router.lifespan_context(app):
        yield app
    if app.openapi_schema is not None:
        _descriptions[:] = [app.openapi_schema]


@pytest.fixture
async def anonymous(app: FastAPI) -> AsyncIterator[Client]:
    """A client without a key. Errors that nobody handles reach it as a 500, as over the wire."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with Client(transport=transport, base_url=BASE_URL) as client:
        yield client


@pytest.fixture
async def client_with(app: FastAPI, database: Database) -> AsyncIterator[NewClient]:
    """Makes clients whose key has the given scopes."""
    clients: list[Client] = []

    async def make(*scopes: ScopeName) -> Client:
        _, secret = await ApiKeyService(database).create(name="test", scopes=scopes)
        client = Client(
            transport=httpx2.ASGITransport(app=app, raise_app_exceptions=False),
            base_url=BASE_URL,
            headers={"Authorization": f"Bearer {secret}"},
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def client(client_with: NewClient) -> Client:
    """A client that may do everything."""
    return await client_with("admin")
