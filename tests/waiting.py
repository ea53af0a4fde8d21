"""Waiting for events without notification."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from app.records.leased import ENDED, LeasedRecord

R = TypeVar("R", bound=LeasedRecord)

_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 0.5


@asynccontextmanager
async def waiting(limit_s: float = 240) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Pauses of a loop that polls until something has happened.

    Polling takes processor time from the awaited work, so each pause is a tenth of the time waited
    so far.

    Args:
        limit_s: Time limit of the whole loop.

    Raises:
        TimeoutError: The loop took longer.
    """
    begin = time.monotonic()

    async def pause() -> None:
        waited = time.monotonic() - begin
        await asyncio.sleep(min(max(waited / 10, _FIRST_PAUSE_S), _LAST_PAUSE_S))

    async with asyncio.timeout(limit_s):
        yield pause


async def reached(look: Callable[[], Awaitable[R]], *statuses: str, limit_s: float = 240) -> R:
    """Return stored work once it has one of these states (default: ended)."""
    wanted = statuses or ENDED
    async with waiting(limit_s) as pause:
        while (record := await look()).status not in wanted:
            assert record.status not in ENDED, f"ended as {record.status}: {record.failure}"
            await pause()
    return record
