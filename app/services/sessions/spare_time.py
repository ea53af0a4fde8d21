"""The share of a worker's time that goes into figures which could be told later."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SpareTime:
    """Time that may be spent now; what was spent grows back slowly.

    One worker runs many tests on one thread. With few of them there is always some left, and each
    step tells its own figures; with many, or a large bank, it is dealt to whoever comes first.

    Args:
        share: Of the time that goes by.
        most_s: Seconds that can be saved up.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        *,
        share: float = 0.1,
        most_s: float = 0.1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._share, self._most_s, self._clock = share, most_s, clock
        self._left_s, self._as_of = most_s, clock()

    def is_left(self) -> bool:
        """Whether something may be worked out now, however long it takes."""
        now = self._clock()
        self._left_s = min(self._most_s, self._left_s + self._share * (now - self._as_of))
        self._as_of = now
        return self._left_s > 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Take what the block takes; more than there is has to grow back first."""
        began = self._clock()
        try:
            yield
        finally:
            self._left_s -= self._clock() - began
