"""Waits: for causes outside the work, such as no database; and work that its callers share."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import structlog
from cachetools import TTLCache

from app.errors import AlreadyExistsError, BusyError, DatabaseUnavailableError, SecretsError

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: First and longest pause between attempts while Postgres is away, seconds.
_RETRY_S = (0.2, 2.0)
#: Seconds between two attempts to read a stored secret.
_KEY_LOOK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A wait before the next attempt.

    Attributes:
        until: Start of the next attempt, UTC.
        attempt: Number of the failed attempt, from 1.
        is_repeat: Whether the same wait was reported before, with an earlier `until`.
    """

    until: datetime
    reason: str
    attempt: int
    error_code: str
    is_repeat: bool = False


OnWait = Callable[[Waiting | None], Awaitable[None]]
"""Called before each wait begins, and with `None` when it is over."""


async def retry_outages(attempt: Callable[[], Awaitable[T]], on_wait: OnWait | None = None) -> T:
    """Retry while Postgres is away or helpers are busy: work in hand is worth the wait.

    Args:
        attempt: Work to do.
        on_wait: Called at each failure to read a stored secret, since the secret or its key may
            be repaired. With None, the failure is raised at once.

    Raises:
        SecretsError: A stored secret cannot be read, and `on_wait` is None.
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


async def again_if_taken(attempt: Callable[[], Awaitable[T]]) -> T:
    """Make another attempt if somebody has just made something of the same name."""
    try:
        return await attempt()
    except AlreadyExistsError:
        return await attempt()


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class InProgress(Generic[K, V]):
    """Work in progress, by key. It is cancelled when no caller waits for it any more."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[V]] = {}
        self._waiting: Counter[asyncio.Task[V]] = Counter()

    async def once(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of `work`, started now or by an earlier caller with the same key."""
        task = self._tasks.get(key) or asyncio.create_task(work())
        self._tasks[key] = task
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                if self._tasks.get(key) is task:
                    del self._tasks[key]
                if task.cancel():
                    await asyncio.wait([task])  # until it has released its resources


class Recent(Generic[K, V]):
    """Values looked up a moment ago; simultaneous callers share a look-up. Empty ones are not kept.

    Args:
        look_up: Finds the value of a key.
        kept_s: Seconds for which a value is not looked up again.
        most: Number of values that are kept.
    """

    def __init__(
        self, look_up: Callable[[K], Coroutine[Any, Any, V]], kept_s: float, most: int = 1000
    ) -> None:
        self._look_up = look_up
        self._kept: TTLCache[K, V] = TTLCache(most, kept_s)
        self._looking: InProgress[K, V] = InProgress()

    async def get(self, key: K) -> V:
        """The value of a key, as it was a moment ago or is now."""
        known = self._kept.get(key)
        if known is None:
            known = await self._looking.once(key, lambda: self._look_up(key))
            if known:
                self._kept[key] = known
        return known

    def keep(self, key: K, value: V) -> None:
        """Note a value that was found in another way."""
        self._kept[key] = value

    def forget(self, is_gone: Callable[[V], bool]) -> None:
        """Drop the values for which `is_gone` holds, so that they are looked up again."""
        for key in list(self._kept):
            known = self._kept.get(key)  # None where it has just expired
            if known is not None and is_gone(known):
                self._kept.pop(key, None)
