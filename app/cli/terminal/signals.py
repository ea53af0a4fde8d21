"""Commands that a signal ends in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; SIGINT and SIGTERM cancel it, so that everything is closed.

    Raises:
        KeyboardInterrupt: It was cancelled by a signal.
    """

    async def cancellable() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main)

        def stop() -> None:
            # Once: `uv run` passes a Ctrl-C on that the terminal has sent to all already, and a
            # second cancellation would cut the clean-up short.
            if not task.cancelling():
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(cancellable())
