"""Lets several callers share one run of the same work."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Shared(Generic[V]):
    task: "asyncio.Task[V]"
    waiting: int = 0


class InProgress(Generic[K, V]):
    """Work in progress, by key. It is cancelled when no caller waits for it any more."""

    def __init__(self) -> None:
        self._shared: dict[K, _Shared[V]] = {}

    async def once(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of `work`, started now or by an earlier caller with the same key."""
        shared = self._shared.get(key)
        if shared is None:
            shared = _Shared(asyncio.create_task(work()))
            self._shared[key] = shared
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                if self._shared.get(key) is shared:
                    del self._shared[key]
                if shared.task.cancel():
                    await asyncio.wait([shared.task])  # until it has released its resources
