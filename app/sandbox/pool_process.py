"""The program that forks a child for each piece of work; see `app.sandbox.pool`.

It has one thread and imports the modules that the work needs before it forks, so that a child costs
milliseconds. Each job comes over the control socket as the name of a module with three descriptors:
a socket to reply on, a file with the job, and a file for the output. The child replies with one
JSON line; when it has ended, this process adds another with its exit code. A closed reply socket
means that the work is no longer wanted, and a closed control socket that the parent has ended.
"""

import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from importlib.abc import MetaPathFinder
from typing import Any, BinaryIO, NoReturn

from typing_extensions import override

from app import errors
from app.errors import InvalidInputError, SextantError
from app.sandbox.pool import MODULE_BYTES, WALL
from app.sandbox.programs import give_way

_N_DESCRIPTORS = 3
_PR_SET_PDEATHSIG = 1
#: Seconds beyond a limit after which the kernel kills a child, if its parent has not done so.
_GRACE_S = 2
_NICENESS = 2
_MAX_PROBLEMS = 100


class _Children:
    """Living children and the sockets that tell whether they are still wanted."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._replies: dict[int, socket.socket] = {}
        self._ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only a handled signal wakes
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)

    def serve(self) -> None:
        """Fork, kill and collect children until the parent has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    job = _receive(self._control)
                    if job is None:
                        self._end()
                    self._start(*job)
                elif key.fileobj == self._ended:
                    os.read(self._ended, 4096)
                    self._collect()
                else:  # nothing is ever sent this way, so the socket was closed
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGKILL)

    def _start(self, module: str, reply: socket.socket, job: int, made: int) -> None:
        _load(module)
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _send(reply, {"crashed": f"no process could be started: {error}", "exit": None})
            reply.close()
        else:
            if pid == 0:
                self._work(parent, reply, job, made)
            self._replies[pid] = reply
            self._selector.register(reply, selectors.EVENT_READ, data=pid)
        os.close(job)
        os.close(made)

    def _work(self, parent: int, reply: socket.socket, job: int, made: int) -> NoReturn:
        try:
            _die_with(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            self._control.close()
            for other in self._replies.values():
                other.close()
            with os.fdopen(job, "rb") as source, os.fdopen(made, "wb") as output:
                _send(reply, {"started": True})
                _send(reply, _result(source, output))
        finally:
            os._exit(0)

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            reply = self._replies.pop(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(reply)
            _send(reply, {"exit": os.waitstatus_to_exitcode(status)})
            reply.close()

    def _end(self) -> NoReturn:
        for pid in self._replies:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def _receive(control: socket.socket) -> tuple[str, socket.socket, int, int] | None:
    module, descriptors, _, _ = socket.recv_fds(control, MODULE_BYTES, _N_DESCRIPTORS)
    if len(descriptors) < _N_DESCRIPTORS:
        return None
    reply, job, made = descriptors
    return module.decode().strip(), socket.socket(fileno=reply), job, made


def _load(*modules: str) -> None:
    """Import the modules that children run, once for all; the child reports a failed import."""
    new = [module for module in modules if module not in sys.modules]
    for module in new:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    if new:
        gc.collect()
        gc.freeze()  # or every child would copy the memory pages of all modules


def _send(reply: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody reads the reply any more
        reply.sendall(json.dumps(message).encode() + b"\n")


def _die_with(parent: int) -> None:
    with contextlib.suppress(
        OSError, AttributeError
    ):  # Linux only; elsewhere the child's own timer ends it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _result(source: BinaryIO, output: BinaryIO) -> dict[str, Any]:
    """The value of the work, or why there is none; the exception itself is released first."""
    try:
        header = json.loads(source.readline())
        function = getattr(importlib.import_module(header["module"]), header["function"])
        attachments = [source.read(size) for size in header["attachments"]]
        _limit(**header["limits"])
        value = function(header["argument"], attachments, output)
        output.flush()
    except MemoryError:
        return {"exceeded": "memory"}
    except InvalidInputError as error:
        problems = [(problem.pointer, problem.detail) for problem in error.problems]
        return {
            "refused": _nearest(type(error)),
            "detail": error.detail,
            "problems": problems[:_MAX_PROBLEMS],
        }
    except Exception as error:  # noqa: BLE001  a fault of any kind is a result, not an end
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return {"exceeded": "output"}
        traceback.print_exc()
        return {"crashed": type(error).__name__}
    return {"value": value}


def _nearest(kind: type[SextantError]) -> str:
    """Name of the nearest class in `app.errors` that takes only a detail and problems."""
    return next(
        str(base.__name__)
        for base in kind.__mro__
        if getattr(errors, base.__name__, None) is base and "__init__" not in vars(base)
    )


def _limit(*, memory: int, seconds: float, output: int) -> None:
    """Set the `Limits` of the work; its memory is beyond what this process holds already."""
    signal.setitimer(signal.ITIMER_REAL, WALL * seconds + _GRACE_S)
    # Only the soft limit of CPU time has its own signal.
    _set(resource.RLIMIT_CPU, max(1, round(seconds)), _GRACE_S)
    _set(resource.RLIMIT_FSIZE, output)
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_DATA, memory + _held())


def _set(what: int, value: int, beyond: int = 0) -> None:
    with contextlib.suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(what, (value, value + beyond))


def _held() -> int:
    """Bytes that the kernel counts as data of this process."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  it is no file
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    except (OSError, StopIteration):
        return 0


class WithoutPandas(MetaPathFinder):
    """Hides pandas, which pyarrow would import in each child although few children need it."""

    @override
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def main() -> None:
    """Serve the control socket of the first argument's descriptor; preload the other arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; parent decides
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails instead
    give_way(_NICENESS)
    if "pandas" not in sys.argv:
        sys.meta_path.insert(0, WithoutPandas())
    _load(*sys.argv[2:])
    with socket.socket(fileno=int(sys.argv[1])) as control:
        _Children(control).serve()


if __name__ == "__main__":
    main()
