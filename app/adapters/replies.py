"""Replies are read beside the event loop: what an endpoint sends may take seconds to read."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from app.adapters.transport import Reply
from app.fair_semaphore import FairSemaphore

#: Bytes that are read in a millisecond or two, whatever they hold.
SMALL: Final = 1 << 16
#: Values that a reply may hold: more than 4 MB of log-probabilities, with the bytes of tokens, ever
#: do. They take the decoder a third of a second at most, and all else waits.
MAX_VALUES: Final = 1_000_000

_T = TypeVar("_T")
#: One at a time: threads that reckon in Python take turns with the loop, and what was read takes
#: memory. Projects and keys take turns, too. A call in flight waits, so nobody is sent away.
_reading = FairSemaphore(1, waiting=1_000_000)


async def off_the_loop(reply: Reply, read: Callable[[Reply], _T]) -> _T:
    """What `read` makes of `reply`: a large one is read in a thread."""
    if len(reply.body) <= SMALL:
        return read(reply)
    async with _reading.turn():
        began = time.monotonic()
        try:
            return await asyncio.to_thread(read, reply)
        finally:
            # As long again the loop has the processor to itself: else one reader follows another.
            await asyncio.sleep(time.monotonic() - began)


class TooManyValuesError(ValueError):
    """A reply holds more values than any answer needs: each costs far more than its bytes."""


def decoded(body: bytes) -> Any:
    """The JSON in `body`.

    Raises:
        TooManyValuesError: There are more than `MAX_VALUES`, by its brackets and commas.
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    if len(body) > SMALL and sum(map(body.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise TooManyValuesError(f"more than {MAX_VALUES} values")
    return json.loads(body)
