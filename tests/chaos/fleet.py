"""Sextant as several processes on one Postgres beside a model; dead processes are restarted."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import psycopg
import psycopg.conninfo

from app.records.api_keys import Scope
from app.services.api_keys import ApiKeyService
from app.storage import embedded
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from tests.chaos.clock import Clock
from tests.chaos.proxy import Proxy
from tests.servers.forked import Forked

ROOT: Final = Path(__file__).parents[2]
#: Size of the file system that can be filled, where one can be mounted.
_DISK_BYTES: Final = 768 << 20


class Running(Protocol):
    """A process."""

    @property
    def pid(self) -> int:
        """Return its id."""

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""


def launch(command: Sequence[str], env: Mapping[str, str], stderr: BinaryIO) -> Running:
    """Start a program of this environment; programs of Sextant are forked from a loaded process."""
    if command[0] == "sextant":
        return Forked(command, env=dict(env), stderr=stderr)
    program = str(Path(sys.executable).with_name(command[0]))
    return subprocess.Popen([program, *command[1:]], cwd=ROOT, env=dict(env), stderr=stderr)


@dataclass
class Program:
    """One role in the fleet, filled by one process after another."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    running: Running | None = None
    starts: int = 0

    def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            self.running = launch(self.command, self.env, log)
        self.starts += 1

    def signal(self, number: int) -> bool:
        """Send it a signal; return whether it existed."""
        if self.running is None or self.running.poll() is not None:
            return False
        os.kill(self.running.pid, number)
        return True

    async def keep(self) -> None:
        """Restart it whenever it has ended."""
        while True:
            if self.running is not None and self.running.poll() is not None:
                await asyncio.sleep(0.2)
                self.start()
            self._have_its_share()
            await asyncio.sleep(0.1)

    def _have_its_share(self) -> None:
        """Give a worker the priority of servers, or on busy cores it is killed before its start."""
        with contextlib.suppress(OSError):  # only root may undo this
            if self.running is not None:
                ours = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, self.running.pid, ours)

    async def end(self) -> None:
        """Kill it."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        await asyncio.to_thread(self._gone)

    def _gone(self) -> None:
        while self.running is not None and self.running.poll() is None:
            time.sleep(0.02)


@dataclass
class Fleet:
    """The running processes.

    Attributes:
        postgres: Durable server with only a socket.
        proxies: One before Postgres for each of our processes.
        model_log: Calls and replies of the model.
        missing: Faults that are impossible on this machine, with the reason.
    """

    folder: Path
    postgres: EmbeddedPostgres
    disk: Path
    lease_s: float
    clock: Clock | None = None
    missing: dict[str, str] = field(default_factory=dict)
    proxies: list[Proxy] = field(default_factory=list)
    workers: list[Program] = field(default_factory=list)
    apis: list[Program] = field(default_factory=list)
    model: Program | None = None
    model_url: str = ""
    api_urls: list[str] = field(default_factory=list)
    api_key: str = ""

    @property
    def programs(self) -> list[Program]:
        """Return all programs."""
        return [*self.workers, *self.apis, *([self.model] if self.model else [])]

    @property
    def model_log(self) -> Path:
        """Return the path of the log, lines of JSON."""
        return self.folder / "model.jsonl"

    @property
    def socket(self) -> Path:
        """Return the directory of Postgres's socket."""
        return Path(str(psycopg.conninfo.conninfo_to_dict(self.conninfo)["host"])) / ".s.PGSQL.5432"

    @property
    def conninfo(self) -> str:
        """Return a libpq connection string that bypasses all proxies."""
        host = self.postgres.url.partition("host=")[2].partition("&")[0].replace("%2F", "/")
        return f"host={host} port=5432 user=sextant dbname=sextant connect_timeout=5"

    def connect(self) -> psycopg.Connection:
        """Open a connection of the checker to the database."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def postgres_pids(self) -> list[int]:
        """Return the postmaster and its children; empty when it is down."""
        name = next(self.folder.rglob("postmaster.pid"), None)
        if name is None:
            return []
        with contextlib.suppress(OSError, ValueError, IndexError):
            postmaster = int(name.read_text().split()[0])
            return [postmaster, *children_of(postmaster)]
        return []

    async def mend(self) -> None:
        """End all faults: everything runs and can connect."""
        for proxy in self.proxies:
            proxy.mend()
        (self.disk / "ballast").unlink(missing_ok=True)
        for pid in self.postgres_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for program in self.programs:
            program.signal(signal.SIGCONT)
        await asyncio.to_thread(self.postgres.start)


def children_of(pid: int) -> list[int]:
    """Return running processes that a process has started."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, tasks.read_text().split())
    return found


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def small_disk(folder: Path, missing: dict[str, str]) -> Iterator[Path]:
    """Mount a separate small file system, or use a directory where that is impossible."""
    disk = folder / "disk"
    disk.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    options = ["-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=755", "chaos", str(disk)]
    done = mount and subprocess.run([mount, *options], check=False, capture_output=True)
    if not done or done.returncode:
        missing["disk_full"] = "no file system can be mounted here"
    try:
        yield disk
    finally:
        if "disk_full" not in missing and unmount:
            subprocess.run([unmount, "--lazy", str(disk)], check=True)


def _clock(stack: contextlib.AsyncExitStack, folder: Path, missing: dict[str, str]) -> Clock | None:
    """Give all processes with its environment a settable clock until the stack is closed."""
    try:
        clock = Clock(folder)
    except FileNotFoundError:
        missing["clock"] = "there is no C compiler"
        return None
    # Servers are normally started with a common environment; here it includes the clock.
    stack.callback(dict.update, embedded._ENVIRONMENT, dict(embedded._ENVIRONMENT))
    stack.callback(dict.clear, embedded._ENVIRONMENT)
    embedded._ENVIRONMENT.update(clock.environment)
    return clock


@contextlib.asynccontextmanager
async def running_fleet(
    folder: Path,
    *,
    seed: int,
    lease_s: float = 3.0,
    latency_s: float = 0.3,
    fault_rate: float = 0.15,
    n_workers: int = 2,
    n_apis: int = 2,
    with_clock: bool = True,
) -> AsyncIterator[Fleet]:
    """Start everything in an empty directory open to other users; stop it at the end.

    With a clock, Sextant's processes load their code anew, as it must run under that clock.
    """
    missing: dict[str, str] = {}
    async with contextlib.AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder, missing))
        clock = _clock(stack, folder, missing) if with_clock else None
        ours = clock.environment if clock else {}
        postgres = EmbeddedPostgres(disk / "pg")
        await stack.enter_async_context(postgres)
        await asyncio.to_thread(upgrade, postgres.url)
        fleet = Fleet(folder, postgres, disk, lease_s, clock, missing)
        for _ in range(n_workers + n_apis):
            proxy = Proxy(fleet.socket)
            await proxy.start()
            stack.push_async_callback(proxy.close)
            fleet.proxies.append(proxy)
        common = {
            **os.environ,
            **ours,
            "OPENBLAS_NUM_THREADS": "1",
            "SEXTANT_DATA_DIR": str(folder / "data"),
            "SEXTANT_LEASE_S": str(lease_s),
            "SEXTANT_HEARTBEAT_S": str(lease_s / 6),
            "SEXTANT_LOG_LEVEL": "warning",
            "SEXTANT_LOG_FORMAT": "json",
            "SEXTANT_PRIVATE_ENDPOINTS": "always",
        }

        def program(name: str, command: Sequence[str], env: Mapping[str, str]) -> Program:
            return Program(name, command, {**common, **env}, folder / f"{name}.log")

        for nth, proxy in enumerate(fleet.proxies):
            env = {"DATABASE_URL": f"postgresql://sextant@127.0.0.1:{proxy.port}/sextant"}
            if nth < n_workers:
                fleet.workers.append(program(f"worker{nth}", ["sextant", "worker"], env))
            else:
                port = free_port()
                command = ["sextant", "serve", "--no-worker", "--port", str(port)]
                fleet.apis.append(program(f"api{nth - n_workers}", command, env))
                fleet.api_urls.append(f"http://127.0.0.1:{port}")
        port = free_port()
        words = {
            "port": port, "log": fleet.model_log, "seed": seed, "latency-s": latency_s,
            "fault-rate": fault_rate,
        }  # fmt: skip
        options = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        command = ["python", "-m", "tests.chaos.model_server", *options]
        fleet.model, fleet.model_url = program("model", command, {}), f"http://127.0.0.1:{port}/v1"
        database = Database(postgres.url, pool_size=1)
        _, fleet.api_key = await ApiKeyService(database).create(
            name="chaos", scopes=[Scope.READ, Scope.RUN, Scope.BANKS_WRITE]
        )
        await database.dispose()
        for each in fleet.programs:
            each.start()
            stack.push_async_callback(each.end)
            keeper = asyncio.create_task(each.keep())
            stack.callback(keeper.cancel)
        stack.push_async_callback(fleet.mend)
        yield fleet
