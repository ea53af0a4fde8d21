"""Fixtures for tests that need Postgres: one server and one database a test process.

The database is emptied after each test that used it, which costs a tenth of making a new one.
"""

# ruff: noqa: E402 (what is imported below reads these settings)
import os
import sys

# On cores that other tests use as well, two threads of OpenBLAS wait for each other in busy loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is imported is compiled once, not by each of the processes that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import make_url

from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from tests.demo_bank import keep_demo_bank

_SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
_NOT_FOR_TESTS = ("DATABASE_URL",)
_numbers = count(1)

# How long an example takes says something about the machine, not about the code.
hypothesis_settings.register_profile(
    "sextant", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("sextant")

#: Names of all columns, and where the migrations stand.
_SCHEMA = """
    SELECT md5(string_agg(concat_ws('.', table_schema, table_name, column_name), ' ' ORDER BY
        table_schema, table_name, column_name)), (SELECT max(version_num) FROM alembic_version)
    FROM information_schema.columns WHERE table_schema IN ('public', 'procrastinate')
"""
# As when a database is dropped: whoever is left in it holds no lock.
_ALONE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Foreign keys are not looked at while everything goes.
_EMPTY_ALL_TABLES = """
    DO $$ DECLARE name text; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
            WHERE schemaname IN ('public', 'procrastinate') AND tablename <> 'alembic_version'
        LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
    END $$
"""


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
    """No test depends on how the developer's own Sextant is configured."""
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
    keep_demo_bank(postgres_server.url)
    return postgres_server.url


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table."""
    with _new_database(postgres_server.url, "template0") as url:
        yield url


class _Shared:
    """The database that tests of this process have one after the other, made when it is needed."""

    def __init__(self, template_url: str) -> None:
        self._template_url = template_url
        self._open = ExitStack()
        self._url: str | None = None
        self._schema: object = None

    @property
    def url(self) -> str:
        if self._url is None:
            template = str(make_url(self._template_url).database)
            self._url = self._open.enter_context(_new_database(self._template_url, template))
            with self._connected() as connection:
                self._schema = connection.execute(_SCHEMA).fetchone()
        return self._url

    def empty(self) -> None:
        """Take out what a test has left; a database with other tables is given up."""
        with self._connected() as connection:
            connection.execute(_ALONE)
            try:
                whole = connection.execute(_SCHEMA).fetchone() == self._schema
            except psycopg.errors.UndefinedTable:
                whole = False
            if whole:
                connection.execute(_EMPTY_ALL_TABLES)
        if not whole:
            self.close()

    def close(self) -> None:
        self._open.close()
        self._url = None

    def _connected(self) -> "psycopg.Connection":
        libpq = make_url(self.url).set(drivername="postgresql")
        return psycopg.connect(libpq.render_as_string(hide_password=False), autocommit=True)


@pytest.fixture(scope="session")
def _shared_database(template_url: str) -> Iterator[_Shared]:
    shared = _Shared(template_url)
    yield shared
    shared.close()


@pytest.fixture
def database_url(_shared_database: _Shared) -> Iterator[str]:
    """A migrated, empty database of this test alone, `postgresql+psycopg://...`."""
    yield _shared_database.url
    _shared_database.empty()


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
