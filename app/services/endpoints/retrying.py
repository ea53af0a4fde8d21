"""How a call is tried again: rate limits, faults that pass, cold starts, budgets that are spent."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np

from app.calling import RetryPolicy
from app.errors import BudgetSpentError, ColdStartError, ExamineeError
from app.services.outages import OnWait, Waiting

T = TypeVar("T")

#: Between two looks whether a budget that is spent lasts again, seconds; one that calls under way
#: hold is looked at sooner.
BUDGET_LOOK_S, HELD_LOOK_S = 10.0, 0.25
#: Less than this is what rounding leaves of a time that is used up, seconds.
_NO_TIME_S = 1e-6


def _utc_now() -> datetime:
    return datetime.now(UTC)


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

    A budget of the day that is spent is waited for, without end, by whoever is told of waits.

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
        BudgetSpentError: Nobody is told of waits.
    """
    looks = 0
    attempts = failures = cold_starts = 0
    waited_s = cold_waited_s = 0.0
    while True:
        attempts += 1
        try:
            return await attempt(), attempts
        except BudgetSpentError as exc:  # no call was made
            attempts -= 1
            if not exc.passes:
                if on_wait is None:
                    raise
                looks += 1
                await on_wait(
                    Waiting(
                        until=now() + timedelta(seconds=exc.retry_after_s),
                        reason=exc.detail,
                        attempt=looks,
                        error_code=exc.code,
                        is_repeat=looks > 1,
                    )
                )
            await sleep(HELD_LOOK_S if exc.passes else BUDGET_LOOK_S)
            continue
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
