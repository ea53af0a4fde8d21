"""Faults that only the benchmark `chaos.py` plays, drawn from a seed before anything runs.

Beside those of `tests/chaos`: networks that are cut or held, no free connection, a full disk, and
a clock that jumps.
"""

# ruff: noqa: SLF001 (a server is started in an environment with the clock)
import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psycopg
from typing_extensions import override

from app.storage import embedded
from tests.chaos.faults import Chaos, Fault

#: Size of the file system that can be filled, where one can be mounted.
_DISK_BYTES: Final = 768 << 20
#: Processes to kill, weighted by frequency.
KILLED: Final = {
    "worker": 0.5, "api": 0.2, "model": 0.08, "backend": 0.1, "postmaster": 0.04, "child": 0.08,
}  # fmt: skip
#: Processes to halt and continue later.
HALTED: Final = ("worker", "api", "model", "postgres")
OUTAGES: Final = (
    "postgres_killed", "postgres_stopped", "network_cut", "network_held", "no_connections",
    "disk_full",
)  # fmt: skip
CLOCKS_S: Final = (3600, -3600, 40, -40, 0)


def plan(
    seed: int,
    *,
    duration_s: float,
    kills: int,
    halts: int,
    outages: int,
    clocks: int,
    lease_s: float,
    without: Collection[str] = (),
) -> list[Fault]:
    """Return faults in the order in which they occur.

    Args:
        seed: Seed of the draws.
        duration_s: Time within which they occur.
        kills: Number of killed processes.
        halts: Number of halted processes, half of them for longer than a lease.
        outages: Number of database outages; all kinds are equally frequent.
        clocks: Number of jumps of the clock.
        lease_s: Lease of the workers.
        without: Outages that are impossible here.
    """
    rng = np.random.default_rng(seed)
    possible = [kind for kind in OUTAGES if kind not in without]

    def drawn(kind: str, n: int, whats: Sequence[str], longest_s: float) -> list[Fault]:
        # One in each of `n` equal spans, so that no long time passes without any.
        starts = (np.arange(n) + rng.uniform(0.1, 0.9, n)) * duration_s / max(n, 1)
        lasts = rng.uniform(0.2, 1.0, n) * longest_s
        nths = rng.integers(0, 1 << 30, n)
        return [
            Fault(float(at), kind, what, int(nth), float(s))
            for at, what, nth, s in zip(starts, whats, nths, lasts, strict=True)
        ]

    def in_turn(kinds: Sequence[str], n: int) -> list[str]:
        rounds = [rng.permutation(kinds) for _ in range(-(-n // len(kinds)))]
        return [str(kind) for part in rounds for kind in part][:n]

    killed = [str(who) for who in rng.choice(list(KILLED), kills, p=list(KILLED.values()))]
    return sorted(
        [
            *drawn("kill", kills, killed, 0.0),
            *drawn("halt", halts, in_turn(HALTED, halts), 1.5 * lease_s),
            *drawn("outage", outages, in_turn(possible, outages), 1.5 * lease_s),
            *drawn("clock", clocks, in_turn([str(s) for s in CLOCKS_S], clocks), 0.0),
        ]
    )


@dataclass
class EveryFault(Chaos):
    """Applies all faults to a fleet whose processes reach the database through proxies."""

    proxies: Sequence["Proxy"] = ()
    disk: Path = Path()
    clock: "Clock | None" = None

    @override
    async def mend(self) -> None:
        for proxy in self.proxies:
            proxy.mend()
        (self.disk / "ballast").unlink(missing_ok=True)
        await super().mend()
        if self.clock is not None:
            self.clock.set(0)

    @override
    async def apply(self, fault: Fault) -> bool:
        if fault.kind != "clock":
            return await super().apply(fault)
        if self.clock is not None:
            self.clock.set(int(fault.what))
        return self.clock is not None

    @override
    async def outage(self, fault: Fault) -> None:
        match fault.what:
            case "network_cut" | "network_held":
                for proxy in self.proxies:
                    proxy.cut() if fault.what == "network_cut" else proxy.hold()
                await asyncio.sleep(fault.lasts_s)
                for proxy in self.proxies:
                    if fault.nth % 2:  # held connections are answered, or broken
                        proxy.cut()
                    proxy.mend()
            case "no_connections":
                await asyncio.to_thread(_hog, self.fleet.conninfo, fault.lasts_s)
            case "disk_full":
                ballast = self.disk / "ballast"
                for _ in range(3):  # it fails if others have written meanwhile
                    with contextlib.suppress(OSError), ballast.open("ab") as file:
                        free = os.statvfs(self.disk)
                        size = free.f_bavail * free.f_frsize
                        os.posix_fallocate(file.fileno(), file.tell(), size)
                await asyncio.sleep(fault.lasts_s)
                ballast.unlink()
            case _:
                await super().outage(fault)


def _hog(conninfo: str, lasts_s: float) -> None:
    """Take all free connections, including those meant for others."""
    taken: list[psycopg.Connection] = []
    until = time.monotonic() + lasts_s
    with contextlib.suppress(psycopg.Error):
        while time.monotonic() < until:
            try:
                taken.append(psycopg.connect(conninfo, autocommit=True))
            except psycopg.OperationalError:
                taken[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                    " AND NOT pid = ANY(%s)",
                    [[each.info.backend_pid for each in taken]],
                )
                time.sleep(0.05)
    for each in taken:
        each.close()


_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static const volatile int64_t none, *ahead_s = &none;
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) ahead_s = map;
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
}
int clock_gettime(clockid_t clock, struct timespec *told) {
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, told);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        told->tv_sec += *ahead_s;
    return failed;
}
int gettimeofday(struct timeval *restrict told, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The time of day of all processes that run with `environment`.

    Raises:
        FileNotFoundError: There is no C compiler.
    """

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("cc")
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        self._ahead = folder / "ahead"
        self.set(0)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        for path in (library, self._ahead):
            path.chmod(0o755)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._ahead)}

    def set(self, ahead_s: int) -> None:
        """Set the clock this many seconds ahead of the machine's."""
        if not self._ahead.exists():
            self._ahead.touch()
        with self._ahead.open("r+b") as file:  # the same file, since it is memory-mapped
            file.write(struct.pack("=q", ahead_s))


@contextlib.contextmanager
def settable_clock(folder: Path, missing: dict[str, str]) -> Iterator[Clock | None]:
    """Give the embedded Postgres, and processes with its environment, a settable clock."""
    try:
        clock = Clock(folder)
    except FileNotFoundError:
        missing["clock"] = "there is no C compiler"
        yield None
        return
    before = dict(embedded._ENVIRONMENT)
    embedded._ENVIRONMENT.update(clock.environment)
    try:
        yield clock
    finally:
        embedded._ENVIRONMENT.clear()
        embedded._ENVIRONMENT.update(before)


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


_CHUNK = 1 << 16


class Proxy:
    """Forwards connections; on hold nothing passes, and when cut there are no connections."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._passing = asyncio.Event()
        self._passing.set()
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close everything."""
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted connections close in the next round

    def hold(self) -> None:
        """Hold all data silently."""
        self._passing.clear()

    def cut(self) -> None:
        """Break all connections and accept none."""
        self._is_cut = True
        self._passing.set()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Let all data pass."""
        self._is_cut = False
        self._passing.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ours = [writer]
        self._writers.add(writer)
        try:
            await self._passing.wait()
            if not self._is_cut:
                there, back = await asyncio.open_unix_connection(str(self._socket))
                ours.append(back)
                self._writers.add(back)
                await self._both(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            pass  # no listener
        finally:
            for each in ours:
                each.transport.abort()
                self._writers.discard(each)

    @staticmethod
    async def _both(*pumps: Coroutine[Any, Any, None]) -> None:
        """Run both until one has ended."""
        ways = [asyncio.ensure_future(pump) for pump in pumps]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._passing.wait()
                target.write(data)
                await target.drain()
