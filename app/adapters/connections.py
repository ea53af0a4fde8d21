"""A pool of connections to addresses that passed the guard.

A host is resolved once per connection, and the connection goes to the checked address. So a name
that changes its address between check and call (DNS rebinding) has no effect. The Host header and
the TLS server name are those of the URL.
"""

import asyncio
import contextlib
import ipaddress
import math
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import httpcore2
import httpx2
from typing_extensions import override

from app.adapters.guard import AddressGuard, IPAddress
from app.errors import BlockedAddressError

Resolve = Callable[[str, int], Awaitable[list[IPAddress]]]
"""Host and port to addresses, in the order in which to try them."""

opened_connection: ContextVar[bool] = ContextVar("opened_connection", default=False)
"""Set when the current call opens a connection instead of reusing one."""


async def resolve_host(host: str, port: int) -> list[IPAddress]:
    """Addresses of `host`, which may be written as an address in any spelling.

    Raises:
        httpcore2.ConnectError: The name is unknown.
    """
    try:
        return [ipaddress.ip_address(host.strip("[]"))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # Users see this message, so the resolver's own wording is dropped as a cause.
        raise httpcore2.ConnectError(f"the name {host!r} cannot be resolved") from None
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


#: Most bytes that are passed to the client at once.
_SLICE = 4096
#: Most bytes before the body of an answer: enough for its head and a few interim answers.
_MAX_HEAD_BYTES = 1 << 18


class _Reader(asyncio.StreamReader):
    """Counts the received bytes that were not read."""

    unread = 0

    @override
    def feed_data(self, data: Any) -> None:
        self.unread += len(data)
        super().feed_data(data)

    @override
    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread -= len(data)
        return data


async def _opened(address: str, port: int, turn: asyncio.Lock) -> "_Stream":
    loop = asyncio.get_running_loop()
    reader = _Reader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, address, port)
    return _Stream(reader, asyncio.StreamWriter(transport, protocol, reader, loop), turn)


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection of asyncio, without the layers that support other event loops.

    For each call the pool checks whether the other side has closed any idle connection. This must
    be cheap, as a hundred may be open.
    """

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter, turn: asyncio.Lock) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = turn
        self._head_left: float = _MAX_HEAD_BYTES

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _as_httpcore(httpcore2.ReadTimeout, httpcore2.ReadError):
            async with asyncio.timeout(timeout):
                data = await self._reader.read(min(max_bytes, _SLICE))
                self._head_left -= len(data)
                if self._head_left < 0:
                    raise httpcore2.RemoteProtocolError("its headers are too long")
                if len(data) == _SLICE:
                    # A slice of one-byte pieces, or of `100 Continue`, costs the client some
                    # milliseconds. So all connections together get one slice per loop turn.
                    async with self._turn:
                        await asyncio.sleep(0)
                return data

    def end_of_head(self) -> None:
        """Note that the body follows, whose length is limited elsewhere."""
        self._head_left = math.inf

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._head_left = _MAX_HEAD_BYTES  # the next head is still to come
        with _as_httpcore(httpcore2.WriteTimeout, httpcore2.WriteError):
            self._writer.write(buffer)
            async with asyncio.timeout(timeout):
                await self._writer.drain()

    @override
    async def aclose(self) -> None:
        self._writer.close()
        await asyncio.sleep(0)
        self._writer.transport.abort()  # do not wait for the other side to close

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with _as_httpcore(httpcore2.ConnectTimeout, httpcore2.ConnectError):
                async with asyncio.timeout(timeout):
                    await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException:
            await self.aclose()
            raise
        return self

    @override
    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # Unsolicited bytes (such as a final 408) must not be read as the next call's answer.
            return self._reader.unread or self._reader.at_eof() or self._writer.is_closing()
        return self._writer.get_extra_info(_INFO.get(info, info))


_INFO = {"client_addr": "sockname", "server_addr": "peername"}


@contextlib.contextmanager
def _as_httpcore(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    """Translate errors of asyncio to the errors that httpcore2 expects."""
    try:
        yield
    except TimeoutError as exc:
        raise late(str(exc)) from exc
    except OSError as exc:  # TLS's own errors are among these
        raise broken(str(exc)) from exc


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that passed the guard."""

    def __init__(self, guard: AddressGuard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._turn = asyncio.Lock()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception | None = None
        for address in await self._resolve(host, port):
            try:
                self._guard.check(address)
                with _as_httpcore(httpcore2.ConnectTimeout, httpcore2.ConnectError):
                    async with asyncio.timeout(timeout):
                        stream = await _opened(str(address), port, self._turn)
            except httpcore2.ConnectError as exc:
                failure = failure or httpcore2.ConnectError(reason_of(exc))
            except (BlockedAddressError, httpcore2.ConnectTimeout) as exc:
                failure = failure or exc
            else:
                opened_connection.set(True)
                return stream
        raise failure or httpcore2.ConnectError(f"the name {host!r} has no address")

    @override
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class GuardedHTTPTransport(httpx2.AsyncHTTPTransport):
    """httpx2's own transport on a connection pool that uses the guarded backend."""

    def __init__(self, guard: AddressGuard, resolve: Resolve, limits: httpx2.Limits) -> None:
        ssl_context = _trusted_certificates()
        super().__init__(verify=ssl_context)
        # httpx2 has no argument for the network backend, so its pool is replaced.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_GuardedBackend(guard, resolve),
        )


@cache
def _trusted_certificates() -> ssl.SSLContext:
    """The system's certificates, read once, as parsing takes longer than a hundred calls."""
    return httpx2.create_ssl_context()


def reason_of(error: BaseException) -> str:
    """The operating system's message, at the root of the libraries' errors."""
    while True:
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            break
        error = cause
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower() if error.errno > 0 else str(error)
    return str(error) or type(error).__name__
