"""Small files that expand to large ones: refused in a sentence, while other clients are served."""

import asyncio
import base64
from typing import Any

import httpx2

from app.sandbox.pool import SMALL_MEMORY, Limits, sandbox
from app.services.responses.confined_reading import scan_sent_lines
from benchmarks.bombs import BOMBS, Bomb
from tests.api.calls import got
from tests.api.conftest import Client

#: One of each way to expand; `benchmarks/attacks.py` sends them all.
_ANSWERS = (
    "rows of another length",
    "cells that are no scores",
    "sparse long table",
    "names of 10 MB",
    "Parquet of long texts",
    "Parquet of nested lists",
    "samples of one log",
    "entries that lie about their size",
    "a list of lists",
)
_ITEMS = (
    "lines that are no items",
    "unknown fields",
    "rows that are no parameters",
    "lines without end",
)
#: A file read to its end reports at most one fault per row.
_SHORTER = {
    "rows that are no parameters": Bomb(
        "parameters", "p.csv", lambda: b"item,a,b\n" + b"x,y,z\n" * 60_000
    )
}


async def send(client: Client, bomb: Bomb) -> httpx2.Response:
    content = bomb.make()
    match bomb.route:
        case "answers":
            encoded = base64.b64encode(content).decode()
            body: Any = {"files": [{"name": bomb.filename, "content_base64": encoded}]}
            return await client.post("/v1/response-sets/arc/imports", json=body, timeout=300)
        case "lines":
            headers = {"Content-Type": "application/x-ndjson"}
            url = "/v1/banks/sums/items:batch"
            return await client.post(url, content=content, headers=headers, timeout=300)
        case route:
            body = {route: {"name": bomb.filename, "content": content.decode()}}
            return await client.post("/v1/banks/sums/imports", json=body, timeout=300)


def assert_refused(response: httpx2.Response) -> None:
    assert response.status_code == 422, response.text[:500]
    problem = response.json()
    assert len(problem["detail"]) < 1500
    assert problem["detail"].rstrip().endswith(".")
    assert len(problem["errors"]) <= 100
    assert len(response.content) < 100_000


async def test_a_bomb_is_refused_and_nothing_is_stored(client: Client) -> None:
    await client.post("/v1/response-sets", json={"name": "arc"})
    for name in _ANSWERS:
        assert_refused(await send(client, BOMBS[name]))
        found = await got(client, "/v1/response-sets/arc")
        assert (found["n_examinees"], found["n_items"], found["revision"]) == (0, 0, 1), name


async def test_items_are_read_within_limits_too(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "sums"})
    for name in _ITEMS:
        assert_refused(await send(client, _SHORTER.get(name, BOMBS[name])))
        assert (await got(client, "/v1/banks/sums"))["n_items"] == 0, name


async def test_others_are_served_while_a_bomb_is_read(client: Client) -> None:
    await client.post("/v1/response-sets", json={"name": "arc"})
    attack = asyncio.create_task(send(client, BOMBS["rows without end"]))
    await asyncio.sleep(0)
    assert (await client.get("/healthz")).status_code == 200
    assert not attack.done()
    assert_refused(await attack)


async def test_small_files_come_in_while_a_large_one_is_read(client: Client) -> None:
    await client.post("/v1/response-sets", json={"name": "arc"})
    small = {"files": [{"name": "s.csv", "content": "model,q1\nm,1\n"}]}
    large = Limits(memory=SMALL_MEMORY + 1)
    async with sandbox().made(scan_sent_lines, 1, [b""], limits=large, subject="", advice=""):
        response = await client.post("/v1/response-sets/arc/imports", json=small)
    assert response.status_code == 201, response.text


async def test_a_body_reports_its_first_hundred_faults(client: Client) -> None:
    body = {"name": "x", "metadata": {f"k{n}\0": "v" for n in range(10)}} | {
        f"unknown{n}": 1 for n in range(150)
    }
    response = await client.post("/v1/response-sets", json=body)
    assert response.status_code == 422
    assert len(response.json()["errors"]) <= 100
    many = {"name": "x"} | {f"unknown{n}": 1 for n in range(100_000)}
    response = await client.post("/v1/response-sets", json=many)
    assert response.status_code in {413, 422}
    assert len(response.content) < 2000
