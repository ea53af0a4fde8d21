"""An event loop whose clock jumps to the next scheduled event: sleeps take no time."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from typing_extensions import override

P = ParamSpec("P")


class _Jumping(selectors.DefaultSelector):
    """Advances the clock instead of waiting."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("Nothing is due: the test would wait for ever.")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    @override
    def time(self) -> float:
        return self._clock.now


def test(main: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on virtual time that begins at 0."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(main(*args, **kwargs))

    return run
