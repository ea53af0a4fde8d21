"""The embedded Postgres: the first Sextant process starts it, and the last one stops it.

Locks, not process ids, show which processes are alive: ids are reused, and a stale
`postmaster.pid` may name an unrelated process. Three lock files are used with flock(2):

- `postgres.gate`: held while a process starts or stops the server;
- `postgres.users`: shared by all processes that use the server; a leaving process that gets it
  exclusively is the last one;
- `postgres.server`: the server and all its child processes inherit the open file, so the lock is
  free exactly when none of them is left.

The kernel drops a lock when its holders die, however they die.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import pq

from app.errors import DatabaseUnavailableError
from app.settings import Settings
from app.storage import binaries
from app.storage.binaries import Binaries, ServerUser, make_private

NAME = "sextant"
"""Name of the database and of the user that owns it."""

# The port is only part of the socket's file name: the server does not listen on TCP.
_PORT = 5432
# sun_path holds 108 bytes on Linux and 104 elsewhere; the file name takes 15 of them.
_LONGEST_SOCKET_DIR = 85
# libpq splits host lists at commas; for unusual paths, the socket is in the short directory.
_PLAIN_PATH = re.compile(r"[\w./+-]+", re.ASCII)
_COMPLAINT = re.compile(r"FATAL|PANIC|error:|could not")
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 30
_POLL_S = 0.02
_LOG_LIMIT_BYTES = 10_000_000
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

_OPTIONS = {
    "listen_addresses": "",
    "port": str(_PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # Parallel queries need /dev/shm, which is small in containers.
    "max_parallel_workers_per_gather": "0",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

#: Servers started by this process, by process id; as its children, they must be reaped at their
#: end, even if another process stops them.
_servers: dict[int, "subprocess.Popen[bytes]"] = {}


class EmbeddedPostgres:
    """A Postgres server that runs while at least one process uses it.

    `with` and `async with` start the server, or join the running one, and leave it at the end.

    Args:
        data_dir: Directory of the server's files; created if it is missing.
        durable: False gives up safety against power failures, for tests.

    Raises:
        DatabaseUnavailableError: On entry, when the server cannot be started; says why.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        self._root = data_dir.expanduser().absolute()
        self._home = self._root / "postgres"
        self._cluster = self._home / "data"
        self._log = self._home / "server.log"
        self._is_fast = not durable
        self._options = _OPTIONS | _FAST if self._is_fast else _OPTIONS
        self._user = ServerUser.unprivileged() if os.geteuid() == 0 else None
        self._socket_dir = self._choose_socket_dir()
        self._membership: int | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database."""
        return (
            f"postgresql+psycopg://{NAME}@/{NAME}"
            f"?host={quote(str(self._socket_dir), safe='')}&port={_PORT}"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be cancelled: let it finish, then leave, so that no server stays.
            with contextlib.suppress(DatabaseUnavailableError):
                await starting
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(asyncio.to_thread(self.stop))

    def start(self) -> None:
        """Join the running server, or start it; may be called again to restart it after a crash."""
        try:
            self._prepare()
            with self._gate():
                if self._membership is None:
                    self._membership = self._open_lock("users")
                    fcntl.flock(self._membership, fcntl.LOCK_SH)
                try:
                    self._ensure_running()
                except BaseException:
                    self._leave()
                    raise
        except OSError as exc:
            raise DatabaseUnavailableError(
                f"The embedded Postgres cannot use {self._root}: {exc.strerror} "
                f"({exc.filename}). Choose another directory with SEXTANT_DATA_DIR, or set "
                f"DATABASE_URL to a server elsewhere."
            ) from exc

    def stop(self) -> None:
        """Leave the server; the last process that leaves stops it."""
        if self._membership is not None:
            with self._gate():
                self._leave()

    def _leave(self) -> None:
        """Give up membership, and stop the server if no other process uses it."""
        membership, self._membership = self._membership, None
        if membership is None:
            return
        try:
            if _try_lock(membership):
                self._stop_server()
        finally:
            os.close(membership)

    # --- starting

    def _ensure_running(self) -> None:
        """Ensure that a server answers; the caller holds the gate lock."""
        lock = self._open_lock("server")
        try:
            # A server that runs, starts, or ends after a crash will answer or disappear.
            if not _within(_START_TIMEOUT_S, lambda: _try_lock(lock) or self._answers()):
                raise DatabaseUnavailableError(
                    f"A Postgres that runs in {self._cluster} gives no answer for "
                    f"{_START_TIMEOUT_S} s. Its log: {self._log}."
                )
            if _try_lock(lock):
                self._start_server(lock)
        finally:
            os.close(lock)
        self._ensure_database()

    def _start_server(self, lock: int) -> None:
        """Start a server that inherits `lock`; no process of an earlier server may be left."""
        programs = binaries.find(self._cluster_version())
        if self._user:
            self._user = self._user.alone_in(self._home)
            programs = binaries.publish(programs, self._root / "binaries", self._user)
        if self._socket_dir.parent != self._home:
            # Any user may have made a directory in this place, so it must belong to root.
            make_private(self._socket_dir.parent, self._user and replace(self._user, uid=0))
            if self._user:
                os.chown(self._socket_dir.parent, 0, self._user.gid)
                self._socket_dir.parent.chmod(0o710)
        make_private(self._socket_dir, self._user)
        for stale in (
            self._cluster / "postmaster.pid",
            self._socket_dir / f".s.PGSQL.{_PORT}",
            self._socket_dir / f".s.PGSQL.{_PORT}.lock",
        ):
            stale.unlink(missing_ok=True)
        if not self._cluster.exists():
            self._make_cluster(programs, lock)
        if self._log.exists() and self._log.stat().st_size > _LOG_LIMIT_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        seen = self._log.stat().st_size if self._log.exists() else 0
        server = self._spawn(programs, lock)
        known = _within(_START_TIMEOUT_S, lambda: self._answers() or server.poll() is not None)
        if server.poll() is not None:
            raise DatabaseUnavailableError(
                f"The embedded Postgres in {self._cluster} did not start: "
                f"{_reason(self._log_since(seen))}"
            )
        if not known:
            server.send_signal(signal.SIGQUIT)
            raise DatabaseUnavailableError(
                f"The embedded Postgres in {self._cluster} did not answer within "
                f"{_START_TIMEOUT_S} s of its start. Its log: {self._log}."
            )

    def _spawn(self, programs: Binaries, lock: int) -> "subprocess.Popen[bytes]":
        """Run `postgres` itself, which continues when this process ends."""
        options = self._options | {"unix_socket_directories": f'"{self._socket_dir}"'}
        # The server's user owns the directory, so its files may be links to other places.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        log = os.open(self._log, flags, 0o600)
        try:
            server = subprocess.Popen(  # noqa: S603 (no shell, our own arguments)
                [
                    *(programs.directory / "postgres", "-D", self._cluster.name),
                    *(f"--{name}={value}" for name, value in options.items()),
                ],
                stdout=log,
                stderr=log,
                **self._surroundings(lock),
            )
        finally:
            os.close(log)
        for pid in [pid for pid, known in _servers.items() if known.poll() is not None]:
            del _servers[pid]
        _servers[server.pid] = server
        return server

    def _make_cluster(self, programs: Binaries, lock: int) -> None:
        """Run initdb beside the final place, so that no incomplete cluster is ever used."""
        partial = self._home / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        make_private(partial, self._user)
        with binaries.safe_for_a_shell(programs) as runnable:
            made = subprocess.run(  # noqa: S603 (no shell, our own arguments)
                [
                    *(runnable.directory / "initdb", f"--pgdata={partial.name}"),
                    *(f"--username={NAME}", "--auth=trust", "--encoding=UTF8", "--no-locale"),
                    *("--no-instructions", *(("--no-sync",) if self._is_fast else ())),
                ],
                check=False,
                capture_output=True,
                text=True,
                **self._surroundings(lock),
            )
        if made.returncode:
            raise DatabaseUnavailableError(
                f"The embedded Postgres could not be set up in {self._home}: {_reason(made.stderr)}"
            )
        partial.rename(self._cluster)

    def _ensure_database(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [NAME])
                if not known.rowcount:
                    connection.execute(f"CREATE DATABASE {NAME}")
        except psycopg.Error as exc:
            raise DatabaseUnavailableError(
                f"The embedded Postgres in {self._cluster} runs but refuses its owner: {exc}"
            ) from exc

    def _cluster_version(self) -> int | None:
        """Major version that made the cluster; None if there is no cluster."""
        marker = self._cluster / "PG_VERSION"
        if marker.exists():
            return int(marker.read_text().strip().split(".")[0])
        if self._cluster.exists() and any(self._cluster.iterdir()):
            raise DatabaseUnavailableError(
                f"{self._cluster} is not a Postgres data directory and not empty. "
                f"Move it away, or choose another directory with SEXTANT_DATA_DIR."
            )
        with contextlib.suppress(FileNotFoundError):
            self._cluster.rmdir()
        return None

    # --- stopping

    def _stop_server(self) -> None:
        """Ask the server to shut down and wait until its last process is gone."""
        lock = self._open_lock("server")
        try:
            for request in (signal.SIGINT, signal.SIGQUIT):  # fast, then immediate
                pid = self._listener()
                if pid is not None:
                    os.kill(pid, request)
                if _within(_STOP_TIMEOUT_S, lambda: _try_lock(lock)):
                    if pid in _servers:
                        _servers.pop(pid).wait()
                    return
        finally:
            os.close(lock)

    def _listener(self) -> int | None:
        """Id of the process that listens on our socket, from the kernel; None if there is none."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            try:
                client.connect(str(self._socket_dir / f".s.PGSQL.{_PORT}"))
            except OSError:
                return None
            if sys.platform == "darwin":
                sol_local, local_peerpid = 0, 2  # <sys/un.h>; not in Python's socket module
                pid = client.getsockopt(sol_local, local_peerpid)
            else:
                credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                pid = struct.unpack("3i", credentials)[0]
        return pid or None

    # --- files, locks, programs

    def _prepare(self) -> None:
        if not self._root.is_dir():
            self._root.mkdir(parents=True, mode=0o755 if self._user else 0o700)
        barrier = self._user and self._user.barrier(self._root)
        if barrier:
            raise DatabaseUnavailableError(
                f"As root, Sextant runs Postgres as an unprivileged user, and {barrier} (mode "
                f"{stat.S_IMODE(barrier.stat().st_mode):04o}) keeps that user out of "
                f"{self._root}. Choose another directory with SEXTANT_DATA_DIR, for instance "
                f"/var/lib/sextant."
            )
        try:
            make_private(self._home, self._user)
        except DatabaseUnavailableError as exc:
            raise DatabaseUnavailableError(
                f"{self._root} was written by a newer Sextant or another user, or was changed: "
                f"{exc.detail} Upgrade Sextant, or choose another directory with SEXTANT_DATA_DIR."
            ) from exc

    def _choose_socket_dir(self) -> Path:
        near = self._home / "run"
        if len(os.fsencode(near)) <= _LONGEST_SOCKET_DIR and _PLAIN_PATH.fullmatch(str(near)):
            return near
        # Not in the user's TMPDIR: all processes must find the same place, and it must be short.
        digest = sha256(os.fsencode(self._root)).hexdigest()[:16]
        return Path(f"/tmp/sextant-{os.geteuid()}-{digest}/run")  # noqa: S108 (owner and mode are checked)

    @contextlib.contextmanager
    def _gate(self) -> Iterator[None]:
        gate = self._open_lock("gate")
        try:
            if not _within(_START_TIMEOUT_S + _STOP_TIMEOUT_S, lambda: _try_lock(gate)):
                raise DatabaseUnavailableError(
                    f"Another Sextant process is starting or stopping the Postgres in "
                    f"{self._root} and does not finish."
                )
            yield
        finally:
            os.close(gate)

    def _open_lock(self, name: str) -> int:
        return os.open(self._root / f"postgres.{name}", os.O_RDWR | os.O_CREAT, 0o600)

    def _surroundings(self, lock: int) -> dict[str, Any]:
        """Arguments to run a program of Postgres: our directory, the server's user, the lock."""
        return {
            "stdin": subprocess.DEVNULL,
            "cwd": self._home,
            "env": _ENVIRONMENT,
            "umask": 0o077,
            "pass_fds": (lock,),
            "start_new_session": True,  # Ctrl-C is for us; we then stop the server in order
            "user": self._user.uid if self._user else None,
            "group": self._user.gid if self._user else None,
            "extra_groups": [] if self._user else None,
        }

    def _answers(self) -> bool:
        return pq.PGconn.ping(self._conninfo.encode()) == pq.Ping.OK

    @property
    def _conninfo(self) -> str:
        return f"host={self._socket_dir} port={_PORT} user={NAME} dbname=postgres connect_timeout=5"

    def _log_since(self, start: int) -> str:
        with contextlib.suppress(FileNotFoundError), self._log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")
        return ""


@contextlib.contextmanager
def database_url(settings: Settings) -> Iterator[str]:
    """URL of the database: DATABASE_URL, or an embedded Postgres that runs during the block."""
    if settings.database_url:
        yield settings.database_url
    else:
        with EmbeddedPostgres(settings.data_dir) as postgres:
            yield postgres.url


def _within(limit_s: float, condition: Callable[[], bool]) -> bool:
    """Poll a condition; return whether it became true within the limit."""
    deadline = time.monotonic() + limit_s
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return is_met


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _reason(output: str) -> str:
    """Why a Postgres program failed: its first line with a complaint, otherwise its last line."""
    lines = output.strip().splitlines() or ["no output"]
    return next((line for line in lines if _COMPLAINT.search(line)), lines[-1])
