"""Doing a thing again while Postgres is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from app.errors import DatabaseUnavailableError

T = TypeVar("T")

logger = structlog.get_logger(__name__)

#: Pause between attempts, seconds: first and longest.
_RETRY_S = (0.2, 2.0)


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try until the database answers: what a worker holds is worth more than a fast error."""
    pause, longest = _RETRY_S
    while True:
        try:
            return await attempt()
        except DatabaseUnavailableError:
            logger.warning("database_away", retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
