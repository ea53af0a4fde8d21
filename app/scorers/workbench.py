"""A few helper processes for work that may hang: symbolic algebra and users' regular expressions.

Neither can be interrupted inside a process: a power tower is computed in C, a catastrophic regex
holds the interpreter lock, and SIGALRM works on the main thread only. So such work runs in a
process that is killed when its time is up and replaced when next needed. Started on first use.

The helpers are plain child processes that speak JSON lines. They end when their parent does, since
their input closes, and they belong to no event loop, so that any loop or thread may use them.
"""

import asyncio
import atexit
import json
import os
import selectors
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

_PROGRAM = Path(__file__).with_name("workbench_process.py")

#: Loading the algebra library takes 2 s alone and much longer on a machine that is busy.
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Failed:
    """The work gave no result."""

    reason: str


_CLOSED = Failed("the workbench is closed")


class _GoneError(Exception):
    """The process ended or its time is up."""


class _Process:
    """One helper process and the pipes to it."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(  # noqa: S603  our own program, no outside text
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job and wait for its result.

        Raises:
            _GoneError: No result in time, or the process is no more.
        """
        pipe = self._popen.stdin
        if pipe is None:
            raise _GoneError("it has no input")
        try:
            data = memoryview(json.dumps(job).encode() + b"\n")
            while data:
                data = data[pipe.write(data) :]
        except OSError as exc:
            raise _GoneError("it ended") from exc
        self._receive(START_TIMEOUT_S)
        return self._receive(job["timeout_s"])

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        pipe = self._popen.stdout
        if pipe is None:
            raise _GoneError("it has no output")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _GoneError(f"no result within {timeout_s:g} s")
                chunk = os.read(pipe.fileno(), 65_536)
                if not chunk:
                    raise _GoneError("it ended, out of time or memory")
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End the process; whoever reads from it sees the end of its output."""
        self._popen.kill()

    def bury(self) -> None:
        """End the process and collect it, so that no zombie stays."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


class Workbench:
    """At most `size` helper processes; further work waits its turn."""

    def __init__(self, *, size: int = 2) -> None:
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="scorer-workbench")
        self._lock = Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False

    async def run(
        self, task: str, *, timeout_s: float, **arguments: object
    ) -> dict[str, Any] | Failed:
        """Do one job without blocking the event loop.

        Args:
            task: `search` or `compare`, see `workbench_process`.
            timeout_s: Seconds of work, start-up not counted, before the process is killed.
            **arguments: What the task needs, as JSON values.
        """
        job = {"task": task, "timeout_s": timeout_s, **arguments}
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                return _CLOSED
            result = loop.run_in_executor(self._threads, partial(self._run, job))
        return await result

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the living helpers."""
        with self._lock:
            return tuple(process.pid for process in (*self._idle, *self._busy))

    def _run(self, job: dict[str, Any]) -> dict[str, Any] | Failed:
        with self._lock:
            if self._closed:
                return _CLOSED
            process = self._idle.pop() if self._idle else _Process()
            self._busy.add(process)
        keep = False
        try:
            result = process.ask(job)
            keep = True
        except _GoneError as exc:
            return Failed(str(exc))
        finally:
            with self._lock:
                self._busy.discard(process)
                keep = keep and not self._closed
                if keep:
                    self._idle.append(process)
            if not keep:
                process.bury()
        return Failed(result["failed"]) if "failed" in result else result

    def close(self) -> None:
        """Kill all helpers and collect them. Work in progress fails."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()  # its thread buries it
        for process in idle:
            process.bury()
        self._threads.shutdown(wait=True)  # what still waits its turn fails at once


_current: Workbench | None = None
_current_lock = Lock()


def workbench() -> Workbench:
    """The workbench of this process, made on first use."""
    global _current  # one per process, whatever loop or thread asks
    with _current_lock:
        if _current is None:
            _current = Workbench()
            atexit.register(_current.close)
        return _current


async def aclose() -> None:
    """End the helper processes, if any run. The next use starts new ones."""
    global _current
    with _current_lock:
        closing, _current = _current, None
    if closing is not None:
        atexit.unregister(closing.close)
        await asyncio.to_thread(closing.close)
