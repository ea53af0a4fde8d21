"""Runs work on users' input in a child process with limits on memory, time and output.

Files and patterns from outside may take any amount of memory and time, and a library that reads
them may crash. So a function of ours reads them in a child. The child is killed when it exceeds
its limits, when the task that waits for it is cancelled, or when this process ends. Children are
forked from a helper process that has loaded the modules they need, at the latest with the first
child of a kind, so that a child costs milliseconds.

A child that has read hostile bytes is not trusted: it returns JSON and plain bytes.
"""

import asyncio
import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from app import errors
from app.errors import FieldProblem, InvalidInputError, LimitExceededError, SextantError
from app.fair_semaphore import MAX_WAITING, FairSemaphore

#: Function that a child runs on a JSON argument, attachments and a file to write to; returns JSON.
Work = Callable[[Any, Sequence[bytes], BinaryIO], Any]

_MB = 2**20
#: Most memory of small work, bytes. Two children do small work at a time, one child large work.
SMALL_MEMORY = 160 * _MB
#: Seconds for the helper to start. Its many imports take a second on an idle machine, and much
#: longer on a busy one or where it loads neural models of gigabytes.
_START_S = 180.0
#: Wall time that a child may take, in multiples of its CPU time.
WALL = 4
#: Modules that the helper loads before it forks.
_PRELOADED = ("app.services.responses.confined_reading", "app.exchange.responses")
#: One thread, one memory arena and no downloads, so that children take only what their work needs.
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "HF_HUB_OFFLINE": "1",
}
_CHUNK = 1 << 16
#: Bytes of the message to the helper with each job: the function's module, padded with blanks.
MODULE_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one piece of work.

    Attributes:
        memory: Bytes beyond those that every child starts with.
        seconds: Seconds of CPU time; the wall time may be `WALL` times as long, since a child on a
            busy machine waits for its turns.
        output: Bytes of the value, and of the file that is written.
    """

    memory: int = 128 * _MB
    seconds: float = 20.0
    output: int = 16 * _MB


class LostError(LimitExceededError):
    """A child ended without a reason, for example for lack of memory."""


class Sandbox:
    """Runs work in children; usable from any event loop or thread of this process.

    The helper loads the `preloaded` modules before it forks. `spare` are extra places for keys that
    have no work of the size running, for large work one at most; see `FairSemaphore`. So many
    pieces of work of each size may be `waiting`.
    """

    def __init__(
        self, preloaded: Sequence[str] = _PRELOADED, *, spare: int = 0, waiting: int = MAX_WAITING
    ) -> None:
        self._preloaded = preloaded
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._small = FairSemaphore(2, waiting, spare=spare)
        self._large = FairSemaphore(1, waiting, spare=min(spare, 1))

    async def run(
        self,
        work: Work,
        argument: object = None,
        attachments: Sequence[bytes] = (),
        *,
        limits: Limits,
        subject: str,
        advice: str = "",
    ) -> Any:
        """The value of a function, without the file that it wrote; see `made`."""
        async with self.made(
            work, argument, attachments, limits=limits, subject=subject, advice=advice
        ) as (value, _):
            return value

    @asynccontextmanager
    async def made(
        self,
        work: Work,
        argument: object = None,
        attachments: Sequence[bytes] = (),
        *,
        limits: Limits,
        subject: str,
        advice: str = "",
    ) -> AsyncIterator[tuple[Any, BinaryIO]]:
        """The value of a function, and the file that it wrote; the block keeps the work's place.

        The function is on the top level of a module of ours, and its argument is JSON. Errors name
        the `subject`, such as `scores.csv`, and give `advice` such as `import in parts`.

        Raises:
            BusyError: Too much other work is waiting.
            LimitExceededError: The work exceeded a limit.
            LostError: The child crashed, or was killed by another process.
            InvalidInputError: `work` raised it; the class is the nearest one of `app.errors`.
        """
        header = {
            "module": work.__module__,
            "function": work.__qualname__,
            "argument": argument,
            "attachments": [len(attachment) for attachment in attachments],
            "limits": asdict(limits),
        }
        lane = self._small if limits.memory <= SMALL_MEMORY else self._large
        async with lane.turn():
            with tempfile.TemporaryFile() as output:
                replies = await self._replies(header, attachments, limits, output)
                value = _value_of(replies, limits, subject, advice)
                output.seek(0)
                yield value, output

    async def _replies(
        self, header: dict[str, Any], attachments: Sequence[bytes], limits: Limits, output: Any
    ) -> dict[str, Any]:
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                await _to_the_end(self._submit, header, attachments, theirs, output)
            mine.setblocking(False)
            received = await _received(mine, limits)
        return await asyncio.to_thread(_merged, received)

    def _submit(
        self,
        header: dict[str, Any],
        attachments: Sequence[bytes],
        theirs: socket.socket,
        output: Any,
    ) -> None:
        with tempfile.TemporaryFile() as job:
            job.write(json.dumps(header).encode() + b"\n")
            for attachment in attachments:
                job.write(attachment)
            job.flush()
            job.seek(0)
            descriptors = [theirs.fileno(), job.fileno(), output.fileno()]
            for last_try in (False, True):
                with self._lock:
                    control = self._started()
                    try:
                        module = header["module"].encode().ljust(MODULE_BYTES)
                        socket.send_fds(control, [module], descriptors)
                    except OSError:
                        self._stop()
                        if last_try:
                            raise
                    else:
                        return

    def start(self) -> None:
        """Start the helper now, so that the first work need not wait for it."""
        with self._lock:
            self._started()

    def _started(self) -> socket.socket:
        if self._control is not None and self._helper is not None and self._helper.poll() is None:
            return self._control
        self._stop()
        mine, theirs = socket.socketpair()
        with theirs:
            self._helper = subprocess.Popen(  # noqa: S603  our own program, no outside text
                [
                    *(sys.executable, "-P", "-W", "ignore::DeprecationWarning"),
                    *("-m", "app.sandbox.pool_process", str(theirs.fileno()), *self._preloaded),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},  # noqa: TID251 (passed on, not read)
            )
        self._control = mine
        return mine

    @property
    def helper_pid(self) -> int | None:
        """Process id of the helper, if it runs."""
        with self._lock:
            return None if self._helper is None else self._helper.pid

    def close(self) -> None:
        """End the helper and its children. Work in progress fails; new work starts a new helper."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()
        self._control = self._helper = None


async def _to_the_end(function: Callable[..., None], *arguments: object) -> None:
    """Run `function` in a thread; a cancelled task still waits until it has returned."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def _received(replies: socket.socket, limits: Limits) -> bytes:
    """All bytes until the other side is closed, or a reply that names the exceeded limit."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    try:
        async with asyncio.timeout(_START_S) as timeout:
            while chunk := await loop.sock_recv(replies, _CHUNK):
                if not received:  # the child has begun
                    timeout.reschedule(loop.time() + WALL * limits.seconds)
                received += chunk
                if len(received) > limits.output + _CHUNK:
                    return b'{"exceeded": "output"}'
    except TimeoutError:
        return b'{"exceeded": "time"}'
    except OSError:
        return b""
    return bytes(received)


def _merged(received: bytes) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for line in received.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(line)
            merged |= reply if isinstance(reply, dict) else {}
    return merged


def _value_of(replies: dict[str, Any], limits: Limits, subject: str, advice: str) -> Any:
    memory = f"{limits.memory / _MB:.0f} MB of memory"
    then = advice and f": {advice}"
    match replies:
        case {"value": value}:
            return value
        case {"refused": str(name), "detail": str(detail), "problems": list(problems)}:
            kind = getattr(errors, name, None)
            if not (isinstance(kind, type) and issubclass(kind, SextantError)):
                kind = InvalidInputError
            raise kind(detail, problems=[FieldProblem(str(p), str(d)) for p, d in problems])
        case {"exceeded": "memory"}:
            limit = memory
        case {"exit": -6 | -9 | -11}:
            raise LostError(f"{subject} takes more than {memory}{then}.")
        case {"exceeded": "time"} | {"exit": -14 | -24}:
            limit = f"{limits.seconds:g} s"
        case {"exceeded": "output"}:
            limit = f"{limits.output / _MB:.0f} MB of results"
        case _:
            raise LostError(
                f"{subject} cannot be read: the process that read it ended without a result "
                f"({replies.get('crashed') or replies.get('exit', 'lost')}){then}."
            )
    raise LimitExceededError(f"{subject} takes more than {limit}{then}.")


_of_this_process = Sandbox()
atexit.register(_of_this_process.close)


def sandbox() -> Sandbox:
    """The sandbox of this process, whatever loop or thread asks; its first work starts it."""
    return _of_this_process
