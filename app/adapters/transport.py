"""The one HTTP client of a process: connection pool, time limits, size limit, address guard.

- A few redirects are followed, each through the same guard. Other origins do not get our
  credentials. The body is sent again unchanged, as an endpoint that moved has moved for POST too.
- Proxies of the environment are not used, and cookies are not kept. `SSL_CERT_FILE` and
  `SSL_CERT_DIR` are respected, so that an operator can add an own certificate authority.
- Large replies are read in a thread, as this may take seconds.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

import httpx2

from app.acting import present
from app.adapters.connections import GuardedHTTPTransport, Resolve, opened_connection, resolve_host
from app.adapters.guard import AddressGuard
from app.errors import (
    AnswerTooLargeError,
    EndpointRejectedError,
    ExamineeError,
    ExamineeTimeoutError,
    MalformedAnswerError,
    UnreachableError,
)
from app.fair_semaphore import FairSemaphore
from app.items import JsonValue

CONNECT_TIMEOUT_S: Final = 10.0
#: Largest reply; longer replies are refused while they arrive.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_CONNECTIONS: Final = 500  # half of the usual limit of open files
MAX_IDLE_CONNECTIONS: Final = 200
IDLE_CONNECTION_S: Final = 30.0
MAX_REDIRECTS: Final = 3
MAX_STALE_RESENDS: Final = 2
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_MAX_DIGITS: Final = 15  # most digits of a content length that is parsed
_HOST = re.compile(r"[0-9A-Za-z._-]{1,253}")
_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": "sextant",
}
#: The time limit of an attempt is enforced around the whole call (`post_json`).
_EXTENSIONS: Final = {"timeout": httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S).as_dict()}
_BROKEN_CONNECTION: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of any status.

    Attributes:
        headers: Headers with case-insensitive names.
        body: Whole body, decompressed.
        latency_s: Seconds from sending the request to the last byte.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    latency_s: float


class Transport:
    """Sends JSON to endpoints. An async context manager; create one per process.

    Args:
        guard: Decides which addresses may be called.
        max_connections: Most simultaneous connections, over all endpoints.
        resolve: Finds the addresses of a host, best first; by default the system's resolver.
    """

    def __init__(
        self,
        *,
        guard: AddressGuard,
        max_connections: int = MAX_CONNECTIONS,
        resolve: Resolve = resolve_host,
    ) -> None:
        limits = httpx2.Limits(
            max_connections=max_connections,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_S,
        )
        # No httpx2 client is used: redirects have our own rules, and its cookies would be shared by
        # endpoints of different owners. The guard sees new connections alone, so callers from
        # elsewhere have their own: one of a local caller may lead to a private address.
        self._connections = {
            from_elsewhere: GuardedHTTPTransport(guard, resolve, limits)
            for from_elsewhere in (False, True)
        }

    async def __aenter__(self) -> Self:
        for connections in self._connections.values():
            await connections.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        for connections in self._connections.values():
            await connections.__aexit__(*failure)

    async def post_json(
        self,
        url: str,
        payload: Mapping[str, JsonValue],
        *,
        credentials: Mapping[str, str],
        timeout_s: float,
        reads: bool = True,
    ) -> Reply:
        """POST `payload` as JSON, and by default read the whole reply.

        Args:
            url: Absolute http or https URL without user information.
            payload: JSON object to send.
            credentials: Request headers that are sent to the origin of `url` only.
            timeout_s: Time limit, from waiting for a connection to the last byte, with redirects.
            reads: Follow redirects, and read the body; otherwise only the first head counts.

        Raises:
            BlockedAddressError: The guard refused an address, at the start or after a redirect.
            ExamineeTimeoutError: Not finished in time.
            UnreachableError: No connection, or one that broke before the reply began.
            MalformedAnswerError: The reply broke off, or is not HTTP.
            AnswerTooLargeError: The reply is longer than the limit.
            EndpointRejectedError: Too many redirects, or one that cannot be followed.
        """
        content = json_bytes(payload)
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                if reads:
                    status, headers, body = await self._follow(_parsed(url), content, credentials)
                else:
                    head = await self._open(_parsed(url), content, {**_HEADERS, **credentials})
                    await head.aclose()
                    status, headers, body = head.status_code, head.headers, b""
        except TimeoutError as exc:
            raise ExamineeTimeoutError(
                f"{origin(url)} did not finish its answer within {timeout_s:g} s."
            ) from exc
        taken_s = time.perf_counter() - started
        return Reply(status=status, headers=headers, body=body, latency_s=taken_s)

    async def _follow(
        self, url: httpx2.URL, content: bytes, credentials: Mapping[str, str]
    ) -> tuple[int, httpx2.Headers, bytes]:
        first = url
        for _ in range(MAX_REDIRECTS + 1):
            headers = dict(_HEADERS)
            if _keeps_credentials(first, url):
                headers |= credentials
            status, reply_headers, body = await self._send(url, content, headers)
            location = reply_headers.get("location")
            if status not in _REDIRECTS or location is None:
                return status, reply_headers, body
            url = _next_hop(url, location)
        raise EndpointRejectedError(
            f"{origin(first)} redirected more than {MAX_REDIRECTS} times, last to {origin(url)}."
        )

    async def _send(
        self, url: httpx2.URL, content: bytes, headers: dict[str, str]
    ) -> tuple[int, httpx2.Headers, bytes]:
        response = await self._open(url, content, headers)
        try:
            body = await self._read(response, url)
        except httpx2.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            raise MalformedAnswerError(f"The answer of {origin(url)} broke off: {why}.") from exc
        finally:
            await response.aclose()
        return response.status_code, response.headers, body

    async def _open(
        self, url: httpx2.URL, content: bytes, headers: dict[str, str]
    ) -> httpx2.Response:
        resends = 0
        connections = self._connections[present().is_from_elsewhere]
        while True:
            request = httpx2.Request(
                "POST", url, content=content, headers=headers, extensions=_EXTENSIONS
            )
            opened_connection.set(False)
            try:
                return await connections.handle_async_request(request)
            except httpx2.HTTPError as exc:
                # A server may close an idle connection just when it is used again. The call was
                # then not read and can be repeated.
                is_stale = isinstance(exc, _BROKEN_CONNECTION) and not opened_connection.get()
                if not is_stale or resends == MAX_STALE_RESENDS:
                    raise _no_reply(url, exc) from exc
                resends += 1

    async def _read(self, response: httpx2.Response, url: httpx2.URL) -> bytes:
        response.extensions["network_stream"].end_of_head()
        announced = response.headers.get("content-length", "")
        digits = announced.lstrip("0")
        is_number = digits.isascii() and digits.isdecimal()
        if is_number and (len(digits) > _MAX_DIGITS or int(digits) > MAX_BODY_BYTES):
            raise _too_large(url)
        body = bytearray()
        # The client decompresses in pieces of at most 1 MiB, so this limit stops zip bombs too.
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise _too_large(url)
        return bytes(body)


def json_bytes(payload: Mapping[str, JsonValue]) -> bytes:
    """The body that `Transport.post_json` sends for `payload`, such as for a signature."""
    return json.dumps(payload, separators=(",", ":")).encode()


@lru_cache(maxsize=256)
def _parsed(url: str) -> httpx2.URL:
    """Parse with a cache, as a session calls one URL many times and parsing takes time."""
    return httpx2.URL(url)


def parse_endpoint_url(text: str) -> httpx2.URL:
    """Check that `text` is a URL that can be called; addresses are checked on connection.

    Raises:
        ValueError: Not an absolute http or https URL, or one with user information.
    """
    try:
        url = httpx2.URL(text.strip())
    except httpx2.InvalidURL as exc:
        raise ValueError("is not a URL") from exc
    if url.scheme not in ("http", "https"):
        raise ValueError("must start with http:// or https://")
    host = url.raw_host.decode("ascii")
    if not (":" in host or (_HOST.fullmatch(host) and host.strip("."))) or "%" in host:
        raise ValueError("names no host")
    if url.port is not None and not 1 <= url.port <= 65_535:
        raise ValueError("must have a port from 1 to 65535")
    if url.userinfo:
        raise ValueError("must not carry a user name or password; give the key as api_key")
    return url


def _next_hop(url: httpx2.URL, location: str) -> httpx2.URL:
    try:
        return parse_endpoint_url(str(url.join(location)))
    except (ValueError, httpx2.InvalidURL) as exc:
        raise EndpointRejectedError(f"{origin(url)} redirected to an address that {exc}.") from exc


def _keeps_credentials(first: httpx2.URL, url: httpx2.URL) -> bool:
    """Whether a redirect keeps credentials: the same host, and never from https to http."""
    same_port = (first.port, first.scheme) == (url.port, url.scheme)
    upgraded = (first.scheme, url.scheme) == ("http", "https") and first.port == url.port is None
    return first.host == url.host and (same_port or upgraded)


def origin(url: str | httpx2.URL) -> str:
    """Scheme, host and port of a URL, for messages."""
    parsed = httpx2.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"


def _no_reply(url: httpx2.URL, exc: httpx2.HTTPError) -> ExamineeError:
    where = origin(url)
    if isinstance(exc, httpx2.TimeoutException):
        return ExamineeTimeoutError(
            f"{where} did not accept a connection within {CONNECT_TIMEOUT_S:g} s."
        )
    if isinstance(exc, httpx2.ConnectError):
        return UnreachableError(f"{where} cannot be reached: {exc}.")
    if isinstance(exc, httpx2.RemoteProtocolError) and "without sending" not in str(exc):
        return MalformedAnswerError(f"{where} did not answer with HTTP: {exc}.")
    return UnreachableError(f"{where} closed the connection before it answered.")


def _too_large(url: httpx2.URL) -> AnswerTooLargeError:
    return AnswerTooLargeError(f"{origin(url)} answered with more than {MAX_BODY_BYTES} bytes.")


#: Size of a reply that is read in a millisecond or two, whatever it holds.
SMALL: Final = 1 << 16
#: Most values of a reply: more than 4 MB of log-probabilities with tokens' bytes ever hold. The
#: decoder blocks everything else while it reads them, for a third of a second at most.
MAX_VALUES: Final = 1_000_000

_T = TypeVar("_T")
#: One reply is read at a time, as Python threads slow down the event loop and decoded replies take
#: memory. Projects and keys take turns. Calls in flight wait, and none is turned away.
_reading = FairSemaphore(1, waiting=1_000_000)


async def off_the_loop(reply: Reply, read: Callable[[Reply], _T]) -> _T:
    """Apply `read` to `reply`, in a thread if the reply is large."""
    if len(reply.body) <= SMALL:
        return read(reply)
    async with _reading.turn():
        began = time.monotonic()
        try:
            return await asyncio.to_thread(read, reply)
        finally:
            # The event loop then runs alone for as long, before the next reader starts.
            await asyncio.sleep(time.monotonic() - began)


class TooManyValuesError(ValueError):
    """A reply has more values than any answer needs; each takes far more memory than its bytes."""


def decoded(body: bytes) -> Any:
    """Decode the JSON in `body`.

    Raises:
        TooManyValuesError: More than `MAX_VALUES` values, by the number of brackets and commas.
        ValueError: The body is not JSON.
        RecursionError: The JSON is nested too deeply.
    """
    if len(body) > SMALL and sum(map(body.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise TooManyValuesError(f"more than {MAX_VALUES} values")
    return json.loads(body)
