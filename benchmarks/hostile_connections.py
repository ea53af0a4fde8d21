"""Attacks by connections instead of requests: incomplete ones, or clients that never read.

Each holds its sockets until the server has closed them all, or the attack's time is over.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import httpx2

#: Sockets of one attack.
MANY = 200

Run = Callable[[httpx2.AsyncClient], Awaitable[object]]


async def _held(
    client: httpx2.AsyncClient,
    begin: bytes,
    *,
    then: bytes = b"",
    pause_s: float = 1.0,
    reads: bool = True,
) -> None:
    """Open many connections, send the beginning, then small pieces repeatedly."""
    host, port = client.base_url.host, client.base_url.port

    async def one() -> None:
        made = socket.socket()
        made.setblocking(False)
        if not reads:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(made, (host, port))
            await loop.sock_sendall(made, begin)
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        if reads:
                            if not await loop.sock_recv(made, 65_536):
                                return
                            continue
                        await asyncio.Event().wait()
                await loop.sock_sendall(made, then or b"")
                if not reads and made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    return
        except OSError:
            pass
        finally:
            made.close()

    await asyncio.gather(*(one() for _ in range(MANY)))


def _request(line: str, *heads: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *heads, "", ""]).encode()


async def no_heads(client: httpx2.AsyncClient) -> None:
    await _held(client, b"")


async def half_heads(client: httpx2.AsyncClient) -> None:
    await _held(client, b"GET /v1/banks HTTP/1.1\r\nHost: 127.0.0.1\r\n", then=b"X-More: x\r\n")


async def slow_bodies(client: httpx2.AsyncClient) -> None:
    kind = ("Content-Type: application/json", "Content-Length: 60000")
    await _held(client, _request("POST /v1/banks", *kind), then=b" ")


async def slow_forms(client: httpx2.AsyncClient) -> None:
    kind = ("Content-Type: application/x-www-form-urlencoded", "Content-Length: 60000")
    origin = "Origin: http://127.0.0.1"  # in agreement with the host
    await _held(client, _request("POST /login", *kind, origin), then=b"a")


async def unread_files(client: httpx2.AsyncClient) -> None:
    await _held(client, _request("GET /v1/banks/big/versions/latest/export"), reads=False)


async def unread_streams(client: httpx2.AsyncClient) -> None:
    endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 0, "latency_ms": 50}}
    body = {
        "bank": "demo",
        "endpoint": endpoint,
        "stopping": {"score_margin": None, "max_items": 200},
    }
    session = (await client.post("/v1/sessions", json=body)).json()["id"]
    path = f"GET /v1/sessions/{session}/events"
    await _held(client, _request(path, "Accept: text/event-stream"), reads=False)


async def endless_heads(client: httpx2.AsyncClient) -> None:
    await _held(client, b"GET / HTTP/1.1\r\nX-Long: ", then=b"a" * 2**20, pause_s=0.01)


async def endless_trailers(client: httpx2.AsyncClient) -> None:
    kind = "Content-Type: application/json"
    begin = _request("POST /v1/banks", kind, "Transfer-Encoding: chunked")
    await _held(client, begin + b"1\r\n{\r\n0\r\n", then=b"X-Trailer: a\r\n" * 9999, pause_s=0.01)


CONNECTIONS: dict[str, Run] = {
    f"connections: {MANY} without a word": no_heads,
    f"connections: {MANY} heads, a line a second": half_heads,
    f"connections: {MANY} bodies, a byte a second": slow_bodies,
    f"connections: {MANY} forms, a byte a second": slow_forms,
    f"connections: {MANY} files that nobody reads": unread_files,
    f"connections: {MANY} streams that nobody reads": unread_streams,
    f"connections: {MANY} heads without end": endless_heads,
    f"connections: {MANY} trailers without end": endless_trailers,
}
