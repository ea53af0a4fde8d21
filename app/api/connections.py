"""Connections that hold a place and give nothing for it: the server ends them.

Uvicorn waits without end for the head of a request, however long it grows, and for a reader that
does not read. Here a head, or what stands beside a body, has to come within a time and a size, an
answer has to be taken, and one address has so many connections at most. How slowly a body may
come is in `app.api.bodies`.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address
from time import monotonic
from typing import Any, ClassVar, Final

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.secure import SECURE

#: Seconds within which the head of a request has to be there.
HEAD_S = 10.0
#: Bytes of a head, and of all that is no body, at most.
HEAD_BYTES: Final = 64 * 1024
#: Headers of a request, trailers included.
MOST_HEADERS: Final = 256
#: Seconds that an answer may wait for its reader: within them some 50 kB have to be taken.
WRITE_S = 30.0
#: Connections that are taken on in one pass of the event loop.
TAKEN_ON: Final = 32


def _answer(status: str, text: str, **headers: str) -> bytes:
    """What is said on a connection that no request is taken from, which ends with it."""
    told = {
        **{name.replace("_", "-"): value for name, value in headers.items()},
        "connection": "close",
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(text)),
        **SECURE,
    }
    head = "".join(f"{name.lower()}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n{text}".encode("ascii")


_REFUSED: Final = _answer(
    "503 Service Unavailable",
    "Too many connections are open from this address.\n",
    retry_after="5",
)


class _TooManyHeadersError(Exception):
    """A request has more headers than it may have."""


class BoundedConnection(HttpToolsProtocol):
    """Uvicorn's connection, of which no part may last for ever; see `end_if_stuck`."""

    #: By address, of this process.
    open_from: ClassVar[Counter[str]] = Counter()
    #: Of one address at most.
    most_from_one: ClassVar[int] = 2**31
    #: Networks of proxies, behind which many are: they count for none.
    proxies: ClassVar[tuple[IPv4Network | IPv6Network, ...]] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_since: float | None = None
        self._unread_since: float | None = None
        self._beside_bodies = 0
        self._got_on = False
        self._under_way = 0
        self._counted: str | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._head_since = monotonic()
        address = self.client[0] if self.client else ""
        if _is_within(address, self.proxies):
            return
        self._counted = address
        self.open_from[address] += 1
        if self.open_from[address] > self.most_from_one:
            transport.write(_REFUSED)
            transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._counted is not None:
            self.open_from[self._counted] -= 1
            if not self.open_from[self._counted]:
                del self.open_from[self._counted]
            self._counted = None

    @override
    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._got_on = False
        super().data_received(data)
        self._beside_bodies = 0 if self._got_on else self._beside_bodies + len(data)
        if self._beside_bodies > HEAD_BYTES:
            self.transport.abort()
        elif self._head_since is None and not self._under_way:
            self._head_since = monotonic()  # the next request on the same connection begins

    @override
    def send_400_response(self, msg: str) -> None:
        self.transport.write(_answer("400 Bad Request", msg))
        self.transport.close()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise _TooManyHeadersError  # ends the parser, and with it the request: 400
        super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        self._head_since = None
        self._got_on = True
        self._under_way += 1
        super().on_headers_complete()

    @override
    def on_response_complete(self) -> None:
        self._under_way -= 1
        super().on_response_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._got_on = True
        super().on_body(body)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since = monotonic()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since = None

    def end_if_stuck(self, now: float) -> None:
        """Cut the connection where its client has kept it waiting for too long.

        Args:
            now: The process's clock, seconds.
        """
        if self._unread_since is None and self.transport.is_closing():
            self._unread_since = now  # what is still to be sent may never be read
        late = (self._head_since, HEAD_S), (self._unread_since, WRITE_S)
        if any(since is not None and now - since > most for since, most in late):
            self.transport.abort()


def _is_within(address: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def end_stuck(connections: Iterable[object]) -> None:
    """Look once after connections; called every second."""
    now = monotonic()
    for connection in list(connections):
        if isinstance(connection, BoundedConnection):
            connection.end_if_stuck(now)


def listening(listener: socket.socket) -> list[socket.socket]:
    """A listener as many, which are all for the same connections.

    libuv takes one connection of each listener in a pass of the event loop. Of two hundred that
    come at once the last would wait for two hundred passes, each with a part of what those before
    it ask for: with them the look at the server's health, for most of a second.

    Args:
        listener: Bound; the first of those returned. Each is to be closed.
    """
    return [listener, *(listener.dup() for _ in range(TAKEN_ON - 1))]
