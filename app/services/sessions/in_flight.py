"""Calls in flight, which start one by one; those that end at about the same time are grouped."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: Calls that start together end at slightly different times. After the first one ends, the others
#: get this share of its duration, so that the answers of all decide what is asked next.
TOGETHER = 0.1


@dataclass(frozen=True, slots=True)
class _Call(Generic[T]):
    """One call."""

    step: int
    began: float
    task: asyncio.Task[T]


class InFlight(Generic[T]):
    """Calls in flight, each for one step."""

    def __init__(self) -> None:
        self._calls: list[_Call[T]] = []

    def begin(self, step: int, call: Coroutine[Any, Any, T]) -> None:
        """Start a call."""
        self._calls.append(_Call(step, _now(), asyncio.create_task(call)))

    async def ended(self, timeout_s: float | None = None) -> dict[int, T]:
        """Wait until the next calls end.

        Returns:
            Results of these calls by step, in the order of their steps; empty after the timeout.

        Raises:
            Exception: The exception that a call raised.
        """
        until = None if timeout_s is None else _now() + timeout_s
        await asyncio.wait(
            [call.task for call in self._calls],
            timeout=timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        await self._wait_for_others(until)
        ended = [call for call in self._calls if call.task.done()]
        self._calls = [call for call in self._calls if not call.task.done()]
        return {call.step: call.task.result() for call in sorted(ended, key=lambda c: c.step)}

    async def give_up(self) -> list[int]:
        """Cancel all calls, and return their steps."""
        given_up, self._calls = self._calls, []
        for call in given_up:
            call.task.cancel()
        await asyncio.gather(*(call.task for call in given_up), return_exceptions=True)
        return sorted(call.step for call in given_up)

    async def _wait_for_others(self, until: float | None) -> None:
        """Wait a moment for calls that began together with one that has just ended."""
        now = _now()
        took = max((now - call.began for call in self._calls if call.task.done()), default=0.0)
        others = [
            call.task
            for call in self._calls
            if not call.task.done() and now - call.began >= (1 - TOGETHER) * took
        ]
        patience = TOGETHER * took if until is None else min(TOGETHER * took, until - now)
        if others and patience > 0.0:
            await asyncio.wait(others, timeout=patience)


def _now() -> float:
    return asyncio.get_running_loop().time()
