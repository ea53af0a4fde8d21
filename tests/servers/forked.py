"""Processes of Sextant that need not load it: forked by one that has; see `preloaded.py`."""

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

ROOT = Path(__file__).parents[2]
#: Sockets by code and libraries.
_known: dict[tuple[Path, str], Path] = {}


def preloaded(code: Path = ROOT, env: Mapping[str, str] | None = None) -> Path:
    """Socket of the process that forks, which ends once all tests of this run have gone.

    Loading Sextant takes seconds: all processes of one run of the tests have the same one.

    Args:
        code: Where Sextant lies that it loads.
        env: Of what will be forked. Its LD_PRELOAD takes effect only where Sextant is loaded, so
            that each has a process of its own.
    """
    libraries = (env or os.environ).get("LD_PRELOAD", "")
    if (code, libraries) not in _known:
        _known[code, libraries] = _joined(code, libraries, env if libraries and env else os.environ)
    return _known[code, libraries]


def _joined(code: Path, libraries: str, env: Mapping[str, str]) -> Path:
    """The process with this code and these libraries: whoever comes first starts it."""
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
        # Its standard input ends when nobody holds the other side open any more.
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
    """A command such as `sextant worker`; has as much of `Popen` as tests use.

    Args:
        command: Its words.
        env: Its environment.
        stdout: Takes what it prints; None throws that away.
        stderr: Takes what it says beside that, likewise.
        code: Where Sextant lies that it runs.

    Attributes:
        pid: Its process id.
        returncode: Its exit code once somebody waited for it; negative: the signal that ended it.
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
        """Have it get a signal, unless it has ended."""
        with suppress(OSError):
            self._socket.sendall(bytes([number]))

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        with suppress(BlockingIOError):
            if self.returncode is None:
                self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return self.wait()
        return None

    def wait(self, timeout_s: float = 60) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            self._socket.settimeout(timeout_s)
            (self.returncode,) = self._received()
            self._socket.close()
        assert self.returncode is not None
        return self.returncode

    def _received(self) -> tuple[int]:
        number: tuple[int] = struct.unpack("!i", self._socket.recv(4, socket.MSG_WAITALL))
        return number
