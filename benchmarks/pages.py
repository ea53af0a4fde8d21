"""Response times of pages on a full server: first byte and size of each, one after another.

A server process with its worker on an embedded Postgres; a bank of 5,600 items; one session of a
scripted model, stored a thousand times with all its answers, so that each of its items has a
thousand. Then one page of each kind that links lead to is requested 21 times: median, minimum (the
time on an idle machine) and maximum of the time to its first byte, and its size with scripts and
styles, as a browser with an empty cache loads them.

    uv run python benchmarks/pages.py [--sessions 1000] [--items 5600]
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import tempfile
import time
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from service import ROOT, Checkout

from app.storage.embedded import EmbeddedPostgres
from sextant_client import AsyncSextant

CALLS = 21
#: Items of the session.
ASKED = 30
PREPARE = """
import asyncio, sys
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from app.storage.migrate import upgrade

async def prepare(url):
    database = Database(url)
    _, secret = await ApiKeyService(database).create(name="bench", scopes=["admin"])
    await database.dispose()
    print(secret)

upgrade(sys.argv[1])
asyncio.run(prepare(sys.argv[1]))
"""
#: Copies of a row, each with another id and the id of another session.
COPIES = """
INSERT INTO {table} SELECT (jsonb_populate_record(old, jsonb_build_object(
    '{id}', left(old.{id}, 4) || lpad(n::text, 26, '0')))).*
FROM {table} old, generate_series(1, %s) n WHERE old.{id} = %s
"""
_LINK = re.compile(r'href="(/[^"]*)"')
_LOADED = re.compile(r'(?:src|href)="(/static/[^"]*)"')


async def fill(client: AsyncSextant, n_items: int) -> str:
    """Create the bank, an endpoint, and an ended session; return its id."""
    lines = [
        json.dumps({"key": f"q{n}", "prompt": f"What is {n} + {n}?", "target": str(2 * n)})
        for n in range(n_items)
    ]
    rows = [f"q{n},{1 + n % 7 / 7:.3f},{-3 + 6 * n / n_items:.4f},0.1,1" for n in range(n_items)]
    await client.request("POST", "/v1/banks", json={"name": "large"})
    body = {
        "items": {"content": "\n".join(lines)},
        "parameters": {"content": "\n".join(["item,a,b,c,d", *rows])},
    }
    await client.request("POST", "/v1/banks/large/imports", json=body)
    endpoint = {"name": "scripted", "kind": "scripted", "model": "m", "options": {"theta": 0.5}}
    saved = await client.request("POST", "/v1/endpoints", json=endpoint)
    design = {"stopping": {"score_margin": None, "max_items": ASKED}, "endpoint_id": saved["id"]}
    session = await client.request("POST", "/v1/sessions", json={"bank": "large", **design})
    while session["finished_at"] is None:
        await asyncio.sleep(0.2)
        session = await client.request("GET", f"/v1/sessions/{session['id']}")
    assert session["status"] == "completed", session
    return str(session["id"])


def copy(url: str, session: str, times: int) -> None:
    """Store the session and its answers this many times more."""
    plain = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain) as database:
        for table, column in (("sessions", "id"), ("administrations", "session_id")):
            database.execute(COPIES.format(table=table, id=column), (times, session))  # type: ignore[arg-type]  # fixed names
        database.execute("ANALYZE")


def log_in(browser: httpx2.Client, key: str) -> None:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', browser.get("/login").text)
    assert found
    fields = {"csrf": found[1], "key": key, "next": "/"}
    sent = browser.post(
        "/login", data=fields, headers={"Origin": str(browser.base_url).rstrip("/")}
    )
    assert sent.status_code == 303, sent.text


def kinds(browser: httpx2.Client, begin: list[str]) -> list[str]:
    """Return a page of each kind that links lead to."""
    waiting, seen, found = list(begin), set(begin), []
    known: set[str] = set()
    while waiting:
        path = waiting.pop(0)
        kind = re.sub(r"[a-z]{3}_[0-9a-z]{26}|=[^&]*|[0-9]+", "*", path)
        if kind in known or path.startswith(("/static", "/openapi")) or "/live" in path:
            continue
        answer = browser.get(path)
        if answer.status_code != 200 or "text/html" not in answer.headers["content-type"]:
            continue
        known.add(kind)
        found.append(path)
        for link in map(unescape, _LINK.findall(answer.text)):
            bare = link.partition("#")[0]
            if bare not in seen:
                seen.add(bare)
                waiting.append(bare)
    return found


def first_byte_ms(browser: httpx2.Client, path: str) -> float:
    before = time.perf_counter()
    with browser.stream("GET", path) as answer:
        blocks = answer.iter_raw()
        next(blocks)
        taken = time.perf_counter() - before
        for _ in blocks:
            pass  # so that the connection can be reused
    return 1000 * taken


def kilobytes(browser: httpx2.Client, path: str) -> float:
    """Return the size of a page with all that it loads, uncompressed."""
    page = browser.get(path)
    loaded = set(map(unescape, _LOADED.findall(page.text)))
    return (len(page.content) + sum(len(browser.get(one).content) for one in loaded)) / 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--items", type=int, default=5600)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        Path(name).chmod(0o755)  # Postgres may run as somebody else
        postgres = stack.enter_context(EmbeddedPostgres(Path(name) / "postgres"))
        checkout = Checkout("pages", ROOT, postgres.url, Path(name))
        key = checkout.run("-c", PREPARE, postgres.url)
        with checkout.process("serve", until="Sextant listens on") as (_, line):
            base_url = line.split()[3]

            async def filled() -> str:
                async with AsyncSextant(
                    base_url, key, http=httpx2.AsyncClient(timeout=None)
                ) as client:
                    return await fill(client, given.items)

            session = asyncio.run(filled())
            copy(postgres.url, session, given.sessions - 1)
            with httpx2.Client(base_url=base_url, timeout=60) as browser:
                log_in(browser, key)
                begin = [
                    "/",
                    f"/sessions/{session}",
                    f"/sessions/{session}/steps/1",
                    "/sessions/new",
                ]
                shown: list[dict[str, Any]] = []
                for path in kinds(browser, begin):
                    times = [first_byte_ms(browser, path) for _ in range(CALLS)]
                    shown.append(
                        {
                            "page": path,
                            "ms": statistics.median(times),
                            "least_ms": min(times),
                            "most_ms": max(times),
                            "kb": kilobytes(browser, path),
                        }
                    )
    for one in sorted(shown, key=lambda one: -one["ms"]):
        times_ms = "".join(f"{one[name]:7.1f} ms  " for name in ("ms", "least_ms", "most_ms"))
        print(f"{times_ms}{one['kb']:6.0f} kB  {one['page']}")
    slowest = (max(one[name] for one in shown) for name in ("ms", "least_ms"))
    print("slowest median {:.0f} ms, slowest shortest {:.0f} ms, ".format(*slowest), end="")
    print(f"of {len(shown)} pages")


if __name__ == "__main__":
    main()
