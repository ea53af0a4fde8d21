"""A semaphore that gives its places in turn to waiting projects and keys."""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import NamedTuple

from app.acting import present
from app.errors import BusyError

#: Most pieces of work that wait for their turn; more are refused.
MAX_WAITING = 16
#: Seconds that the present task has waited for its turns.
waited_s: ContextVar[float] = ContextVar("waited_s", default=0.0)


class Owner(NamedTuple):
    """Project and API key that own work."""

    project_id: str | None
    key_id: str | None


class FairSemaphore:
    """Bounds the work that runs and the work that waits, in turns; bound to no event loop.

    Projects take turns, and so do the keys of a project: however much work one has queued, the
    next waits only for work that runs. In a full line, the owner with most work in it gives way.

    Args:
        width: Pieces of work that run at a time.
        waiting: Pieces of work that may wait.
        spare: Places beyond `width` for keys that have no work running; the last of several is for
            projects that have none.
    """

    def __init__(self, width: int, waiting: int = MAX_WAITING, *, spare: int = 0) -> None:
        self._lock = threading.Lock()
        self._width, self._spare, self._max_waiting = width, spare, waiting
        self._working: Counter[Owner] = Counter()
        self._waiting: dict[Owner, deque[Future[None]]] = {}
        #: Number of the last turn of each project and each key; cleared when nothing waits.
        self._turns: dict[Owner | str | None, int] = {}
        self._turn_number = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Run the block when its turn comes; a cancelled task leaves the line.

        Raises:
            BusyError: Too much work is waiting.
        """
        acting = present()
        owner = Owner(acting.project_id, acting.key_id)
        with self._lock:
            ticket = self._entered(owner)
        if ticket is not None:
            began = time.monotonic()
            try:
                await asyncio.wrap_future(ticket)
            except BaseException:
                self._give_up(owner, ticket)
                raise
            finally:
                waited_s.set(waited_s.get() + time.monotonic() - began)
        try:
            yield
        finally:
            with self._lock:
                self._leave(owner)

    @property
    def n_waiting(self) -> int:
        """Number of pieces of work that wait."""
        with self._lock:
            return self._in_line()

    def _in_line(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _entered(self, owner: Owner) -> "Future[None] | None":
        """Ticket of a place in the line; None where the work need not wait."""
        if self._may_begin(owner):
            self._working[owner] += 1
            return None
        if self._in_line() >= self._max_waiting:
            self._make_room(owner)
        ticket: Future[None] = Future()
        self._waiting.setdefault(owner, deque()).append(ticket)
        return ticket

    def _may_begin(self, owner: Owner) -> bool:
        places = self._width
        if not self._working[owner]:
            is_busy = any(one.project_id == owner.project_id for one in self._working)
            places += self._spare - (is_busy and self._spare > 1)
        return self._working.total() < places

    def _make_room(self, owner: Owner) -> None:
        busy = BusyError(
            f"{self._max_waiting} other requests of this kind are waiting already: try again in a "
            "moment."
        )
        most = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[most]) <= len(self._waiting.get(owner, ())) + 1:
            raise busy
        last = self._waiting[most].pop()  # the line is not empty: it had at least two
        if last.set_running_or_notify_cancel():
            last.set_exception(busy)

    def _give_up(self, owner: Owner, ticket: "Future[None]") -> None:
        with self._lock:
            line = self._waiting.get(owner, deque())
            if ticket in line:
                line.remove(ticket)
                if not line:
                    del self._waiting[owner]
            elif not ticket.cancelled() and ticket.exception() is None:
                self._leave(owner)  # its turn came while it gave up

    def _leave(self, owner: Owner) -> None:
        self._working[owner] -= 1
        if not self._working[owner]:
            del self._working[owner]
        while (following := self._next()) is not None:
            line = self._waiting[following]
            ticket = line.popleft()
            if not line:
                del self._waiting[following]
            if ticket.set_running_or_notify_cancel():
                self._turn_number += 1
                self._turns[following] = self._turns[following.project_id] = self._turn_number
                self._working[following] += 1
                ticket.set_result(None)
        if not self._waiting:
            self._turns.clear()

    def _next(self) -> Owner | None:
        """Waiting owner that may begin, by the oldest last turn of its project, then its key."""
        return min(
            filter(self._may_begin, self._waiting),
            key=lambda one: (self._turns.get(one.project_id, 0), self._turns.get(one, 0)),
            default=None,
        )
