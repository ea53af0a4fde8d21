"""Download files from the hub and from plain URLs into the hub's cache, in a child process.

The child uses the hub's library, whose calls block and cannot be cancelled, so a download is
cancelled by killing the child. A plain URL is resumed by the next download. A file of the hub is
resumed while the child lives, and starts anew after that. The hub's own settings apply: HF_HOME,
HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, proxies.
"""

import errno
import hashlib
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore2
import httpx2
from typing_extensions import override

from app.adapters.connections import reason_of
from app.adapters.guard import AddressGuard
from app.errors import BlockedAddressError, DownloadError
from app.sandbox import programs
from app.sandbox.programs import Say

#: Time limit for plain URLs; the hub's library has its own limits.
_TIMEOUT_S = 30.0
_TRIES = 5
_PAUSE_S = 0.5
_MAX_BYTES = 2**30
#: Seconds between two reports of progress.
_REPORT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One place of a file: a plain URL, or a path in a dataset of the hub at a revision."""

    url: str | None = None
    dataset: str | None = None
    revision: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a file: bytes received, and total bytes if known."""

    name: str
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file in the cache, and the place that it came from."""

    path: Path
    place: int


async def download(
    name: str,
    places: Sequence[RemoteFile],
    guard: AddressGuard,
    report: Callable[[Progress], None] = lambda _: None,
) -> Downloaded:
    """Fetch a file from the first place that provides it.

    Raises:
        DownloadError: No place provides the file; one sentence says why, and what to do.
    """
    order = {
        "name": name,
        "places": [asdict(place) for place in places],
        "allow_private": guard.allow_private,
        "allowed_networks": [str(network) for network in guard.allowed_networks],
    }
    failure: DownloadError | None = None
    async with programs.running(
        __name__,
        order=[json.dumps(order).encode() + b"\n"],
        # The hub's Xet transfer would bypass the guard and the proxy settings.
        environment={"HF_HUB_DISABLE_XET": "1", "HF_HUB_VERBOSITY": "error"},
    ) as child:
        async for message in child.messages():
            if "path" in message:
                return Downloaded(Path(message["path"]), message["place"])
            if "detail" in message:
                found = DownloadError(message["detail"], unreachable=message["unreachable"])
                # An error other than a missing network is the most informative of several.
                if failure is None or (failure.unreachable and not found.unreachable):
                    failure = found
            else:
                report(Progress(name=name, done=message["done"], total=message["total"]))
    raise failure or DownloadError(
        f"The process that fetched {name} ended without a result: try again."
    )


# The code below runs in the child process.


class _GuardedBackend(httpcore2.SyncBackend):
    """Connects only to addresses that passed the guard, as in `app.adapters.connections`."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    @override
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise httpcore2.ConnectError(f"the name {host!r} cannot be resolved") from None
        failure: Exception | None = None
        for address in dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found):
            try:
                self._guard.check(address)
                return super().connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (BlockedAddressError, httpcore2.ConnectError, httpcore2.ConnectTimeout) as exc:
                failure = failure or exc
        raise failure or httpcore2.ConnectError(f"the name {host!r} has no address")


class _GuardedTransport(httpx2.HTTPTransport):
    """httpx2's own transport on a pool with the guarded backend."""

    def __init__(self, guard: AddressGuard, trusted: ssl.SSLContext) -> None:
        super().__init__(verify=trusted)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trusted, network_backend=_GuardedBackend(guard)
        )


class _Client(httpx2.Client):
    """A client that uses the environment's proxies, or else only addresses that pass the guard."""

    def __init__(self, guard: AddressGuard, **options: Any) -> None:
        # Shared, as otherwise each transport would parse the system's certificates.
        trusted = httpx2.create_ssl_context()
        super().__init__(follow_redirects=True, verify=trusted, **options)
        self._transport = _GuardedTransport(guard, trusted)


class _Reporter:
    """Reports the progress of a file to the parent process."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told = 0.0

    def tell(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._told >= _REPORT_S or done == total:
            self._told = now
            self._say({"done": done, "total": total})


def _fetch(order: Any, say: Say) -> None:
    """Fetch the ordered file; sends messages of progress, of errors, and of the path."""
    guard = AddressGuard(
        allow_private=order["allow_private"],
        allowed_networks=tuple(map(ipaddress.ip_network, order["allowed_networks"])),
    )
    for number, place in enumerate(RemoteFile(**place) for place in order["places"]):
        try:
            if place.url:
                path = _from_url(guard, order["name"], place.url, _Reporter(say))
            else:
                path = _from_hub(guard, place, _Reporter(say))
        except DownloadError as fault:
            say({"detail": fault.detail, "unreachable": fault.unreachable})
        except BlockedAddressError as error:
            say({"detail": error.detail, "unreachable": False})
        except OSError as error:
            say({"detail": _of_the_disk(order["name"], error), "unreachable": False})
        else:
            say({"path": str(path), "place": number})
            return


def _from_url(guard: AddressGuard, name: str, url: str, reporter: _Reporter) -> Path:
    """Download a plain URL, resuming an earlier download."""
    from huggingface_hub import cached_assets_path
    from huggingface_hub.constants import is_offline_mode

    folder = cached_assets_path(
        "sextant", namespace="catalog", subfolder=hashlib.sha256(url.encode()).hexdigest()[:16]
    )
    target = folder / (Path(unquote(urlsplit(url).path)).name or "file")
    if target.exists():
        return target
    host = urlsplit(url).netloc
    if is_offline_mode():
        raise DownloadError(f"{name} is not fetched: HF_HUB_OFFLINE is set.", unreachable=True)
    partial = target.with_name(f"{target.name}.incomplete")
    with _Client(guard, timeout=_TIMEOUT_S) as client:
        for tries_left in reversed(range(_TRIES)):
            have = partial.stat().st_size if partial.exists() else 0
            try:
                _append(client, url, name, partial, reporter)
            except (
                httpx2.TooManyRedirects,
                httpx2.UnsupportedProtocol,
                httpx2.InvalidURL,
            ) as error:
                raise DownloadError(
                    f"{host} redirects the download of {name} to an address that cannot be "
                    f"called ({reason_of(error).rstrip('.')})."
                ) from None
            except (httpx2.TransportError, httpx2.DecodingError) as error:
                got = partial.stat().st_size if partial.exists() else 0
                if tries_left:
                    time.sleep(_PAUSE_S)
                    continue
                if not got:
                    raise DownloadError(
                        f"{host} cannot be reached ({reason_of(error)}).", unreachable=True
                    ) from None
                raise DownloadError(
                    f"The connection to {host} was cut after {max(got, have)} bytes of {name}: "
                    "try again, and the download continues from there."
                ) from None
            else:
                partial.replace(target)
                return target
    raise AssertionError("the last try returns or raises")


def _append(client: httpx2.Client, url: str, name: str, partial: Path, reporter: _Reporter) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as answer:
        if answer.status_code == 416:  # the file was complete, or has changed
            partial.unlink()
            raise httpx2.ReadError("another length", request=answer.request)
        if not answer.is_success:
            _raise_for(answer.status_code, urlsplit(url).netloc, name, url)
        if answer.status_code != 206:
            have = 0
        length = answer.headers.get("content-length")
        total = have + int(length) if length else None
        done = have
        with partial.open("ab" if have else "wb", buffering=0) as file:
            for chunk in answer.iter_raw():
                file.write(chunk)
                done += len(chunk)
                if done > _MAX_BYTES:
                    raise DownloadError(f"{name} is larger than {_MAX_BYTES >> 20} MB.")
                reporter.tell(done, total)
        if total is not None and done != total:
            raise httpx2.ReadError("cut", request=answer.request)


def _from_hub(guard: AddressGuard, place: RemoteFile, reporter: _Reporter) -> Path:
    """Download a file of a dataset by the hub's library into its cache."""
    import huggingface_hub as hub
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils._http import hf_request_event_hook
    from huggingface_hub.utils.tqdm import tqdm

    hooks = {"request": [hf_request_event_hook]}  # as in the hub's own clients
    hub.set_client_factory(lambda: _Client(guard, timeout=None, event_hooks=hooks))

    class Bar(tqdm):
        def __init__(self, *_: object, **options: Any) -> None:
            self._done, self._of = int(options.get("initial") or 0), options.get("total")
            super().__init__(disable=True)  # type: ignore[no-untyped-call]  # as the library has it

        def update(self, n: float | None = 1) -> bool | None:
            self._done += int(n or 0)
            reporter.tell(self._done, self._of)
            return None

    dataset, path = place.dataset or "", place.path or ""
    what = f"{path} of dataset {dataset}"
    try:
        return Path(
            hub.hf_hub_download(
                dataset, path, repo_type="dataset", revision=place.revision, tqdm_class=Bar
            )
        )
    except LocalEntryNotFoundError as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, BlockedAddressError):
            raise cause from None
        if isinstance(cause, HfHubHTTPError):
            status = cause.response.status_code
            raise DownloadError(f"The hub answered {status} for {what}: try again later.") from None
        reason = "HF_HUB_OFFLINE is set" if hub.is_offline_mode() else reason_of(cause or error)
        raise DownloadError(f"The hub cannot be reached ({reason}).", unreachable=True) from None
    except GatedRepoError:
        raise DownloadError(
            f"{what} needs granted access: ask for it on the dataset's page, and set HF_TOKEN "
            "to a token of that account."
        ) from None
    except RevisionNotFoundError:
        raise DownloadError(f"Dataset {dataset} has no revision {place.revision}.") from None
    except RepositoryNotFoundError:
        raise DownloadError(
            f"The hub has no dataset {dataset}, or does not show it without a token: set HF_TOKEN "
            "or log in with `hf auth login`."
        ) from None
    except EntryNotFoundError:
        raise DownloadError(f"Dataset {dataset} has no {path} at {place.revision}.") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise DownloadError(
                f"The hub refused the token for {what} ({status}): set HF_TOKEN to a valid one, or "
                "unset it."
            ) from None
        raise DownloadError(f"The hub answered {status} for {what}: try again later.") from None
    except httpx2.HTTPError as error:
        raise DownloadError(
            f"The connection to the hub was lost while {what} was downloaded "
            f"({reason_of(error)}): try again."
        ) from None
    except OSError as error:
        if error.errno is None and "Consistency check" in str(error):
            raise DownloadError(
                f"The connection to the hub was cut while {what} was downloaded: try again."
            ) from None
        raise


def _raise_for(status: int, host: str, name: str, url: str) -> None:
    if status in (401, 403):
        raise DownloadError(
            f"{host} refused {name} ({status}): {url} needs access rights that this download "
            "does not have."
        )
    if status in (404, 410):
        raise DownloadError(f"{host} has no {name} any more ({status} for {url}).")
    raise DownloadError(f"{host} answered {status} for {name}: try again later.")


def _of_the_disk(name: str, error: OSError) -> str:
    where = error.filename or "the cache of the hub"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"There is no space left for {name} at {where}: free some, or set HF_HOME to a disk "
            "that has more, and try again."
        )
    reason = error.strerror or str(error)
    return (
        f"{name} cannot be stored at {where} ({reason}): set HF_HOME to a directory that can be "
        "written to."
    )


if __name__ == "__main__":
    programs.serve(programs.json_line, _fetch)
