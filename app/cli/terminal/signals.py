"""Run commands so that a signal ends them in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; SIGINT and SIGTERM cancel it, so that it closes everything.

    Raises:
        KeyboardInterrupt: A signal cancelled the coroutine.
    """

    async def cancellable() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main)

        def stop() -> None:
            # Cancels only once: `uv run` passes on a Ctrl-C that all processes have received
            # already, and a second cancellation would cut the clean-up short.
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
