"""The system user of the embedded Postgres when Sextant runs as root, and its private files."""

import contextlib
import grp
import os
import pwd
import secrets
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from app.errors import DatabaseUnavailableError

_UNPRIVILEGED = ("nobody", "postgres")
#: Mode of a root-owned directory that one group may traverse, and group ids that users and packages
#: seldom have.
_VESTIBULE = 0o710
_GROUPS = range(52_000, 59_000)


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

    def can_enter(self, directory: Path) -> bool:
        """Whether the permissions let the user through to `directory`."""
        return self.barrier(directory) is None

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
