"""Runs programs of ours in separate processes for as long as a task waits for them.

A process, unlike a thread, can be killed, returns its memory, and does not block the event loop.
The parent writes an order to its input, and then nothing, so that the end of the input means that
the parent has ended. The program writes JSON lines to its output.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, BinaryIO, TypeVar

#: Most bytes of a line. The last line of a calibration takes about twenty bytes for each number
#: of an item; a part of a calibration has about thirty numbers for each item.
_LONGEST_LINE = 1 << 28

T = TypeVar("T")
#: Sends a JSON value to the parent.
Say = Callable[[Any], None]


class Program:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def message(self) -> Any:
        """The next message of the program.

        Raises:
            EOFError: The program has closed its output.
        """
        line = await self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise EOFError
        return json.loads(line)

    async def messages(self) -> AsyncIterator[Any]:
        """All messages of the program until it ends."""
        with contextlib.suppress(EOFError):
            while True:
                yield await self.message()

    async def exit_code(self) -> int:
        """Wait until the program ends, and return its exit code."""
        return await self._process.wait()


@asynccontextmanager
async def running(
    module: str,
    *arguments: str,
    order: Sequence[bytes] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Program]:
    """Run a program for as long as the block runs, then kill it.

    Its module calls `serve`; the parts of the order are written to its input; the environment is
    in addition to that of this process.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        env={**os.environ, **(environment or {})},  # noqa: TID251 (passed on, not read)
        start_new_session=True,  # Ctrl-C is for the parent, which decides
    )
    try:
        with contextlib.suppress(ConnectionError):  # the program has ended, as its output says
            if process.stdin is not None:
                process.stdin.writelines(order)
                await process.stdin.drain()
        yield Program(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())


def serve(
    read: Callable[[BinaryIO], T], work: Callable[[T, Say], None], *, niceness: int = 0
) -> None:
    """Run as such a program; `read` raises `EOFError` where the order is incomplete."""
    give_way(niceness)
    try:
        with os.fdopen(os.dup(1), "w") as replies:
            os.dup2(2, 1)  # whatever a library prints must not look like a reply
            order = read(sys.stdin.buffer)
            threading.Thread(target=_end_with_parent, daemon=True).start()
            work(order, lambda message: print(json.dumps(message), file=replies, flush=True))
    except (BrokenPipeError, EOFError):
        os._exit(1)  # the parent has ended: nobody reads a reply


def give_way(niceness: int) -> None:
    """Raise the niceness of this process, where the system allows it."""
    with contextlib.suppress(OSError):
        os.nice(niceness)


def json_line(source: BinaryIO) -> Any:
    """The JSON in the next line.

    Raises:
        EOFError: The line is incomplete.
    """
    line = source.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _end_with_parent() -> None:
    # Not through sys.stdin: the interpreter needs its lock to exit.
    while os.read(0, 1):
        pass
    os._exit(1)
