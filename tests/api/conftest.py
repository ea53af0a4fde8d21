"""The API in this process, over a database of its own, and clients of several kinds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx2
import psycopg
import pytest
import structlog
from fastapi import FastAPI
from sqlalchemy import make_url
from structlog.typing import EventDict

from app.deps import ScopeName
from app.main import create_app
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database

# Foreign keys are not looked at while everything goes.
_EMPTY_ALL_TABLES = """
    DO $$ DECLARE name text; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
            WHERE schemaname IN ('public', 'procrastinate') AND tablename <> 'alembic_version'
        LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
    END $$
"""
BASE_URL = "http://sextant.test"
Client = httpx2.AsyncClient
NewClient = Callable[..., Awaitable[Client]]


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[EventDict]]:
    """What is logged during a test."""
    merge = structlog.contextvars.merge_contextvars
    with structlog.testing.capture_logs(processors=[merge]) as logs:
        yield logs


@pytest.fixture(scope="session")
def _api_database_url(template_url: str) -> Iterator[str]:
    template = make_url(template_url)
    server = template.set(drivername="postgresql", database="postgres")
    name = "test_api"
    with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as postgres:
        postgres.execute(f'CREATE DATABASE {name} TEMPLATE "{template.database}"')
        yield template.set(database=name).render_as_string(hide_password=False)
        postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(_api_database_url: str) -> Iterator[str]:
    """One database for all tests of this folder, emptied after each: quicker than a new one."""
    yield _api_database_url
    url = make_url(_api_database_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as postgres:
        postgres.execute(_EMPTY_ALL_TABLES)


@pytest.fixture
async def app(settings: Settings, database: Database) -> AsyncIterator[FastAPI]:
    """The application between start and stop."""
    app = create_app(settings, database)
    async with app.router.lifespan_context(app):
        yield app


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
