"""Whose turn it is: sessions and trials have workbenches of their own, and each owner a place."""

import asyncio
import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Literal, Protocol

from app.scorers.workbench import Result, Workbench


class Bench(Protocol):
    """Where the work of scorers is done."""

    async def run(self, task: str, *, timeout_s: float, **arguments: object) -> Result:
        """Do one job; see `Workbench.run`."""
        ...

    def ask(self, task: str, *, timeout_s: float, **arguments: object) -> Result:
        """Do one job; see `Workbench.ask`."""
        ...


@dataclass(frozen=True, slots=True)
class _Turn:
    """A place at a workbench in somebody's name."""

    bench: Workbench
    owner: str

    async def run(self, task: str, *, timeout_s: float, **arguments: object) -> Result:
        return await self.bench.run(task, timeout_s=timeout_s, owner=self.owner, **arguments)

    def ask(self, task: str, *, timeout_s: float, **arguments: object) -> Result:
        return self.bench.ask(task, timeout_s=timeout_s, **arguments)


Kind = Literal["sessions", "trials"]

_benches: dict[Kind, Workbench] = {}
_benches_lock = Lock()
_here: Bench | None = None
_turn: ContextVar[tuple[Kind, str]] = ContextVar("turn", default=("sessions", ""))


@contextmanager
def working_for(owner: str, *, kind: Kind = "sessions") -> Iterator[None]:
    """Have the work within done in this owner's turns."""
    token = _turn.set((kind, owner))
    try:
        yield
    finally:
        _turn.reset(token)


def current_bench() -> Bench:
    """Where the work of whoever asks is done."""
    if _here is not None:
        return _here
    kind, owner = _turn.get()
    return _Turn(workbench(kind), owner)


def workbench(kind: Kind = "sessions") -> Workbench:
    """A workbench of this process, made on first use."""
    with _benches_lock:
        bench = _benches.get(kind)
        if bench is None:
            if kind == "sessions":
                bench = Workbench()
            else:  # somebody waits for it: told soon when it is taken
                bench = Workbench(size=1, slow=0, waiting=4, patience_s=10.0)
            _benches[kind] = bench
            atexit.register(bench.close)
        return bench


def work_here(bench: Bench) -> None:
    """Within a helper process: do all work right here."""
    global _here  # a helper stays one
    _here = bench


async def aclose() -> None:
    """End the helper processes, if any run. The next use starts new ones."""
    with _benches_lock:
        closing = list(_benches.values())
        _benches.clear()
    for bench in closing:
        atexit.unregister(bench.close)
        await asyncio.to_thread(bench.close)
