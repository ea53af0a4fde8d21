"""Connections that give nothing for the place they hold are ended; others notice nothing."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
import uvicorn
import uvloop
from typing_extensions import override

from app.api import connections
from app.api.connections import TAKEN_ON, BoundedConnection, end_stuck, listening
from app.api.secure import SECURE
from tests.test_confined import until

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what is asked for: `/large` more than fits between two machines."""
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(400 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": b"." * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Server(uvicorn.Server):
    @override
    async def on_tick(self, counter: int) -> bool:
        end_stuck(self.server_state.connections)
        return await super().on_tick(counter)


class Place:
    """A server, and connections to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[asyncio.StreamWriter] = []

    async def connect(self, sent: bytes = b"") -> Opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._open.append(writer)
        writer.write(sent)
        return reader, writer

    async def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()


class Strict(BoundedConnection):
    most_from_one = 20


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "WRITE_S", 0.3)
    config = uvicorn.Config(app, http=Strict, lifespan="off", port=0, log_config=None)
    server = Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    there = Place(server.servers[0].sockets[0].getsockname()[1])
    yield there
    await there.close()
    server.should_exit = True
    await task
    assert not Strict.open_from


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the server ended the connection."""
    async with asyncio.timeout(240):
        try:
            return await reader.read(-1)
        except ConnectionError:
            return b""


def is_secure(answer: bytes) -> bool:
    """Whether an answer tells browsers what every one does."""
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return {f"{name.lower()}: {value}" for name, value in SECURE.items()} <= set(lines)


ASKS = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"GET / HTTP/1.1\r\nX-Half: ", b"GET /" + b"a" * 1000],
    ids=["nothing", "blank", "header", "line"],
)
async def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(
    place: Place, sent: bytes
) -> None:
    reader, _ = await place.connect(sent)
    assert await ended(reader) == b""


async def test_nor_is_that_of_a_second_request(place: Place) -> None:
    reader, writer = await place.connect(ASKS)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    writer.write(b"GET / HTTP")
    assert (await ended(reader)).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nX-Long: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["head", "trailer", "extension"],
)
async def test_what_is_no_body_may_not_grow_without_end(place: Place, begin: bytes) -> None:
    reader, writer = await place.connect(begin)

    async def flood() -> None:
        while True:
            writer.write(b"a" * 8192)
            await writer.drain()
            await asyncio.sleep(0)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(flood(), 60)
    assert await ended(reader) == b""


async def test_headers_are_counted(place: Place) -> None:
    many = b"".join(b"X-%d: y\r\n" % n for n in range(300))
    reader, _ = await place.connect(b"GET / HTTP/1.1\r\n" + many + b"\r\n")
    told = await ended(reader)
    assert told.startswith(b"HTTP/1.1 400 ")
    assert is_secure(told)


async def test_an_answer_that_nobody_reads_is_given_up(place: Place) -> None:
    reader, _ = await place.connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: bool(Strict.open_from))
    await until(lambda: not Strict.open_from)  # though nothing is read
    assert len(await ended(reader)) < 400 * 65_536


async def test_of_one_address_so_many_are_let_in_and_the_others_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 60.0)
    held = [await place.connect() for _ in range(20)]
    refused, _ = await place.connect()
    told = await ended(refused)
    assert told.startswith(b"HTTP/1.1 503 ")
    assert is_secure(told)
    monkeypatch.setattr(Strict, "proxies", (ip_network("127.0.0.0/8"),))
    through, _ = await place.connect(ASKS)
    assert (await through.readline()).startswith(b"HTTP/1.1 200 ")
    held[0][1].transport.abort()


def test_connections_that_come_at_once_are_taken_on_together() -> None:
    n = 4 * TAKEN_ON

    async def passes_until_all_are_taken_on(stack: contextlib.ExitStack) -> int:
        made = 0

        class Counted(asyncio.Protocol):
            @override
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                nonlocal made
                made += 1

        bound = socket.create_server(("127.0.0.1", 0), backlog=n)
        loop = asyncio.get_running_loop()
        for listener in listening(bound):
            server = await loop.create_server(Counted, sock=listener, backlog=n)
            stack.callback(server.close)
        for _ in range(n):
            stack.enter_context(socket.create_connection(bound.getsockname()))
        passes = 0
        while made < n:
            await asyncio.sleep(0)
            passes += 1
        return passes

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        contextlib.ExitStack() as stack,
    ):
        assert runner.run(passes_until_all_are_taken_on(stack)) < n
