"""Processes of Sextant forked from one that has loaded it; see `preloaded.py`."""

import atexit
import fcntl
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tests.servers import ROOT

#: Sockets by code and libraries.
_known: dict[tuple[Path, str], Path] = {}


def preloaded(code: Path = ROOT, env: Mapping[str, str] | None = None) -> Path:
    """Return the socket of the forking process, which ends after all tests of this run.

    Loading Sextant takes seconds, so all processes of one test run share this process.

    Args:
        code: Path of the Sextant code to load.
        env: Environment of the forked processes. LD_PRELOAD takes effect only when Sextant is
            loaded, so each value has its own forking process.
    """
    libraries = (env or os.environ).get("LD_PRELOAD", "")
    if (code, libraries) not in _known:
        _known[code, libraries] = _joined(code, libraries, env if libraries and env else os.environ)
    return _known[code, libraries]


def _joined(code: Path, libraries: str, env: Mapping[str, str]) -> Path:
    """Return the process with this code and these libraries; the first caller starts it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    which = hashlib.sha256(f"{run} {code} {libraries}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"sx-forked-{os.getuid()}-{which}"
    folder.mkdir(mode=0o700, exist_ok=True)
    users, path = folder / "users", folder / "s"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if users.exists():
            held = os.open(users, os.O_WRONLY | os.O_NONBLOCK)
            atexit.register(os.close, held)
            return path
        os.mkfifo(users)
        # Its standard input ends when no process holds the other end open.
        held, read = os.open(users, os.O_RDWR), os.open(users, os.O_RDONLY)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.preloaded", str(path)],
            cwd=code,
            env={**env, "PYTHONPATH": str(ROOT)},
            stdin=read,
            stdout=subprocess.PIPE,
        )
        os.close(read)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    atexit.register(process.communicate)
    atexit.register(os.close, held)
    return path


class Forked:
    """A command such as `sextant worker`, with the part of `Popen` that tests use.

    Args:
        command: Words of the command.
        env: Environment.
        stdout: Destination of its standard output; None discards it.
        stderr: Destination of its standard error; None discards it.
        code: Path of the Sextant code to run.

    Attributes:
        pid: Process id.
        returncode: Exit code after a wait; if negative, the signal that ended it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: dict[str, str],
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
        code: Path = ROOT,
    ) -> None:
        self.returncode: int | None = None
        request = {"command": list(command), "directory": str(Path.cwd()), "environment": env}
        sent = json.dumps(request).encode()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(preloaded(code, env)))
        with Path(os.devnull).open("r+b") as nothing:
            streams = [(stream or nothing).fileno() for stream in (None, stdout, stderr)]
            socket.send_fds(self._socket, [struct.pack("!I", len(sent))], streams)
        self._socket.sendall(sent)
        (self.pid,) = self._received()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(OSError):
            self._socket.sendall(bytes([number]))

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        with suppress(BlockingIOError):
            if self.returncode is None:
                self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return self.wait()
        return None

    def wait(self, timeout_s: float = 60) -> int:
        """Return its exit code, once it has ended."""
        if self.returncode is None:
            self._socket.settimeout(timeout_s)
            (self.returncode,) = self._received()
            self._socket.close()
        assert self.returncode is not None
        return self.returncode

    def _received(self) -> tuple[int]:
        number: tuple[int] = struct.unpack("!i", self._socket.recv(4, socket.MSG_WAITALL))
        return number
