"""Processes of Sextant that need not load it: forked by one that has; see `preloaded.py`."""

import atexit
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parents[2]


@cache
def preloaded(code: Path = ROOT) -> Path:
    """Socket of the process that forks, which ends when this one does.

    Args:
        code: Where Sextant lies that it loads.
    """
    folder = tempfile.TemporaryDirectory(prefix="sx-forked-")
    path = Path(folder.name) / "s"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.preloaded", str(path)],
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)
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
        self._socket.connect(str(preloaded(code)))
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
