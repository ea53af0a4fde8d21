"""Programs of ours that run in processes of their own for as long as somebody waits for them.

A process, not a thread: it can be killed, its memory is taken back, and what it reckons holds up no
event loop. Down its input goes an order, and then nothing, so that its end means that the parent is
gone. Up come JSON lines.
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

#: The last line of a calibration has some twenty bytes for each number of an item, of which a part
#: has thirty.
_LONGEST_LINE = 1 << 28

T = TypeVar("T")
#: Tells the parent something: a JSON value.
Say = Callable[[Any], None]


class Program:
    """A program that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def message(self) -> Any:
        """What it says next.

        Raises:
            EOFError: It says nothing any more.
        """
        line = await self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise EOFError
        return json.loads(line)

    async def messages(self) -> AsyncIterator[Any]:
        """All that it says, until it ends."""
        with contextlib.suppress(EOFError):
            while True:
                yield await self.message()

    async def exit_code(self) -> int:
        """How it ended, once it has."""
        return await self._process.wait()


@asynccontextmanager
async def running(
    module: str,
    *arguments: str,
    order: Sequence[bytes] = (),
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Program]:
    """A program for as long as the block runs; then it is killed.

    Args:
        module: Of ours, which calls `serve` when it is run.
        arguments: Of its command line.
        order: What goes down to it, part by part.
        environment: Beside what the operator has set, which goes on to it.
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
        with contextlib.suppress(ConnectionError):  # it ended: its output says so
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
    """Be such a program.

    Args:
        read: The order; raises `EOFError` where not all of it comes.
        work: Carries it out.
        niceness: Added to the parent's.
    """
    give_way(niceness)
    try:
        with os.fdopen(os.dup(1), "w") as replies:
            os.dup2(2, 1)  # whatever a library prints must not look like a reply
            order = read(sys.stdin.buffer)
            threading.Thread(target=_end_with_parent, daemon=True).start()
            work(order, lambda message: print(json.dumps(message), file=replies, flush=True))
    except (BrokenPipeError, EOFError):
        os._exit(1)  # the parent is gone: there is nobody to tell


def give_way(niceness: int) -> None:
    """Let other processes of this machine go first, where the system allows it."""
    with contextlib.suppress(OSError):
        os.nice(niceness)


def json_line(source: BinaryIO) -> Any:
    """The JSON in the next line.

    Raises:
        EOFError: The line has no end.
    """
    line = source.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock the interpreter wants when it ends.
    while os.read(0, 1):
        pass
    os._exit(1)
