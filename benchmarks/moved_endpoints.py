"""Endpoints whose owner moves them to another server while sessions use them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

Client = httpx2.AsyncClient
_ENDED = {"completed", "failed", "cancelled"}
_N_ITEMS = 5


class Calls(list[str]):
    """The keys of calls; `first` is set with the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()


@asynccontextmanager
async def model(says: str) -> AsyncIterator[tuple[str, Calls]]:
    """Return a server that answers all questions alike: its address, and the keys of its calls."""
    calls = Calls()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.split("content-length:")[1].split("\r\n")[0])
        await reader.readexactly(size)
        calls.append(head.partition("authorization: bearer ")[2].split("\r\n")[0])
        calls.first.set()
        choice = {"message": {"content": says}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 1}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        start = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(f"{start}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", calls


async def saved(client: Client, url: str, **limits: float) -> dict[str, Any]:
    name = f"moved-{time.monotonic_ns()}"
    body = {"name": name, "kind": "openai_chat", "base_url": url, "model": "m", "limits": limits}
    found = await client.post("/v1/endpoints", json={**body, "api_key": "key-of-the-first"})
    found.raise_for_status()
    return dict(found.json())


async def begun(client: Client, endpoint: str) -> str:
    stopping = {"score_margin": None, "min_items": 1, "max_items": _N_ITEMS}
    body = {"bank": "demo", "endpoint_id": endpoint, "stopping": stopping, "concurrency": 1}
    made = await client.post("/v1/sessions", json={**body, "cache": True, "seed": 1})
    made.raise_for_status()
    return str(made.json()["id"])


async def ended(client: Client, session: str) -> dict[str, Any]:
    while True:
        found = (await client.get(f"/v1/sessions/{session}")).json()
        if found["status"] in _ENDED:
            return dict(found)
        await asyncio.sleep(0.2)


def moving(check: Callable[[Client, str, str, list[str]], Awaitable[None]]) -> Any:
    async def run(client: Client) -> None:
        async with model("A") as (url, asked), model("B") as (elsewhere, theirs):
            endpoint = await saved(client, url, rpm=40)
            session = await begun(client, endpoint["id"])
            await asked.first.wait()
            change = {"base_url": elsewhere, "api_key": "key-of-the-other"}
            path, match = f"/v1/endpoints/{endpoint['id']}", {"If-Match": '"1"'}
            (await client.patch(path, json=change, headers=match)).raise_for_status()
            await check(client, session, url, theirs)
            assert set(asked) == {"key-of-the-first"}, asked

    return run


async def is_not_moved(client: Client, session: str, _url: str, theirs: list[str]) -> None:
    found = await ended(client, session)
    assert (found["status"], theirs) == ("failed", []), (found["status"], theirs)


async def is_not_kept(client: Client, session: str, url: str, _theirs: list[str]) -> None:
    await ended(client, session)
    victim = await saved(client, url)
    found = await ended(client, await begun(client, victim["id"]))
    answers = (await client.get(f"/v1/sessions/{found['id']}/responses")).json()["data"]
    assert found["status"] == "completed", found
    assert {answer["answer"] for answer in answers} == {"A"}, answers


MOVES = {
    "endpoints: moved away under a session": moving(is_not_moved),
    "endpoints: moved away, answers kept for others": moving(is_not_kept),
}
