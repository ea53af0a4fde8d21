"""Runs Sextant's commands by forking a process that has loaded all of Sextant.

Documented commands and killed workers are hundreds of processes, each of which imports for seconds.
`forked.py` starts them from tests; `tests/docs/uv.py` is the `uv` of documented commands. Either
passes arguments, directory, environment and streams over a socket, forwards signals, and reads back
the process id and the exit code. Commands behave the same.

    python -m tests.servers.preloaded SOCKET        ends when its standard input does
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import shutil
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import app
from app.cli import main as sextant
from app.sandbox.pool_process import WithoutPandas

_N_STREAMS = 3
#: Modules that commands import lazily.
_BESIDE = (
    "alembic.command",
    "anyio._backends._asyncio",
    "encodings.idna",
    "procrastinate.builtin_tasks",
    "pyarrow.csv",
    "pyarrow.parquet",
    "scipy.optimize",
    "uvicorn",
)


def preload() -> None:
    """Load all that any command might need."""
    gc.disable()  # all of it stays
    # pyarrow imports pandas with the first column of numbers if it is installed; it is unused here.
    sys.meta_path.insert(0, WithoutPandas())
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if (
            module.name != "app.scorers.libraries.bert_models"
        ):  # loaded by helper processes, with an extra
            importlib.import_module(module.name)
    for name in _BESIDE:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def serve(path: str) -> dict[str, Any] | None:
    """Fork a process per request; return the request there, and None here at the end."""
    selector = selectors.DefaultSelector()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only a handled signal wakes it up
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        for ready in (listener, ended, 0):
            selector.register(ready, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    if not _is_left(Path(path).parent):
                        continue
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    return None
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    request, streams = _received(client)
                    pid = os.fork()
                    if pid == 0:
                        for other in (listener, client, *running.values()):
                            other.close()
                        selector.close()
                        _enter(request, streams)
                        return request
                    for stream in streams:
                        os.close(stream)
                    running[pid] = client
                    with contextlib.suppress(OSError):  # the client may be gone
                        client.sendall(struct.pack("!i", pid))
                    selector.register(client, selectors.EVENT_READ, data=pid)
                elif key.fileobj == ended:
                    os.read(ended, 4096)
                    _tell(running, selector)
                elif key.data in running:
                    wanted = running[key.data].recv(1)
                    os.kill(key.data, wanted[0] if wanted else signal.SIGKILL)
                    if not wanted:
                        selector.unregister(key.fileobj)


def _is_left(folder: Path) -> bool:
    """Return whether no process holds the standard input open, so that no client can come."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        looked = select.poll()
        looked.register(0, select.POLLIN)
        if not any(event & select.POLLHUP for _, event in looked.poll(0)):
            return False
        shutil.rmtree(folder)
        return True


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(client, 4, _N_STREAMS)
    (size,) = struct.unpack("!I", head)
    with client.makefile("rb") as sent:
        return json.loads(sent.read(size)), streams


def _enter(request: dict[str, Any], streams: list[int]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # A worker yields to servers: where others use all cores it would be taken for dead.
    patch.object(os, "nice").start()


def _tell(running: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Send the exit codes of ended processes to their clients."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        client = running.pop(pid)
        with contextlib.suppress(KeyError):
            selector.unregister(client)
        with contextlib.suppress(OSError), client:
            client.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))


def run(command: list[str]) -> None:
    """Run `sextant ...` or `python -m MODULE ...`."""
    if command[0] == "sextant":
        sys.argv = command
        sextant()
    else:
        module, sys.argv = command[2], command[2:]
        del sys.modules[module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def leave() -> NoReturn:
    """Exit as Python does, but free no modules: that would copy their memory first."""
    vars(threading)["_shutdown"]()  # as Python does first: it waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Fork until no client is left; in a child, run its command."""
    preload()
    if (asked := serve(sys.argv[1])) is None:
        return
    try:
        run(asked["command"])
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    leave()


if __name__ == "__main__":
    main()
