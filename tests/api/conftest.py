"""The API in this process with its own database, and clients with various keys."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from fastapi import FastAPI
from pydantic import TypeAdapter
from structlog.typing import EventDict

from app.api import rates
from app.api.schemas.events import Event
from app.deps import ScopeName
from app.main import create_app
from app.services.api_keys import ApiKeyService
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from tests.demo_bank import install_demo_bank
from tests.services.catalog import write_entry, write_files

#: Parses events as the API describes them.
EVENTS: TypeAdapter[list[Any]] = TypeAdapter(list[Event])
BASE_URL = "http://sextant.test"
Client = httpx2.AsyncClient
NewClient = Callable[..., Awaitable[Client]]


class Description:
    """Description of the API, cached in a file of this run: making it takes over a second."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        """Return what a process of this run has stored, if any has."""
        if self._known is None and self._file.exists():
            self._known = json.loads(self._file.read_bytes())
        return self._known

    def keep(self, made: dict[str, Any] | None) -> None:
        """Store the description for the other processes."""
        if made is None or self._known is not None:
            return
        self._known = made
        written = self._file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(made))
        written.replace(self._file)


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[EventDict]]:
    """Collect log records of a test."""
    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as logs:
        yield logs


@pytest.fixture(scope="session", autouse=True)
def _helpers_stay(helpers_stay: None) -> None:
    pass


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Description:
    """Cache of the OpenAPI description, shared by the processes of this run."""
    own = tmp_path_factory.getbasetemp()
    # Each xdist process has a directory inside that of the run.
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return Description(folder / "openapi.json")


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a catalogue of one entry, for which nothing is downloaded."""
    folder = write_files(write_entry(tmp_path / "catalog"))
    return settings.model_copy(update={"catalog": folder})


@pytest.fixture
async def app(
    settings: Settings, database: Database, description: Description
) -> AsyncIterator[FastAPI]:
    """Run the application with an empty history of requests."""
    for known in (rates._scheduled, rates._of_keys, rates._own, rates._asked):
        known.clear()
    app = create_app(settings, database)
    app.openapi_schema = description.read()
    async with app.router.lifespan_context(app):
        yield app
    description.keep(app.openapi_schema)


def client_of(
    app: FastAPI, secret: str | None = None, address: str = "127.0.0.1", base_url: str = BASE_URL
) -> Client:
    """Return a client with this key. Unhandled errors reach it as a 500, as over the network."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False, client=(address, 123))
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    return Client(transport=transport, base_url=base_url, headers=headers)


@pytest.fixture
async def anonymous(app: FastAPI) -> AsyncIterator[Client]:
    """Return a client without a key."""
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def client_with(app: FastAPI, database: Database) -> AsyncIterator[NewClient]:
    """Return a function that makes clients with keys of the given scopes."""
    clients: list[Client] = []

    async def make(*scopes: ScopeName) -> Client:
        _, secret = await ApiKeyService(database).create(name="test", scopes=scopes)
        clients.append(client_of(app, secret))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def client(client_with: NewClient) -> Client:
    """Return a client with all scopes."""
    return await client_with("admin")


@pytest.fixture
async def services(app: FastAPI) -> Services:
    """Return the application's services, with the demo bank."""
    services: Services = app.state.services
    await install_demo_bank(services.database)
    return services
