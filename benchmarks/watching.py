"""A probe beside a server: response times of `/healthz`, and the memory of its processes.

It is a separate process, which also polls an idle server: where that one is slow too, the machine
is busy. It reports for how long of the longest response the server's first thread was ready but had
no core, because of the server's own processes or of other work on the machine.

    python benchmarks/watching.py URL PID
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

#: Seconds between two polls of the probe; memory is read at every so many of them.
ASK_EVERY_S, LOOK_EVERY = 0.05, 5


@dataclass
class Seen:
    """The longest responses of `/healthz` and of an idle server, and the memory.

    Attributes:
        no_core_ms: Part of the longest response during which the event loop waited for a core.
    """

    slowest_ms: float = 0.0
    no_core_ms: float = 0.0
    idle_ms: float = 0.0
    memory_mb: float = 0.0


@dataclass
class Watch:
    """Observations of the probe since the last `take`."""

    process: "subprocess.Popen[str]"
    seen: Seen = field(default_factory=Seen)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            seen = json.loads(line)
            with self.lock:
                if seen["ms"] > self.seen.slowest_ms:
                    self.seen.slowest_ms, self.seen.no_core_ms = seen["ms"], seen["no_core_ms"]
                self.seen.idle_ms = max(self.seen.idle_ms, seen["idle_ms"])
                self.seen.memory_mb = max(self.seen.memory_mb, seen["mb"])

    def take(self) -> Seen:
        with self.lock:
            taken, self.seen = self.seen, Seen()
            return taken


def probe(url: str, pid: int) -> None:
    """Poll health and read the memory until killed."""
    looks = 0
    memory = 0.0
    with socket.create_server(("127.0.0.1", 0)) as listening:
        idle = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if os.fork() == 0:
            answer_at_once(listening)
    while True:
        waited = waited_for_a_core_ms(pid)
        ms = asked_ms(f"{url}/healthz")
        no_core_ms = waited_for_a_core_ms(pid) - waited
        idle_ms = asked_ms(idle)
        if looks % LOOK_EVERY == 0:
            memory = sum(map(pss_mb, tree(pid)))
        looks += 1
        said = {"ms": ms, "no_core_ms": no_core_ms, "idle_ms": idle_ms, "mb": memory}
        print(json.dumps(said), flush=True)
        time.sleep(ASK_EVERY_S)


def asked_ms(url: str) -> float:
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            reply.read()
    except OSError:
        return 60_000.0
    return (time.perf_counter() - began) * 1000


def waited_for_a_core_ms(thread: int) -> float:
    """Return how long a thread has been ready without running, since its start."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1]) / 1e6
    return 0.0


def answer_at_once(listening: socket.socket) -> NoReturn:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the probe
    while True:
        asking, _ = listening.accept()
        with asking:
            asking.recv(4096)
            asking.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")


def tree(root: int) -> Iterator[int]:
    """Return the server and its children, without Postgres."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name != "postgres":
                children.setdefault(int(rest.split()[1]), []).append(int(stat.parent.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def pss_mb(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def watching(url: str, pid: int) -> Iterator[Watch]:
    """Run the probe of a server during the block."""
    process = subprocess.Popen(
        [sys.executable, __file__, url, str(pid)], stdout=subprocess.PIPE, text=True
    )
    watch = Watch(process)
    threading.Thread(target=watch.listen, daemon=True).start()
    try:
        yield watch
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    probe(sys.argv[1], int(sys.argv[2]))
