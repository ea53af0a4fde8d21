"""Choose the server and key for a command: from options, variables or `sextant login`."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.cli.terminal.console import written
from app.errors import InvalidInputError
from app.settings import config_dir

#: Given as the server: the database of this machine, whatever the login says.
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Target:
    """Address of a server, without a slash at the end, and the API key for it, if any."""

    url: str
    key: str | None = field(repr=False)


def target(server: str | None, key: str | None) -> Target | None:
    """Choose by `--server` and `--server-key`; None means the database of this machine.

    Without `server` it is the server of `sextant login`. The key that `sextant login` saved is
    never sent to another server.

    Raises:
        InvalidInputError: Not the address of a server, or the login file cannot be read.
    """
    if server == LOCAL:
        return None
    kept = kept_login()
    if server is None:
        return kept and Target(kept.url, key or kept.key)
    url = address(server)
    return Target(url, key or (kept.key if kept and kept.url == url else None))


def address(server: str, *, given_as: str = "--server") -> str:
    """Normalise the address of an HTTP server, for comparing and storing.

    Raises:
        InvalidInputError: Not such an address; names the option or argument `given_as`.
    """
    try:
        parts = urlsplit(server.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError(
            f"{given_as}: expected an address such as https://sextant.example.org, got {server!r}."
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidInputError(
            f"{given_as}: expected an address without user, query and fragment; the key goes into "
            "--server-key or SEXTANT_API_KEY."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    where = host if port in (None, usual) else f"{host}:{port}"
    return f"{parts.scheme}://{where}{parts.path.rstrip('/').removesuffix('/v1')}"


def kept_login() -> Target | None:
    """Load the login that `sextant login` saved; None without one."""
    path = _path()
    try:
        kept: Any = json.loads(path.read_text("utf-8"))
        return Target(kept["server"], kept["key"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError):
        raise InvalidInputError(
            f"{path} does not hold what `sextant login` writes: log in again."
        ) from None


def keep_login(login: Target) -> Path:
    """Save a login in a file that only its owner can read."""
    path = _path()
    part = path.with_suffix(".part")
    with written(str(path)):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        # Created with these rights, so that nobody can open the file before they are set.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"server": login.url, "key": login.key}, file)
        part.replace(path)
    return path


def forget_login() -> bool:
    """Delete the saved login; returns whether there was one."""
    try:
        _path().unlink()
    except FileNotFoundError:
        return False
    return True


def _path() -> Path:
    return config_dir() / "login.json"
