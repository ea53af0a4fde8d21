"""A few helper processes for work that may hang: algebra, users' patterns, long answers.

None of it can be interrupted inside a process: a power tower is computed in C, a catastrophic regex
holds the interpreter lock, and SIGALRM works on the main thread only. So such work runs in a
process that is killed when its time is up and replaced when next needed. Started on first use.

Nobody's work holds up that of others for long. Owners (a session, a key that tries a scorer) take
turns. Work that takes longer than a moment moves to a place for slow work, of which there are few;
where none is free it is killed and starts again when one is, and meanwhile its owner waits.

The helpers are plain child processes that speak JSON lines. They end when their parent does, since
their input closes, and they belong to no event loop, so that any loop or thread may use them.
"""

import asyncio
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter, OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from app.errors import BusyError

_PROGRAM = Path(__file__).with_name("workbench_process.py")

#: Loading the algebra library takes 2 s alone and much longer on a machine that is busy.
START_TIMEOUT_S = 60.0
#: Work that takes longer than this moves to a place for slow work.
QUICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Failed:
    """The work gave no result.

    Attributes:
        reason: Why, in words.
        is_lost: Its helper process was lost, or there was none: which tells nothing of the work.
    """

    reason: str
    is_lost: bool = False


_CLOSED = Failed("the workbench is closed", is_lost=True)
_NO_ROOM = "The server marks as many answers as it can at present: try again a little later."

Result = dict[str, Any] | Failed


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
        self.is_new = True

    @property
    def pid(self) -> int:
        return self._popen.pid

    def begin(self, job: dict[str, Any]) -> None:
        """Send a job and wait until the process starts on it.

        Raises:
            _GoneError: The process is no more.
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
        if self.receive(START_TIMEOUT_S) is None:
            raise _GoneError(f"it did not start within {START_TIMEOUT_S:g} s")
        self.is_new = False

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next reply; None when none came in time.

        Raises:
            _GoneError: The process is no more.
        """
        deadline = time.monotonic() + timeout_s
        pipe = self._popen.stdout
        if pipe is None:
            raise _GoneError("it has no output")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
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


@dataclass(eq=False, slots=True)
class _Job:
    """Work that waits or is under way.

    Attributes:
        is_slow: It has shown that it takes longer than a moment.
        is_dropped: Nobody waits for it any more.
    """

    request: dict[str, Any]
    timeout_s: float
    owner: str
    result: "Future[Result]" = field(default_factory=Future)
    process: _Process | None = None
    is_slow: bool = False
    is_dropped: bool = False


class Workbench:
    """At most `size` + `slow` helper processes; further work waits its turn.

    Args:
        size: Processes for work that is done in a moment.
        slow: Processes more, for work that is not; without any, all work stays where it began.
        waiting: Jobs of one owner that may wait.
        patience_s: Seconds that a job may wait.
    """

    def __init__(
        self, *, size: int = 2, slow: int = 1, waiting: int = 256, patience_s: float = 60.0
    ) -> None:
        self._threads = ThreadPoolExecutor(size + slow, thread_name_prefix="scorer-workbench")
        self._lock = Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False
        self._free = size
        self._has_slow = slow > 0
        self._free_slow = slow
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        #: Owners of slow work, which is under way or waits.
        self._slow_owners: Counter[str] = Counter()
        self._max_waiting = waiting
        self._patience_s = patience_s

    async def run(
        self, task: str, *, timeout_s: float, owner: str = "", **arguments: object
    ) -> Result:
        """Do one job without blocking the event loop. Cancelling it ends the work.

        Args:
            task: Its name, see `workbench_process`.
            timeout_s: Seconds of work, start-up not counted, before the process is killed.
            owner: Whose work it is: owners take turns.
            **arguments: What the task needs, as JSON values.

        Raises:
            BusyError: Too much waits already, or it has waited too long.
        """
        job = self._submit(task, timeout_s, owner, arguments)
        result = asyncio.wrap_future(job.result)
        try:
            while not result.done():
                await asyncio.wait([result], timeout=self._patience_s)
                if not result.done() and self._withdraw(job):
                    raise BusyError(_NO_ROOM)
            return result.result()
        finally:
            if not result.done():
                result.cancel()
                self._drop(job)

    def ask(self, task: str, *, timeout_s: float, **arguments: object) -> Result:
        """As `run`, for a caller that has no event loop and may be blocked."""
        return self._submit(task, timeout_s, "", arguments).result.result()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the living helpers."""
        with self._lock:
            return tuple(process.pid for process in (*self._idle, *self._busy))

    def _submit(
        self, task: str, timeout_s: float, owner: str, arguments: dict[str, object]
    ) -> _Job:
        job = _Job({"task": task, "timeout_s": timeout_s, **arguments}, timeout_s, owner)
        with self._lock:
            if self._closed:
                job.result.set_result(_CLOSED)
                return job
            own = self._waiting.setdefault(owner, deque())
            if len(own) >= self._max_waiting:
                raise BusyError(_NO_ROOM)
            own.append(job)
            self._dispatch()
        return job

    def _dispatch(self) -> None:
        """Start what can be started; under the lock."""
        while self._free and (job := self._next(slow=False)) is not None:
            self._free -= 1
            self._threads.submit(self._work, job, False)
        while self._free_slow and (job := self._next(slow=True)) is not None:
            self._free_slow -= 1
            self._threads.submit(self._work, job, True)

    def _next(self, *, slow: bool) -> _Job | None:
        """The first job of the owner whose turn it is. Who has slow work waits for that."""
        for owner, own in self._waiting.items():
            if own[0].is_slow is not slow or (not slow and self._slow_owners[owner]):
                continue
            job = own.popleft()
            if own:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            return job
        return None

    def _withdraw(self, job: _Job) -> bool:
        """Take a job out that still waits; False when it is under way."""
        with self._lock:
            own = self._waiting.get(job.owner, deque())
            if job not in own:
                return False
            own.remove(job)
            if not own:
                del self._waiting[job.owner]
            if job.is_slow:
                self._slow_owners[job.owner] -= 1
            return True

    def _drop(self, job: _Job) -> None:
        """End a job that nobody waits for."""
        if not self._withdraw(job):
            with self._lock:
                job.is_dropped = True
                if job.process is not None:
                    job.process.kill()  # its thread buries it

    def _work(self, job: _Job, in_slow_place: bool) -> None:
        """Do a job in one of the threads, and hand its place on."""
        process, reply = None, None
        result: Result = _CLOSED
        again = False
        try:
            process = self._take_process(job)
            while process is not None and not self._has_begun(process, job):
                process = self._take_process(job)
            if process is not None:
                left_s = job.timeout_s
                if self._has_slow and not in_slow_place and left_s > QUICK_S:
                    reply, left_s = process.receive(QUICK_S), left_s - QUICK_S
                    in_slow_place = reply is None and self._moves_over(job)
                    again = reply is None and not in_slow_place
                if reply is None and not again:
                    reply = process.receive(left_s)
                result = _result_of(reply, job.timeout_s)
        except _GoneError as exc:
            result, reply, again = Failed(str(exc), is_lost=True), None, False
        except OSError as exc:
            result = Failed(f"no helper process could be started: {exc}", is_lost=True)
            again = False
        finally:
            if process is not None and reply is None:
                process.bury()
            with self._lock:
                again = again and not self._is_over(job)
                self._hand_on(job, process, keep=reply is not None, slow=in_slow_place, again=again)
            # False where its caller has given it up.
            if not again and job.result.set_running_or_notify_cancel():
                job.result.set_result(result)

    def _take_process(self, job: _Job) -> _Process | None:
        with self._lock:
            if self._is_over(job):
                return None
            idle = self._idle.pop() if self._idle else None
        process = idle or _Process()  # starting one takes a while: not under the lock
        with self._lock:
            job.process = process
            self._busy.add(process)
            if self._is_over(job):
                process.kill()
        return process

    def _has_begun(self, process: _Process, job: _Job) -> bool:
        """Start a job; False where the process had ended while idle, say for want of memory.

        Raises:
            _GoneError: A process that is new ends too.
        """
        try:
            process.begin(job.request)
        except _GoneError:
            if process.is_new:
                raise
            process.bury()
            with self._lock:
                self._busy.discard(process)
            return False
        return True

    def _is_over(self, job: _Job) -> bool:
        """Whether nobody waits for a job any more; other threads change that."""
        return self._closed or job.is_dropped

    def _moves_over(self, job: _Job) -> bool:
        """Take a job that turns out to be slow to a place for such work, if one is free."""
        with self._lock:
            job.is_slow = True
            self._slow_owners[job.owner] += 1
            if not self._free_slow:
                return False
            self._free_slow -= 1
            self._free += 1
            self._dispatch()
            return True

    def _hand_on(
        self, job: _Job, process: _Process | None, *, keep: bool, slow: bool, again: bool
    ) -> None:
        """Free the place of a job; under the lock."""
        job.process = None
        if process is not None:
            self._busy.discard(process)
            # Who gave the job up has killed its process, even if the reply was there already.
            if keep and self._is_over(job):
                process.bury()
            elif keep:
                self._idle.append(process)
        if slow:
            self._free_slow += 1
        else:
            self._free += 1
        if again:
            self._waiting.setdefault(job.owner, deque()).appendleft(job)
        elif job.is_slow:
            self._slow_owners[job.owner] -= 1
        self._slow_owners += Counter()  # forgets those at 0
        self._dispatch()

    def close(self) -> None:
        """Kill all helpers and collect them. Work in progress fails."""
        with self._lock:
            self._closed = True
            waiting = [job for own in self._waiting.values() for job in own]
            self._waiting.clear()
            idle, self._idle = self._idle, []
            for process in self._busy:
                process.kill()  # its thread buries it
        for job in waiting:
            if job.result.set_running_or_notify_cancel():
                job.result.set_result(_CLOSED)
        for process in idle:
            process.bury()
        self._threads.shutdown(wait=True)


def _result_of(reply: dict[str, Any] | None, timeout_s: float) -> Result:
    if reply is None:
        return Failed(f"no result within {timeout_s:g} s")
    return Failed(reply["failed"]) if "failed" in reply else reply
