"""The one retry loop: adapters say what happened, this decides whether and when to ask again."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from app.adapters.base import Completion, CompletionRequest, Examinee
from app.errors import ColdStartError, ExamineeError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to go on.

    A cold start does not count as an attempt: the model is on its way.

    Attributes:
        max_attempts: Calls at most, the first included; 1 never retries a failure.
        base_s: Mean of the first wait is half of this; it doubles with each failure.
        cap_s: No wait is drawn from a range longer than this.
        max_wait_s: Sum of all waits but those for a cold start. A Retry-After beyond what is
            left of it is cut to that.
        cold_start_wait_s: Sum of all waits for a cold start.
    """

    max_attempts: int = 5
    base_s: float = 1.0
    cap_s: float = 30.0
    max_wait_s: float = 300.0
    cold_start_wait_s: float = 900.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise InvalidInputError(f"max_attempts: expected at least 1, got {self.max_attempts}.")
        for name, value in (("base_s", self.base_s), ("cap_s", self.cap_s)):
            if not 0 < value < math.inf:
                raise InvalidInputError(f"{name}: expected more than 0 seconds, got {value}.")
        for name, value in (
            ("max_wait_s", self.max_wait_s),
            ("cold_start_wait_s", self.cold_start_wait_s),
        ):
            if not 0 <= value < math.inf:
                raise InvalidInputError(f"{name}: expected at least 0 seconds, got {value}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why nothing happens just now.

    Attributes:
        until: When the next attempt starts, UTC.
        reason: What the endpoint said.
        attempt: The attempt that failed, from 1.
        error_code: Code of its error.
    """

    until: datetime
    reason: str
    attempt: int
    error_code: str


@dataclass(frozen=True, slots=True)
class Attempted:
    """A completion and how many calls it took."""

    completion: Completion
    attempts: int


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
    """Ask until there is an answer, the error is final, or the policy is used up.

    Waits are drawn uniformly from zero to an exponentially growing bound (full jitter); an
    endpoint's Retry-After is a floor under the draw. Cancelling ends a wait at once.

    Source of the jitter: Brooker (2015), "Exponential Backoff And Jitter", AWS Architecture Blog.

    Args:
        examinee: Whom to ask.
        request: What to ask.
        policy: How long to go on.
        rng: For the jitter only; has no part in any measurement.
        on_wait: Told of waits.
        sleep: Waits seconds.
        now: The clock, UTC.

    Raises:
        ExamineeError: The last failure; `attempts` says how many calls were made.
    """
    attempts = failures = cold_starts = 0
    waited_s = cold_waited_s = 0.0
    while True:
        attempts += 1
        try:
            return Attempted(await examinee.complete(request), attempts)
        except ExamineeError as exc:
            exc.attempts = attempts
            is_cold = isinstance(exc, ColdStartError)
            if is_cold:
                cold_starts += 1
                rounds, left_s = cold_starts, policy.cold_start_wait_s - cold_waited_s
            else:
                failures += 1
                rounds, left_s = failures, policy.max_wait_s - waited_s
            is_used_up = left_s <= 0 or (failures >= policy.max_attempts and not is_cold)
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
