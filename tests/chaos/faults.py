"""Applies the faults of a plan to a fleet and records each one."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from tests.chaos.fleet import Fleet, Program, children_of
from tests.chaos.plan import Fault

_SELF = "pg_backend_pid()"


@dataclass
class Chaos:
    """Applies faults to a fleet.

    Attributes:
        played: How often each fault took effect.
        disturbed_model: How often the model was killed or halted, which may lose a reply.
    """

    fleet: Fleet
    played: Counter[str] = field(default_factory=Counter)
    disturbed_model: int = 0
    _postgres: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(self, plan: Sequence[Fault]) -> None:
        """Apply all faults at their times; everything is repaired at the end."""
        begin = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in plan:
                await asyncio.sleep(max(0.0, begin + fault.at_s - time.monotonic()))
                tasks.create_task(self._play(fault))
        await self.fleet.mend()
        if self.fleet.clock is not None:
            self.fleet.clock.set(0)

    async def _play(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                had = await self._kill(fault)
            case "halt":
                had = await self._halt(fault)
            case "outage":
                async with self._postgres:
                    had = await self._outage(fault)
            case _:
                had = self.fleet.clock is not None
                if self.fleet.clock is not None:
                    self.fleet.clock.set(int(fault.what))
        if had:
            told = "" if fault.kind == "clock" else f" {fault.what}"
            self.played[f"{fault.kind}{told}"] += 1

    def _program(self, fault: Fault) -> Program | None:
        if fault.what == "model":
            self.disturbed_model += 1
            return self.fleet.model
        places = self.fleet.workers if fault.what in {"worker", "child"} else self.fleet.apis
        return places[fault.nth % len(places)]

    async def _kill(self, fault: Fault) -> bool:
        if fault.what == "postmaster":
            async with self._postgres:
                return await self._outage(fault)
        if fault.what == "backend":
            victims = self.fleet.postgres_pids()[1:]
        elif fault.what == "child":
            victims = [
                child
                for program in (*self.fleet.workers, *self.fleet.apis)
                if program.running is not None
                for child in children_of(program.running.pid)
            ]
        else:
            victims = []
        program = self._program(fault)
        if not victims:
            # Without a child at that moment, its parent is killed.
            return program is not None and program.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victims[fault.nth % len(victims)], signal.SIGKILL)
            return True
        return False

    async def _halt(self, fault: Fault) -> bool:
        if fault.what == "postgres":
            async with self._postgres:
                halted = self.fleet.postgres_pids()
                _signal_all(halted, signal.SIGSTOP)
                await asyncio.sleep(fault.lasts_s)
                _signal_all(halted, signal.SIGCONT)
                return bool(halted)
        program = self._program(fault)
        if program is None or not program.signal(signal.SIGSTOP):
            return False
        await asyncio.sleep(fault.lasts_s)
        program.signal(signal.SIGCONT)
        return True

    async def _outage(self, fault: Fault) -> bool:
        fleet = self.fleet
        match fault.what:
            case "postgres_stopped":
                await asyncio.to_thread(fleet.postgres.stop)
                await asyncio.sleep(fault.lasts_s)
            case "postgres_killed" | "postmaster":
                _signal_all(fleet.postgres_pids()[:1], signal.SIGKILL)
                await asyncio.sleep(fault.lasts_s)
            case "network_cut" | "network_held":
                for proxy in fleet.proxies:
                    proxy.cut() if fault.what == "network_cut" else proxy.hold()
                await asyncio.sleep(fault.lasts_s)
                for proxy in fleet.proxies:
                    if fault.nth % 2:  # held connections are answered, or broken
                        proxy.cut()
                    proxy.mend()
            case "no_connections":
                await asyncio.to_thread(_hog, fleet.conninfo, fault.lasts_s)
            case "disk_full":
                ballast = fleet.disk / "ballast"
                for _ in range(3):  # it fails if others have written meanwhile
                    with contextlib.suppress(OSError), ballast.open("ab") as file:
                        free = os.statvfs(fleet.disk)
                        size = free.f_bavail * free.f_frsize
                        os.posix_fallocate(file.fileno(), file.tell(), size)
                await asyncio.sleep(fault.lasts_s)
                ballast.unlink()
            case _:
                raise ValueError(fault.what)
        await asyncio.to_thread(fleet.postgres.start)
        return True


def _signal_all(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


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
                    f" WHERE backend_type = 'client backend' AND pid <> {_SELF}"
                    " AND NOT pid = ANY(%s)",
                    [[each.info.backend_pid for each in taken]],
                )
                time.sleep(0.05)
    for each in taken:
        each.close()
