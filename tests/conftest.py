"""Fixtures for tests that need Postgres: one server a run, one database a test."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade

_SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
_NOT_FOR_TESTS = ("DATABASE_URL", "PYTHONDONTWRITEBYTECODE")
_numbers = count(1)


@contextmanager
def _new_database(server_url: str, template: str) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    server = make_url(server_url).set(database="postgres")
    libpq = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name} TEMPLATE "{template}" STRATEGY file_copy')
    yield server.set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """No test depends on how the developer's own Sextant is configured.

    Nor does each process that a test starts compile anew what it imports.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SEXTANT_", "PG")) or name in _NOT_FOR_TESTS:
                patch.delenv(name)
        yield


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory that the server's unprivileged user can reach, unlike `tmp_path`."""
    directory = Path(tempfile.mkdtemp(prefix="sx-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A server for this run (under xdist: for this worker), without durability."""
    directory = Path(tempfile.mkdtemp(prefix="sx-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        with EmbeddedPostgres(directory, durable=False) as server:
            yield server
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template_url(postgres_server: EmbeddedPostgres) -> str:
    """A database made by the migrations. Nobody may be connected to it: it is cloned."""
    upgrade(postgres_server.url)
    return postgres_server.url


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table."""
    with _new_database(postgres_server.url, "template0") as url:
        yield url


@pytest.fixture
def database_url(template_url: str) -> Iterator[str]:
    """A migrated, empty database of this test alone, `postgresql+psycopg://...`."""
    with _new_database(template_url, str(make_url(template_url).database)) as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """The same as a `Database`; closed at the end."""
    database = Database(database_url, pool_size=5)
    yield database
    await database.dispose()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a server on this test's database, with files in `tmp_path`."""
    return Settings(database_url=database_url, data_dir=tmp_path / "data")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that the numbers are checked against."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"the validation data are not at {_SHARED_DATA}")
    return _SHARED_DATA
