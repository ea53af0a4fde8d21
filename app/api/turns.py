"""Requests begin one after the other, and of a caller a few that read are worked on at a time.

Each is a few milliseconds of the one event loop: a hundred at once would keep all others, the look
at the server's health too, waiting for the sum of them. Who sends them waits in a line of its own.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from weakref import WeakKeyDictionary, WeakValueDictionary

from starlette.types import Scope

from app.confined import Lane

#: Requests of one key that are worked on at a time, and that may wait.
AT_A_TIME, WAITING = 2, 256
#: Headers by which who asks is told from others, before anybody has looked whether they are true.
_TELLING = frozenset({b"authorization", b"cookie"})


class Door:
    """Lets one through in each pass of an event loop; those who come again and again take turns."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._is_open = True

    async def enter(self, who: Hashable) -> None:
        """Returns when it is the turn of `who`, and of all that `who` has asked for of this one."""
        if self._is_open:
            self._close()
            return
        ticket = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who, deque()).append(ticket)
        await ticket

    def _close(self) -> None:
        """Until the next pass."""
        self._is_open = False
        asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        while self._lines:
            who = next(iter(self._lines))
            line = self._lines.pop(who)
            ticket = line.popleft()
            if line:
                self._lines[who] = line  # behind all others
            if not ticket.done():  # who waits may be cancelled
                ticket.set_result(None)
                self._close()
                return
        self._is_open = True


class _Doors:
    """Of each event loop one."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[asyncio.AbstractEventLoop, Door] = WeakKeyDictionary()

    async def enter(self, scope: Scope) -> None:
        client = (scope.get("client") or ("",))[0]
        who = (client, *(value for name, value in scope["headers"] if name in _TELLING))
        await self._known.setdefault(asyncio.get_running_loop(), Door()).enter(who)


_entrances, _exits = _Doors(), _Doors()
_lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()


async def entered(scope: Scope) -> None:
    """Returns when it is a request's turn to begin.

    Args:
        scope: Of the request. Who sends many at once waits behind the few of another; who invents
            a key for each waits as one who sends many.
    """
    await _entrances.enter(scope)


async def left(scope: Scope) -> None:
    """Returns when an answer may end whose client has hung up, for two hundred may do so at once.

    Args:
        scope: Of its request.
    """
    await _exits.enter(scope)


def turn_of(key_id: str) -> AbstractAsyncContextManager[None]:
    """The next turn of a key, which lasts until the block ends.

    Raises:
        BusyError: On entering, too many of its requests are waiting.
    """
    lane = _lanes.get(key_id)
    if lane is None:
        lane = _lanes[key_id] = Lane(AT_A_TIME, WAITING)
    return lane.turn()
