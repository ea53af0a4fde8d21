"""Fixtures for tests that need Postgres: one server and one database per test process.

The database is emptied after each test that used it, at a tenth of the cost of a new one.

Test runners with several processes load this file too, so fixtures import Sextant lazily.
"""

# ruff: noqa: E402 (the imports below read these settings)
from __future__ import annotations

import gc
import os
import sys

# Modules loaded before the first test stay; garbage collection in them takes a third of the time.
gc.disable()

# On cores shared with other tests, two threads of OpenBLAS wait for each other in busy loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Imported modules are compiled once, not by each process that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib.abc import MetaPathFinder
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from typing_extensions import override

from app.sandbox.pool_process import WithoutPandas

if TYPE_CHECKING:
    from app.services.container import Services
    from app.settings import Settings
    from app.storage.database import Database
    from app.storage.embedded import EmbeddedPostgres
    from tests.databases import SharedDatabase

_SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
_NOT_FOR_TESTS = ("DATABASE_URL",)
_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30

# The duration of an example depends on the machine, not on the code.
hypothesis_settings.register_profile(
    "sextant", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("sextant")


class _WithoutSniffio(MetaPathFinder):
    """Hides sniffio, which is absent; callers of an application look for it at each request."""

    @override
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "sniffio":
            raise ModuleNotFoundError("No module named 'sniffio'", name=fullname)


sys.meta_path[:0] = [WithoutPandas(), _WithoutSniffio()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow tests first in each process, so that all processes end together.

    Each process starts with the same number of tests, in this order.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = iter([item for item in items if not item.get_closest_marker("slow")])
    n = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    dealt: list[pytest.Item] = []
    for k in range(n):
        mine, share = slow[k::n], (len(items) - len(dealt)) // (n - k)
        dealt += [*mine, *islice(quick, max(share - len(mine), 0))]
    items[:] = [*dealt, *quick]


def pytest_collection_finish() -> None:
    """Exclude all modules loaded so far from garbage collection, since they stay.

    Most objects of tests are freed by reference counts, so collecting less often is enough.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Drop what the event loops of this test left behind."""
    try:
        yield
    finally:
        if databases := sys.modules.get("tests.databases"):
            databases.drop_what_loops_left()


def _new_directory() -> Path:
    """Return an empty directory open to the server's unprivileged user, in memory if possible.

    Some file systems are slow to place new files after many deletions, and a cluster has a
    thousand. Memory is unsuitable where programs cannot be run from it, or where it is scarce.
    """
    place = "/tmp"
    if _IN_MEMORY.is_dir():
        status = os.statvfs(_IN_MEMORY)
        has_room = status.f_bavail * status.f_frsize >= _ROOM_BYTES
        if has_room and not status.f_flag & os.ST_NOEXEC:
            place = str(_IN_MEMORY)
    directory = Path(tempfile.mkdtemp(prefix="sx-", dir=place))
    directory.chmod(0o755)
    return directory


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """Make tests independent of the developer's own Sextant configuration."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SEXTANT_", "PG")) or name in _NOT_FOR_TESTS:
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", "/nonexistent")  # no login of the developer
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    """Log errors as Python prints them: rich tracebacks with all variables take seconds."""
    import structlog

    *others, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*others, plain])


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return an empty directory open to the server's unprivileged user, unlike `tmp_path`."""
    directory = _new_directory()
    yield directory
    _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a directory into which stopping servers may still write."""
    for pause_s in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
        try:
            shutil.rmtree(directory)
        except OSError:
            time.sleep(pause_s)
        else:
            return
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """Start a server for this run (under xdist: for this worker), without durability."""
    from app.storage.embedded import EmbeddedPostgres

    directory = _new_directory()
    try:
        with EmbeddedPostgres(directory, durable=False) as server:
            yield server
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template_url(postgres_server: EmbeddedPostgres) -> str:
    """Return a migrated database. It is cloned, so nothing may be connected to it."""
    from app.storage.migrate import upgrade
    from tests.databases import keep_what_empties
    from tests.demo_bank import keep_demo_bank

    upgrade(postgres_server.url)
    keep_demo_bank(postgres_server.url)
    keep_what_empties(postgres_server.url)
    return postgres_server.url


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Return a database without any table."""
    from tests.databases import new_database

    with new_database(postgres_server.url, "template0") as url:
        yield url


@pytest.fixture(scope="session")
def _shared_database(template_url: str) -> Iterator[SharedDatabase]:
    import procrastinate

    from tests.databases import KeptConnection, SharedDatabase

    shared = SharedDatabase(template_url)
    kept = partial(procrastinate.PsycopgConnector, connection_class=KeptConnection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procrastinate, "PsycopgConnector", kept)
        yield shared
    shared.close()


@pytest.fixture
def database_url(_shared_database: SharedDatabase) -> Iterator[str]:
    """Return the URL of a migrated, empty database for one test, `postgresql+psycopg://...`."""
    yield _shared_database.url
    _shared_database.empty()


@pytest.fixture
def database(database_url: str, _shared_database: SharedDatabase) -> Database:
    """The same as a `Database`, with the connections of earlier tests."""
    return _shared_database.database


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a server on this test's database, with files in `tmp_path`."""
    from app.settings import Settings

    return Settings(database_url=database_url, data_dir=tmp_path / "data")


@pytest.fixture
async def services(
    settings: Settings, database: Database, helpers_stay: None
) -> AsyncIterator[Services]:
    """Services of such a server, with the demo bank installed."""
    from tests.services.sessions import opened

    async with opened(settings, database) as services:
        yield services


@pytest.fixture
async def other_services(
    settings: Settings, database: Database, helpers_stay: None
) -> AsyncIterator[Services]:
    """Services of a second server on the same database."""
    from app.services.container import open_services
    from app.worker.queue import JobQueue

    async with open_services(settings, database, JobQueue(database)) as services:
        yield services


@pytest.fixture
async def working(services: Services) -> AsyncIterator[Services]:
    """The services with a running worker."""
    from app.worker.loop import running_worker

    async with running_worker(services):
        yield services


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory of real data that results are compared with."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"the validation data are not at {_SHARED_DATA}")
    return _SHARED_DATA


@pytest.fixture
def fits_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run calibrations in this process, and compute equal ones only once."""
    from app.services.calibrations import runner
    from tests.services.fits import fit_here

    monkeypatch.setattr(runner, "fit_in_process", fit_here)


@pytest.fixture(scope="session")
def helpers_stay() -> Iterator[None]:
    """Keep the helper processes of services from test to test, as in a server."""
    from app import scorers
    from app.services import container
    from app.services.banks.confined_tests import close_processes

    async def nothing() -> None:
        """Close nothing."""

    aclose = scorers.aclose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container, "close_processes", lambda: None)
        patch.setattr(scorers, "aclose", nothing)
        yield
    close_processes()
    asyncio.run(aclose())
