"""Replies are read beside the event loop: what an endpoint sends may take seconds to read."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from app.adapters.transport import Reply
from app.fair_semaphore import FairSemaphore
from app.json_in_slices import InSlices

#: Bytes that are read in a millisecond or two, whatever they hold.
SMALL: Final = 1 << 16
#: Brackets and commas that the decoder in C takes in one go: a tenth of a second.
_MAX_MARKS: Final = 250_000
#: 4 MB of log-probabilities, with the bytes of every token, hold less than half of these.
MAX_VALUES: Final = 1_000_000

_T = TypeVar("_T")
#: One at a time: threads that reckon in Python take turns with the loop, and what was read takes
#: memory. Projects and keys take turns, too. A call in flight waits, so nobody is sent away.
_reading = FairSemaphore(1, waiting=1_000_000)


async def beside_the_loop(reply: Reply, read: Callable[[Reply], _T]) -> _T:
    """What `read` makes of `reply`: a large one is read in a thread."""
    if len(reply.body) <= SMALL:
        return read(reply)
    async with _reading.turn():
        return await asyncio.to_thread(read, reply)


def decoded(body: bytes) -> Any:
    """The JSON in `body`.

    Raises:
        TooManyValuesError: There are more than `MAX_VALUES`.
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    if len(body) <= SMALL or sum(map(body.count, (b"[", b"{", b","))) <= _MAX_MARKS:
        return json.loads(body)
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    return json.loads(text, cls=InSlices, max_values=MAX_VALUES)
