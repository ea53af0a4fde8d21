"""Which server commands speak to, and with which key: options, variables, `sextant login`."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.cli.terminal.console import written
from app.errors import InvalidInputError
from app.settings import config_dir

#: In place of a server's address: the database of this machine, whatever else is said.
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the key for it.

    Attributes:
        url: Its address without a slash at the end.
        key: API key, if there is one.
    """

    url: str
    key: str | None = field(repr=False)


def target(server: str | None, key: str | None) -> Target | None:
    """The server that a command is to speak to; None: the database of this machine.

    The server of `sextant login` where none is named. A key that was kept by `sextant login` goes
    to no other server than that one.

    Args:
        server: `--server` or SEXTANT_SERVER.
        key: `--server-key` or SEXTANT_API_KEY.

    Raises:
        InvalidInputError: Not an address of a server, or the file of the login cannot be read.
    """
    if server == LOCAL:
        return None
    kept = kept_login()
    if server is None:
        return kept and Target(kept.url, key or kept.key)
    url = address(server)
    return Target(url, key or (kept.key if kept and kept.url == url else None))


def address(server: str, *, given_as: str = "--server") -> str:
    """A server's address as it is compared and kept.

    Args:
        server: What was given.
        given_as: The option or argument that it was given as.

    Raises:
        InvalidInputError: Not the address of an HTTP server.
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
    """What `sextant login` kept.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    path = _path()
    try:
        kept: Any = json.loads(path.read_text("utf-8"))
        return Target(kept["server"], kept["key"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, KeyError):
        raise InvalidInputError(f"{path} is not what `sextant login` wrote: log in anew.") from None


def keep_login(login: Target) -> Path:
    """Keep a login where its owner alone can read it.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    path = _path()
    part = path.with_suffix(".part")
    with written(str(path)):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        # Made with these rights, not given them later: nobody else may open it meanwhile.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"server": login.url, "key": login.key}, file)
        part.replace(path)
    return path


def forget_login() -> bool:
    """Forget what was kept; whether there was anything."""
    try:
        _path().unlink()
    except FileNotFoundError:
        return False
    return True


def _path() -> Path:
    return config_dir() / "login.json"
