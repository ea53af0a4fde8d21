"""How a worker sits out a database that is away, and a server that has too much to do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from app.errors import BusyError, DatabaseUnavailableError

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: Pause between attempts while Postgres is away, seconds: first and longest.
_RETRY_S = (0.2, 2.0)


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Do it again while Postgres is away or helpers are busy: work in hand is worth the wait."""
    pause, longest = _RETRY_S
    while True:
        try:
            return await attempt()
        except (BusyError, DatabaseUnavailableError) as error:
            logger.warning("waits_for_better_times", reason=error.code, retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
