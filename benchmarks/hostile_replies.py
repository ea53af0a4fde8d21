"""Attacks by a model endpoint: sessions that a user starts with their own server.

Each starts thirty sessions at once; the server sends the same reply to every call.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import httpx2

#: End of a connection, and of the attack.
_OVER = (OSError, EOFError, asyncio.CancelledError)
#: Sessions of one attack.
SESSIONS = 30
_BYTES = 4 * 2**20 - 4096

Run = Callable[[httpx2.AsyncClient], Awaitable[object]]


async def _asked(client: httpx2.AsyncClient, reply: bytes, *, marks: list[str]) -> None:
    """Start the sessions, and wait until all have ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_OVER), contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            writer.write_eof()
            await reader.read()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as served:
        port = served.sockets[0].getsockname()[1]
        endpoint = {
            "kind": "openai_chat",
            "model": "m",
            "api_key": "sk-a-key-of-their-own",
            "base_url": f"http://127.0.0.1:{port}/v1",
            "reasoning": {"open": marks[0], "close": marks[1]},
        }
        body = {
            "bank": "demo",
            "endpoint": endpoint,
            "stopping": {"score_margin": None, "max_items": 5},
        }
        made = await asyncio.gather(
            *(client.post("/v1/sessions", json=body) for _ in range(SESSIONS))
        )
        for each in made:
            each.raise_for_status()
        for each in made:
            session = each.json()["id"]
            found: dict[str, str] = {}
            while found.get("status") not in _ENDED:
                await asyncio.sleep(0.5)
                found = (await client.get(f"/v1/sessions/{session}")).json()


_ENDED = {"completed", "failed", "cancelled"}


def _reply(body: bytes, status: str = "200 OK") -> bytes:
    kind = "Content-Type: application/json\r\nConnection: close"
    head = f"HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _full(begin: bytes, unit: bytes, end: bytes) -> bytes:
    return begin + unit * ((_BYTES - len(begin) - len(end)) // len(unit)) + end


def _said(unit: bytes) -> bytes:
    return _reply(_full(b'{"choices":[{"message":{"content":"', unit, b'"}}]}'))


_THINK = ["<think>", "</think>"]
_LISTS = _full(b'{"choices":[', b"[],", b"[]]}")
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_REPLIES: dict[str, tuple[bytes, list[str]]] = {
    "thoughts without end": (_said(b"<think></think>"), _THINK),
    "marks of one letter": (_said(b"ab"), ["a", "b"]),
    "lists": (_reply(_LISTS), _THINK),
    "lists, fewer than are refused": (
        _reply(b'{"choices":[' + b"[]," * 240_000 + b"[]]}"),
        _THINK,
    ),
    "lists in an error": (_reply(_full(b'{"error":[', b"[],", b"[]]}"), "400 Bad Request"), _THINK),
    "words in an error": (_reply(b"a " * (_BYTES // 2), "400 Bad Request"), _THINK),
    "100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n" * 400_000, _THINK),
    "pieces of one byte": (_CHUNKED + b"1\r\n \r\n" * 400_000 + b"0\r\n\r\n", _THINK),
}
REPLIES: dict[str, Run] = {
    f"replies: {name}, {SESSIONS} sessions": partial(_asked, reply=reply, marks=marks)
    for name, (reply, marks) in _REPLIES.items()
}
