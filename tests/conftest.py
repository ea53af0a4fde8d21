"""Fixtures for tests that need Postgres: one server and one database a test process.

The database is emptied after each test that used it, which costs a tenth of making a new one.

Whoever hands tests out to other processes loads this file too, and hardly anything of Sextant:
fixtures import what they need.
"""

# ruff: noqa: E402 (what is imported below reads these settings)
from __future__ import annotations

import gc
import os
import sys

# What is loaded before the first test stays: looking for garbage in it takes a third of the time.
gc.disable()

# On cores that other tests use as well, two threads of OpenBLAS wait for each other in busy loops.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is imported is compiled once, not by each of the processes that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
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
    from app.settings import Settings
    from app.storage.database import Database
    from app.storage.embedded import EmbeddedPostgres
    from tests.databases import SharedDatabase

_SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
_NOT_FOR_TESTS = ("DATABASE_URL",)
_IN_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30

# How long an example takes says something about the machine, not about the code.
hypothesis_settings.register_profile(
    "sextant", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("sextant")


class _WithoutSniffio(MetaPathFinder):
    """Nobody has it; who calls an application in this process looks for it at each request."""

    @override
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "sniffio":
            raise ModuleNotFoundError("No module named 'sniffio'", name=fullname)


sys.meta_path[:0] = [WithoutPandas(), _WithoutSniffio()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first in each process, so that all end together.

    Each begins with as many tests as the others, in this order.
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
    """Spare the garbage collector all that is loaded by now, which stays until the end.

    Of what tests make most is gone by itself: looking at it less often finds as much.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """The next test begins without what the loops of this one left behind."""
    try:
        yield
    finally:
        if databases := sys.modules.get("tests.databases"):
            databases.drop_what_loops_left()


def _new_directory() -> Path:
    """An empty directory that the server's unprivileged user can reach, in memory if it can be.

    Some file systems search long for the place of a new file where many were deleted lately, and a
    cluster has a thousand. Memory will not do where programs cannot be run from it, or is scarce.
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
    """No test depends on how the developer's own Sextant is configured."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SEXTANT_", "PG")) or name in _NOT_FOR_TESTS:
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", "/nonexistent")  # no login of the developer's
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    """Faults are logged as Python prints them: a picture of all their variables takes seconds."""
    import structlog

    *others, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*others, plain])


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty directory that the server's unprivileged user can reach, unlike `tmp_path`."""
    directory = _new_directory()
    yield directory
    _remove(directory)


def _remove(directory: Path) -> None:
    """Remove a directory into which servers that were told to end may write until they have."""
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
    """A server for this run (under xdist: for this worker), without durability."""
    from app.storage.embedded import EmbeddedPostgres

    directory = _new_directory()
    try:
        with EmbeddedPostgres(directory, durable=False) as server:
            yield server
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template_url(postgres_server: EmbeddedPostgres) -> str:
    """A database made by the migrations. Nobody may be connected to it: it is cloned."""
    from app.storage.migrate import upgrade
    from tests.databases import keep_what_empties
    from tests.demo_bank import keep_demo_bank

    upgrade(postgres_server.url)
    keep_demo_bank(postgres_server.url)
    keep_what_empties(postgres_server.url)
    return postgres_server.url


@pytest.fixture
def empty_database_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database without any table."""
    from tests.databases import new_database

    with new_database(postgres_server.url, "template0") as url:
        yield url


@pytest.fixture(scope="session")
def _shared_database(template_url: str) -> Iterator[SharedDatabase]:
    import procrastinate

    from tests.databases import SharedDatabase
    from tests.kept_connections import KeptConnection

    shared = SharedDatabase(template_url)
    kept = partial(procrastinate.PsycopgConnector, connection_class=KeptConnection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procrastinate, "PsycopgConnector", kept)
        yield shared
    shared.close()


@pytest.fixture
def database_url(_shared_database: SharedDatabase) -> Iterator[str]:
    """A migrated, empty database of this test alone, `postgresql+psycopg://...`."""
    yield _shared_database.url
    _shared_database.empty()


@pytest.fixture
def database(database_url: str, _shared_database: SharedDatabase) -> Database:
    """The same as a `Database`, whose connections are those of the tests before."""
    return _shared_database.database


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """Settings of a server on this test's database, with files in `tmp_path`."""
    from app.settings import Settings

    return Settings(database_url=database_url, data_dir=tmp_path / "data")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that the numbers are checked against."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"the validation data are not at {_SHARED_DATA}")
    return _SHARED_DATA


@pytest.fixture
def fits_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations need no process of their own, and the same one is reckoned once.

    How wrong curves are is looked at on few of those held out, which takes most of the time.
    """
    from app.calibration.multidimensional import curve_errors
    from app.services.calibrations import runner
    from tests.services.fits import fit_here

    monkeypatch.setattr(runner, "fit_in_process", fit_here)
    monkeypatch.setattr(curve_errors, "_MOST_TESTED", 4)
    monkeypatch.setattr(curve_errors, "_MOST_OF_A_PART", 2)


@pytest.fixture(scope="session")
def helpers_stay() -> Iterator[None]:
    """What services work with in other processes stays from test to test, as in a server."""
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
