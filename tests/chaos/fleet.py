"""Sextant as several processes on one Postgres beside a model; dead processes are restarted."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from app.records.api_keys import Scope
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from tests.databases import libpq
from tests.servers import ROOT, free_port
from tests.servers.forked import Forked

#: Worker processes, and as many API processes.
N_WORKERS: Final = 2


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
        model_log: Calls and replies of the model.
    """

    folder: Path
    postgres: EmbeddedPostgres
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
    def conninfo(self) -> str:
        """Return a libpq connection string of the checker."""
        return f"{libpq(self.postgres.url)}&connect_timeout=5"

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


@contextlib.asynccontextmanager
async def running_fleet(
    folder: Path,
    postgres: EmbeddedPostgres,
    *,
    seed: int,
    lease_s: float,
    latency_s: float,
    urls: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    """Start everything in an empty directory open to other users; stop it at the end.

    Args:
        folder: The directory.
        postgres: The server, not started yet.
        seed: Seed of the model.
        lease_s: Lease of the workers.
        latency_s: Mean latency of the model.
        urls: Address of the database for each worker, then each API; by default the server's own.
        environment: Environment in addition to the present one.
    """
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(postgres)
        await asyncio.to_thread(upgrade, postgres.url)
        fleet = Fleet(folder, postgres)
        common = {
            **os.environ,
            **(environment or {}),
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

        for nth, url in enumerate(urls or [postgres.url] * 2 * N_WORKERS):
            env = {"DATABASE_URL": url}
            if nth < N_WORKERS:
                fleet.workers.append(program(f"worker{nth}", ["sextant", "worker"], env))
            else:
                port = free_port()
                command = ["sextant", "serve", "--no-worker", "--port", str(port)]
                fleet.apis.append(program(f"api{nth - N_WORKERS}", command, env))
                fleet.api_urls.append(f"http://127.0.0.1:{port}")
        port = free_port()
        words = {"port": port, "log": fleet.model_log, "seed": seed, "latency-s": latency_s}
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
