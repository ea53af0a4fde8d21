"""The one retry loop: adapters say what happened, this decides whether and when to ask again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np

from app.adapters.base import Completion, CompletionRequest, Examinee
from app.calling import RetryPolicy
from app.errors import ColdStartError, ExamineeError

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Attempted:
    """A completion and how many calls it took."""

    completion: Completion
    attempts: int


#: Less than this is what rounding leaves of a time that is used up, seconds.
_NO_TIME_S = 1e-6

OnWait = Callable[[Waiting | None], Awaitable[None]]
"""Told of each wait before it begins, and with `None` when it is over."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def complete(
    examinee: Examinee,
    request: CompletionRequest,
    policy: RetryPolicy,
    rng: np.random.Generator,
    on_wait: OnWait | None = None,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now: Callable[[], datetime] = _utc_now,
) -> Attempted:
    """Ask an examinee; see `persist`."""
    completion, attempts = await persist(
        lambda: examinee.complete(request), policy, rng, on_wait, sleep=sleep, now=now
    )
    return Attempted(completion, attempts)


async def persist(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    rng: np.random.Generator,
    on_wait: OnWait | None = None,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now: Callable[[], datetime] = _utc_now,
) -> tuple[T, int]:
    """Try until there is an answer, the error is final, or the policy is used up.

    Waits are drawn uniformly from zero to an exponentially growing bound (full jitter); an
    endpoint's Retry-After is a floor under the draw. Cancelling ends a wait at once.

    Source of the jitter: Brooker (2015), "Exponential Backoff And Jitter", AWS Architecture Blog.

    Args:
        attempt: One call; raises `ExamineeError`.
        policy: How long to go on.
        rng: For the jitter only; has no part in any measurement.
        on_wait: Told of waits.
        sleep: Waits seconds.
        now: The clock, UTC.

    Returns:
        What the call gave, and how many calls were made.

    Raises:
        ExamineeError: The last failure; `attempts` says how many calls were made.
    """
    attempts = failures = cold_starts = 0
    waited_s = cold_waited_s = 0.0
    while True:
        attempts += 1
        try:
            return await attempt(), attempts
        except ExamineeError as exc:
            exc.attempts = attempts
            is_cold = isinstance(exc, ColdStartError)
            if is_cold:
                cold_starts += 1
                rounds, left_s = cold_starts, policy.cold_start_wait_s - cold_waited_s
            else:
                failures += 1
                rounds, left_s = failures, policy.max_wait_s - waited_s
            is_used_up = left_s < _NO_TIME_S or (failures >= policy.max_attempts and not is_cold)
            if not exc.retryable or is_used_up:
                raise
            bound_s = min(policy.cap_s, policy.base_s * 2.0 ** min(rounds - 1, 60))
            delay_s = min(left_s, (exc.retry_after_s or 0.0) + float(rng.uniform(0.0, bound_s)))
            waiting = Waiting(
                until=now() + timedelta(seconds=delay_s),
                reason=exc.detail,
                attempt=attempts,
                error_code=exc.code,
            )
        if is_cold:
            cold_waited_s += delay_s
        else:
            waited_s += delay_s
        if on_wait is not None:
            await on_wait(waiting)
        await sleep(delay_s)
        if on_wait is not None:
            await on_wait(None)
