"""Hostile requests about projects, the audit trail, the catalogue, results and pages."""

import asyncio
import base64
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache

import httpx2

Client = httpx2.AsyncClient
Run = Callable[[Client], Awaitable[object]]
_JSON = {"content-type": "application/json"}


def sending(path: str, make: Callable[[], object]) -> Run:
    async def run(client: Client) -> object:
        return await client.post(path, json=make())

    return run


def many(*paths: str, n: int = 100) -> Run:
    """Send so many requests at once; return the last response."""

    async def run(client: Client) -> object:
        asked = [client.get(paths[at % len(paths)]) for at in range(n)]
        return (await asyncio.gather(*asked))[-1]

    return run


@cache
def bomb() -> str:
    """Return a gigabyte of blanks, compressed."""
    packed = gzip.compress(b" " * 2**26, 9) * 16
    return base64.b64encode(packed).decode()


def results(content: str, name: str = "m/samples_t_2026-01-01T00-00-00.jsonl") -> Run:
    return sending(
        "/v1/banks:from-results",
        lambda: {"name": f"r{time.monotonic_ns()}", "files": [{"name": name, "content": content}]},
    )


def packed_results() -> object:
    file = {"name": "m/samples_t_2026-01-01T00-00-00.jsonl.gz", "content_base64": bomb()}
    return {"name": f"r{time.monotonic_ns()}", "files": [file] * 4}


def guesses() -> object:
    lines = [
        json.dumps({"key": f"q{n}", "prompt": "?", "target": "x", "difficulty": n % 5})
        for n in range(100_000)
    ]
    file = {"name": "items.jsonl", "content": "\n".join(lines)}
    return {"items": file, "provisional": True, "dry_run": True}


def unknown_items() -> object:
    return {
        "keys": [8 * f"k{n}" for n in range(10_000)],
        "content_hashes": [f"{n:064x}" for n in range(10_000)],
    }


async def provisional(client: Client) -> object:
    name = f"own-{time.monotonic_ns()}"
    await client.post("/v1/banks", json={"name": name})
    return await client.post(f"/v1/banks/{name}/imports", json=guesses())


async def projects(client: Client) -> object:
    """Create as many projects as allowed, with the longest words."""
    made = [
        client.post(
            "/v1/projects",
            json={"name": f"p{time.monotonic_ns()}-{n}", "description": "d" * 2000},
        )
        for n in range(200)
    ]
    await asyncio.gather(*made)
    return await client.get("/v1/projects?limit=1000")


async def keys(client: Client) -> object:
    """Change limits of keys repeatedly while their usage is read."""
    made = await asyncio.gather(
        *(
            client.post("/v1/api-keys", json={"name": "k", "scopes": ["run"], "limits": limits})
            for limits in ({}, {"usd_per_day": 1}, {"stored_bytes": 1e300}, {"tokens_per_day": -1})
            for _ in range(25)
        )
    )
    paths = [answer.headers["location"] for answer in made if answer.status_code == 201]
    changes = ({"open_sessions": 0}, {"usd_per_day": None}, {"requests_per_s": 1e-9}, {"x": 1})
    asked = [
        *(client.patch(path, json={"limits": limits}) for path in paths for limits in changes),
        *(client.get(f"{path}/spend") for path in paths),
    ]
    return (await asyncio.gather(*asked))[-1]


async def installs(client: Client) -> object:
    names = ("../../etc/passwd", "%2e%2e%2fsecret.key", "x" * 2000, "\u0000", "gsm8k\r\nX: y")
    asked = [client.post(f"/v1/catalog/{name}:install", json={}) for name in names * 20]
    return (await asyncio.gather(*asked, return_exceptions=True))[-1]


async def stalled(client: Client) -> object:
    async def upload() -> AsyncIterator[bytes]:
        yield b" " * 15 * 2**20
        await asyncio.Event().wait()

    return await client.post("/v1/banks/big/versions", content=upload(), headers=_JSON)


async def a_gigabyte(client: Client) -> object:
    """Act as one of 64 clients that send 16 MB each."""
    return await client.post(
        "/v1/banks/big/imports", content=b" " * (2**24 - 2) + b"{}", headers=_JSON
    )


_DEEP = '{"doc_id": ' + "[" * 100_000
_ROW = '{"doc_id": %d, "target": "4", "resps": [["4"]], "exact_match": 1.0, "arguments": '
_ROW += '{"gen_args_0": {"arg_0": "%d + 2 =", "arg_1": {"until": []}}}}'
_PAGES = (
    *("/banks/big", "/banks/big/versions/latest", "/banks/big/versions/latest/items"),
    *("/banks/big/versions/latest/items?sort=b", "/banks/big/leaderboard", "/sessions"),
)

REQUESTS: dict[str, tuple[Run, int]] = {
    "body: uploads that stall": (stalled, 6),
    "bodies: a gigabyte from 64 clients": (a_gigabyte, 64),
    "results: nested without end": (results(_DEEP), 4),
    "results: a gigabyte, packed, four times": (
        sending("/v1/banks:from-results", packed_results),
        4,
    ),
    "results: 40,000 answers of one model": (
        results("\n".join(_ROW % (n, n) for n in range(40_000))),
        4,
    ),
    "provisional: 100,000 guesses": (provisional, 4),
    "items: 20,000 of which the bank has none": (
        sending("/v1/banks/big/items:match", unknown_items),
        10,
    ),
    "projects: 800 at once": (projects, 4),
    "keys: limits that change": (keys, 4),
    "catalogue: names that are paths": (installs, 4),
    "audit: a hundred exports": (many("/v1/audit/export", "/v1/audit?limit=1000"), 4),
    "spend: a hundred looks": (many("/v1/projects/default/spend"), 4),
    "pages: a hundred of 50,000 items": (many(*_PAGES), 4),
}
