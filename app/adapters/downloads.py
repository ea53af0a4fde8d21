"""Files from the hub and from plain URLs, into the hub's own cache, by a child process.

The child has the hub's library, whose calls block and cannot be cancelled: killing it is how a
download ends early. What came so far of a plain URL stays, and the next download goes on from
there; a file of the hub is taken up again while the child lives, and from its beginning after that.
The hub's own settings hold: HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, proxies.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from app.adapters.guard import AddressGuard
from app.errors import DownloadError
from app.sandbox import programs


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One place of a file: a plain URL, or a path in a dataset of the hub at a revision."""

    url: str | None = None
    dataset: str | None = None
    revision: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a file has come: bytes, and of how many if that is known."""

    name: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file in the cache, and which of its places it came from."""

    path: Path
    place: int


async def download(
    name: str,
    places: Sequence[RemoteFile],
    guard: AddressGuard,
    report: Callable[[Progress], None] = lambda _: None,
) -> Downloaded:
    """Fetch a file from the first of its places that gives it.

    Raises:
        DownloadError: No place gave it; one sentence says why, and what to do.
    """
    order = {
        "name": name,
        "places": [asdict(place) for place in places],
        "allow_private": guard.allow_private,
        "allowed_networks": [str(network) for network in guard.allowed_networks],
    }
    failure: DownloadError | None = None
    async with programs.running(
        "app.adapters.download_process",
        order=[json.dumps(order).encode() + b"\n"],
        # Its own transfer would go around the guard and the settings of proxies.
        environment={"HF_HUB_DISABLE_XET": "1", "HF_HUB_VERBOSITY": "error"},
    ) as child:
        async for message in child.messages():
            if "path" in message:
                return Downloaded(Path(message["path"]), message["place"])
            if "detail" in message:
                found = DownloadError(message["detail"], unreachable=message["unreachable"])
                # Of several faults the one that is not just a missing network tells most.
                if failure is None or (failure.unreachable and not found.unreachable):
                    failure = found
            else:
                report(Progress(name=name, done=message["done"], total=message["total"]))
    raise failure or DownloadError(f"The process that fetched {name} ended without a result.")
