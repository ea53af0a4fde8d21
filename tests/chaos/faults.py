"""Faults of a fleet, applied at their times and recorded; the benchmark adds others."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.chaos.fleet import Fleet, Program, children_of


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault.

    Attributes:
        at_s: Seconds after the start.
        kind: `kill`, `halt` or `outage`; `benchmarks/chaos_faults.py` has more.
        what: Process or kind of outage.
        nth: Index among several processes, modulo their number.
        lasts_s: Seconds until it is repaired.
    """

    at_s: float
    kind: str
    what: str
    nth: int = 0
    lasts_s: float = 0.0


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
        await self.mend()

    async def mend(self) -> None:
        """Repair everything."""
        await self.fleet.mend()

    async def _play(self, fault: Fault) -> None:
        if await self.apply(fault):
            self.played[f"{fault.kind} {fault.what}"] += 1

    async def apply(self, fault: Fault) -> bool:
        """Apply a fault and repair it; return whether it took effect."""
        if fault.kind == "kill":
            return await self._kill(fault)
        if fault.kind == "halt":
            return await self._halt(fault)
        async with self._postgres:
            await self.outage(fault)
            await asyncio.to_thread(self.fleet.postgres.start)
        return True

    def _program(self, fault: Fault) -> Program | None:
        if fault.what == "model":
            self.disturbed_model += 1
            return self.fleet.model
        places = self.fleet.workers if fault.what in {"worker", "child"} else self.fleet.apis
        return places[fault.nth % len(places)]

    async def _kill(self, fault: Fault) -> bool:
        if fault.what == "postmaster":
            return await self.apply(replace(fault, kind="outage"))
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

    async def outage(self, fault: Fault) -> None:
        """Take the database away for a time."""
        if fault.what == "postgres_stopped":
            await asyncio.to_thread(self.fleet.postgres.stop)
        else:
            _signal_all(self.fleet.postgres_pids()[:1], signal.SIGKILL)
        await asyncio.sleep(fault.lasts_s)


def _signal_all(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
