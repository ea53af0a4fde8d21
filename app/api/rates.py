"""Rate limits of projects and their keys, and limits on parallel reads, in one process."""

import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

from cachetools import LRUCache
from fastapi import Request
from starlette.requests import ClientDisconnect

from app.errors import TooManyRequestsError
from app.fair_semaphore import FairSemaphore
from app.records.projects import SHARE, Project

#: Seconds over which a limit is averaged; this many seconds' requests may come at once.
_OVER_S = 10.0
_MOST_PROJECTS, _MOST_KEYS = 10_000, 50_000
#: Requests of one key that only read: how many run at a time, and how many may wait. Without this
#: limit, a hundred reports requested at once delay all other requests by two seconds.
READ_AT_A_TIME, _WAITING = 2, 256


class _Asked(NamedTuple):
    """Key of a project's last request, its time, and the time of another key's last request."""

    key_id: str
    at: float
    other_at: float


#: Project -> time at which its admitted requests would be due at the limit's pace (GCRA).
_scheduled: LRUCache[str, float] = LRUCache(_MOST_PROJECTS)
#: Project and key -> the same time for the key's requests, at its share of the pace.
_of_keys: LRUCache[tuple[str, str], float] = LRUCache(_MOST_KEYS)
#: Key -> the same time for the key's requests, at the key's own limit.
_own: LRUCache[str, float] = LRUCache(_MOST_KEYS)
_asked: LRUCache[str, _Asked] = LRUCache(_MOST_PROJECTS)
_reading: WeakValueDictionary[str, FairSemaphore] = WeakValueDictionary()


@asynccontextmanager
async def reading_turn(request: Request, key_id: str) -> AsyncIterator[None]:
    """Wait for a key's turn to read; the turn ends with the block.

    Raises:
        BusyError: Too many requests of the key wait.
        ClientDisconnect: The client hung up while its request waited.
    """
    lane = _reading.get(key_id)
    if lane is None:
        lane = _reading[key_id] = FairSemaphore(READ_AT_A_TIME, _WAITING)
    async with AsyncExitStack() as held:
        await held.enter_async_context(lane.turn())
        if await request.is_disconnected():
            raise ClientDisconnect
        request.state.reading = lane, held
        yield


@asynccontextmanager
async def turn_given_up(request: Request) -> AsyncIterator[None]:
    """Leave a request's turn to read to others of its key until the block ends."""
    lane, held = request.state.reading
    await held.aclose()
    yield
    await held.enter_async_context(lane.turn())


def let_in(
    project: Project, key_id: str, own_rate: float | None = None, now: float | None = None
) -> None:
    """Count a request, and refuse it above the limits.

    Args:
        project: Project of the request.
        key_id: Key that sent the request.
        own_rate: The key's own limit, requests a second; None: only the project's limit applies.
        now: Time in seconds; by default the process's monotonic clock.

    Raises:
        TooManyRequestsError: The request exceeds the limit of its key or project, or the key's
            share while other keys send requests.
    """
    now = time.monotonic() if now is None else now
    rate = project.limits.requests_per_s
    if own_rate is not None:
        ahead_s = _own.get(key_id, now) - now
        early_s = _early_s(max(ahead_s, 0.0), own_rate)
        if early_s > 1e-9:
            raise _refusal("This key", own_rate, early_s)
    if rate is not None:
        _let_in_by_project(project, rate, key_id, now)
    if own_rate is not None:  # counted only after the project admits the request
        _own[key_id] = max(_own.get(key_id, now), now) + 1 / own_rate


def _let_in_by_project(project: Project, rate: float, key_id: str, now: float) -> None:
    key, fair = (project.id, key_id), rate * SHARE
    due, own_due = max(_scheduled.get(project.id, now), now), max(_of_keys.get(key, now), now)
    early_s, own_early_s = _early_s(due - now, rate), _early_s(own_due - now, fair)
    before = _asked.get(project.id, _Asked(key_id, now, -math.inf))
    other_at = before.other_at if before.key_id == key_id else before.at
    _asked[project.id] = _Asked(key_id, now, other_at)
    if now - other_at >= _OVER_S:  # no other key of the project sent a request lately
        own_early_s = 0.0
    if max(early_s, own_early_s) > 1e-9:
        whose = f"Project {project.name!r}" if early_s > 1e-9 else "Each of several keys in use"
        pace = rate if early_s > 1e-9 else fair
        raise _refusal(whose, pace, max(early_s, own_early_s))
    _scheduled[project.id] = due + 1 / rate
    # Requests beyond its share, admitted while no other key asked, burden the key only briefly.
    _of_keys[key] = min(own_due + 1 / fair, now + _OVER_S)


def _refusal(whose: str, rate: float, early_s: float) -> TooManyRequestsError:
    return TooManyRequestsError(
        f"{whose} may send {rate:g} requests a second on average over {_OVER_S:g} s; more came: "
        "wait as Retry-After says.",
        retry_after_s=early_s,
    )


def _early_s(ahead_s: float, rate: float) -> float:
    """Seconds to wait before a request whose predecessors run `ahead_s` ahead of the pace."""
    return max(ahead_s - max(_OVER_S - 1 / rate, 0.0), 0.0)
