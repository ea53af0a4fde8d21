"""Connections to addresses that the guard has seen, kept in a pool.

A host is resolved once per connection and the checked address itself is connected to, so a name
that changes its address between check and call (DNS rebinding) gains nothing. Host header and TLS
server name stay those of the URL.
"""

import asyncio
import ipaddress
import os
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
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
        # Said to a person, so without the resolver's own wording as a cause.
        raise httpcore2.ConnectError(f"the name {host!r} cannot be resolved") from None
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


class _Stream(httpcore2.AsyncNetworkStream):
    """anyio's stream with a cheap test for being alive.

    For every call the pool asks every idle connection whether the other side has closed it; through
    anyio that costs more than the call itself once a hundred connections are open.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._socket = stream.get_extra_info("socket")
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    @override
    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._socket.fileno() < 0 or bool(self._poll.poll(0))
        return self._stream.get_extra_info(info)


class _GuardedBackend(httpcore2.AnyIOBackend):
    """Connects only to addresses that the guard has seen."""

    def __init__(self, guard: AddressGuard, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve

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
                stream = await super().connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except httpcore2.ConnectError as exc:
                failure = failure or httpcore2.ConnectError(_system_reason(exc))
            except (BlockedAddressError, httpcore2.ConnectTimeout) as exc:
                failure = failure or exc
            else:
                opened_connection.set(True)
                return _Stream(stream)
        raise failure or httpcore2.ConnectError(f"the name {host!r} has no address")


class GuardedHTTPTransport(httpx2.AsyncHTTPTransport):
    """httpx2's own transport on a connection pool that uses the guarded backend."""

    def __init__(self, guard: AddressGuard, resolve: Resolve, limits: httpx2.Limits) -> None:
        ssl_context = _trusted_certificates()
        super().__init__(verify=ssl_context)
        # httpx2 has no argument for the network backend, so its pool is replaced by one that has.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_GuardedBackend(guard, resolve),
        )


@cache
def _trusted_certificates() -> ssl.SSLContext:
    """Read once: parsing the system's store takes longer than a hundred calls."""
    return httpx2.create_ssl_context()


def _system_reason(exc: httpcore2.ConnectError) -> str:
    """What the operating system said, which anyio keeps as the cause of a vaguer error."""
    cause: BaseException = exc
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return str(cause)
