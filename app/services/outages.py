"""How a worker sits out what is not its work's fault: no database, a full house, a wrong key."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog

from app.errors import BusyError, DatabaseUnavailableError, SecretsError

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: Pause between attempts while Postgres is away, seconds: first and longest.
_RETRY_S = (0.2, 2.0)
#: Seconds between two looks whether a stored secret can be read by now.
_KEY_LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why nothing happens just now.

    Attributes:
        until: When the next attempt starts, UTC.
        reason: What the endpoint said.
        attempt: The attempt that failed, from 1.
        error_code: Code of its error.
        is_repeat: Whether the same wait was told of before, with an earlier `until`.
    """

    until: datetime
    reason: str
    attempt: int
    error_code: str
    is_repeat: bool = False


OnWait = Callable[[Waiting | None], Awaitable[None]]
"""Told of each wait before it begins, and with `None` when it is over."""


async def retry_outages(attempt: Callable[[], Awaitable[T]], on_wait: OnWait | None = None) -> T:
    """Do it again while Postgres is away or helpers are busy: work in hand is worth the wait.

    Args:
        attempt: What is done.
        on_wait: Told at each look that a stored secret cannot be read by now: it, or the key, may
            be put right. None: nobody waits for that, the error is raised.

    Raises:
        SecretsError: Nobody is told of waits.
    """
    pause, longest = _RETRY_S
    looks = 0
    while True:
        try:
            return await attempt()
        except (BusyError, DatabaseUnavailableError) as error:
            logger.warning("waits_for_better_times", reason=error.code, retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            continue
        except SecretsError as error:
            if on_wait is None:
                raise
            looks += 1
            if looks == 1:
                logger.warning("secret_unreadable", detail=error.detail)
            waiting = Waiting(
                until=datetime.now(UTC) + timedelta(seconds=_KEY_LOOK_S),
                reason=error.detail,
                attempt=looks,
                error_code=error.code,
                is_repeat=looks > 1,
            )
        await on_wait(waiting)
        await asyncio.sleep(_KEY_LOOK_S)
