"""Requests begin one after the other, and of a caller a few that read are worked on at a time.

Each is a few milliseconds of the one event loop: a hundred at once would keep all others, the look
at the server's health too, waiting for the sum of them. Who sends them waits in a line of its own.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from weakref import WeakKeyDictionary, WeakValueDictionary

from app.confined import Lane

#: Requests of one key that are worked on at a time, and that may wait.
AT_A_TIME, WAITING = 2, 256

_doors: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()


async def entered() -> None:
    """Returns in the order of calls, of which one goes on in each pass of the event loop."""
    async with door():
        await asyncio.sleep(0)


def door() -> asyncio.Lock:
    """Held by the request of this event loop that is about to begin."""
    return _doors.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def turn_of(key_id: str) -> AbstractAsyncContextManager[None]:
    """The next turn of a key, which lasts until the block ends.

    Raises:
        BusyError: On entering, too many of its requests are waiting.
    """
    lane = _lanes.get(key_id)
    if lane is None:
        lane = _lanes[key_id] = Lane(AT_A_TIME, WAITING)
    return lane.turn()
