"""Hostile requests, and small files that expand to large ones: others are answered meanwhile."""

import asyncio
import base64
import copy
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect

from app.api import bodies
from app.api.bodies import Body
from app.api.disconnects import entered_while_connected
from app.api.rates import READ_AT_A_TIME
from app.errors import BusyError, NotFoundError
from app.fair_semaphore import FairSemaphore
from app.sandbox.pool import SMALL_MEMORY, Limits, sandbox
from app.services.responses.confined_reading import scan_sent_lines
from benchmarks.bombs import BOMBS, Bomb
from tests.api.calls import got
from tests.api.conftest import Client, NewClient
from tests.api.test_problems import assert_problem
from tests.demo_bank import install_demo_bank
from tests.test_sandbox import until

HANGING = {"pattern": r"(x+x+)+y", "timeout_s": 30}
WIDE = {"pattern": "[!-\uffff]" * 200, "ignore_case": True}
LONG = ["word " * 2000] * 100


def trial(params: object, answer: str = "x" * 60, target: object = ("a",)) -> dict[str, object]:
    return {"item": {"target": list(target)}, "answer": answer, "params": params}  # type: ignore[call-overload]  # any iterable


@pytest.mark.parametrize(
    ("scorer", "body"),
    [
        ("pattern", trial(WIDE)),
        ("differential", trial({"incorrect": LONG}, "word " * 90_000, LONG)),
        ("readability", trial({}, "\n" * 60_000 + "a")),
    ],
    ids=["compile", "alignment", "long answer"],
)
async def test_trials_delay_no_others(client: Client, scorer: str, body: dict[str, object]) -> None:
    attack = asyncio.create_task(client.post(f"/v1/scorers/{scorer}:test", json=body))
    for _ in range(3):
        assert (await client.get("/healthz")).status_code == 200
    assert not attack.done()
    assert (await attack).status_code in (200, 422)


async def test_others_are_answered_while_a_trial_hangs(client: Client) -> None:
    attack = asyncio.create_task(client.post("/v1/scorers/pattern:test", json=trial(HANGING)))
    for _ in range(3):
        assert (await client.get("/healthz")).status_code == 200
    assert not attack.done()
    attack.cancel()
    await asyncio.gather(attack, return_exceptions=True)


async def test_trials_beyond_the_queue_are_refused_with_retry_after(client: Client) -> None:
    attacks = [
        asyncio.create_task(client.post("/v1/scorers/pattern:test", json=trial(HANGING)))
        for _ in range(8)
    ]
    answers = asyncio.as_completed(attacks)
    while (refused := await next(answers)).status_code != 503:
        pass
    assert_problem(refused, 503, "busy")
    assert refused.headers["retry-after"]
    for attack in attacks:
        attack.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)


async def test_bodies_are_small_where_the_route_says_nothing_else(client: Client) -> None:
    content = b'{"name": "' + b"a" * 65_536 + b'"}'
    kind = {"content-type": "application/json"}
    response = await client.post("/v1/endpoints", content=content, headers=kind)
    assert_problem(response, 413, "body_too_large")
    schema = await got(client, "/openapi.json")
    limits = {
        operation.get("x-max-body-bytes")
        for path in schema["paths"].values()
        for operation in path.values()
        if "requestBody" in operation
    }
    assert limits == {65_536, 8 * 2**20, 16 * 2**20}


async def test_a_large_body_is_validated_up_to_its_first_faults(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "sums"})
    rows = [{"key": f"q{i}", "b": 0.1} for i in range(3000)]
    rows[2100] = {"key": 7, "b": 0.1}
    response = await client.post("/v1/banks/sums/versions", json={"parameters": rows})
    assert_problem(response, 422, "invalid_input")
    assert response.json()["errors"][0]["pointer"] == "/parameters/2100/key"


async def test_a_body_of_a_million_values_is_refused(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "sums"})
    content = b'{"parameters":[' + b"0," * 700_000 + b"0]}"
    kind = {"content-type": "application/json"}
    response = await client.post("/v1/banks/sums/versions", content=content, headers=kind)
    assert_problem(response, 413, "body_too_large")


async def test_large_imports_take_turns_and_small_ones_go_on(app: FastAPI, client: Client) -> None:
    banks = app.state.services.banks
    for name in ("sums", "rows", "other"):
        await client.post("/v1/banks", json={"name": name})
    content = "item,a,b\n" + "".join(f"i{i},1,{i % 600 / 100 - 3}\n" for i in range(20_000))
    file = {"parameters": {"name": "p.csv", "content": content}, "dry_run": True}
    rows = {"parameters": [{"key": f"q{i}", "b": 0.1} for i in range(6000)]}
    async with banks.turn(None):
        large = [
            asyncio.create_task(client.post("/v1/banks/sums/imports", json=file)),
            asyncio.create_task(client.post("/v1/banks/rows/versions", json=rows)),
        ]
        await until(lambda: banks._large.n_waiting == 2)
        small = {"parameters": rows["parameters"][:3]}
        assert (await client.post("/v1/banks/other/versions", json=small)).status_code == 201
    assert [answer.status_code for answer in await asyncio.gather(*large)] == [200, 201]


async def test_a_client_that_disconnects_leaves_the_queue() -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    lane = FairSemaphore(1)
    async with lane.turn():
        with pytest.raises(ClientDisconnect):
            async with entered_while_connected(Request({"type": "http"}, gone), lane.turn()):
                pytest.fail("it was not its turn")
        assert lane.n_waiting == 0
    async with lane.turn():
        assert lane.n_waiting == 0


async def test_concurrent_reads_of_one_key_are_limited_and_others_do_not_wait(
    app: FastAPI, client_with: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = 0, asyncio.Event()

    async def slow(*_: object) -> None:
        nonlocal begun
        begun += 1
        await release.wait()
        raise NotFoundError("bank", "none")

    monkeypatch.setattr(app.state.services.banks, "get_bank", slow)
    greedy, other = await client_with("read"), await client_with("read")
    asked = [asyncio.create_task(greedy.get("/v1/banks/none")) for _ in range(READ_AT_A_TIME + 3)]
    await until(lambda: begun == READ_AT_A_TIME)
    assert (await other.get("/v1/banks")).status_code == 200
    assert begun == READ_AT_A_TIME
    release.set()
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {404}
    assert begun == READ_AT_A_TIME + 3


async def test_a_read_without_waiting_clients_is_skipped(
    app: FastAPI, client_with: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> None:
        pytest.fail("it was read")

    monkeypatch.setattr(app.state.services.banks, "get_bank", read)
    headers = (await client_with("read")).headers
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/banks/none",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    received = iter([{"type": "http.request"}, {"type": "http.disconnect"}])
    sent: list[object] = []

    async def receive() -> dict[str, str]:
        return next(received)

    async def send(message: object) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert not sent


async def test_a_body_without_end_times_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 0.05)
    monkeypatch.setattr(bodies, "_SLOWEST", 2**30)

    async def drip() -> AsyncIterator[bytes]:
        yield b'{"name": '
        await asyncio.Event().wait()

    kind = {"content-type": "application/json"}
    async with asyncio.timeout(240):
        response = await client.post("/v1/banks", content=drip(), headers=kind)
    assert_problem(response, 408, "request_timeout")


async def test_one_key_cannot_occupy_all_slots_for_large_bodies() -> None:
    def body(key: str) -> Body:
        sent = {"type": "http.request", "body": b"x" * (16 * 2**20 - 1), "more_body": False}

        async def receive() -> dict[str, object]:
            return sent

        return Body(Request({"type": "http", "headers": []}, receive), bodies.LARGE, key)

    mine = [body("mine") for _ in range(4)]
    theirs = body("theirs")
    try:
        for one in mine[:3]:
            await one.read()
        with pytest.raises(BusyError):
            await mine[3].read()
        await theirs.read()
    finally:
        for one in (*mine, theirs):
            one.release()
    again = body("mine")
    await again.read()
    again.release()


#: Valid JSON, but too large for a float.
ENDLESS = 10**400
DESIGN: dict[str, Any] = {
    "stopping": {"se": 0.3, "min_items": 1, "max_items": 5, "cut_score": 0.5, "theta_change": 0.1},
    "estimator": {"prior_mean": 0.0, "prior_sd": 1.0, "range": [-4.0, 4.0], "nodes": 61},
    "selection": {"top_k": 1, "exposure": {"max_rate": 0.5}, "cost_weight": 0.0},
    "failures": {"max_consecutive": 5, "max_share": 0.5},
    "concurrency": 1,
    "seed": 1,
}
SCRIPTED = {"theta": 0.5, "seed": 1, "latency_ms": 3, "skills": {"a": 1.0}}
ITEM = {"prompt": "?", "target": ["4"]}
#: Numbers that no example of the API's description has.
NUMBERS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/sessions", {"mode": "manual", "bank": "demo", "pretest": {"items_per_session": 0}}),
    ("/v1/sessions", {"mode": "manual", "bank": "demo", **DESIGN}),
    ("/v1/simulations", {"bank": "demo", "n_examinees": 5, "thetas": [0.0, 1.0], **DESIGN}),
    ("/v1/endpoints", {"name": "e", "kind": "scripted", "options": SCRIPTED, "timeout_s": 1.0}),
    ("/v1/scorers/numeric:test", {"item": ITEM, "answer": "4", "params": {"abs_tol": 0.1}}),
    ("/v1/scorers/closeness:test", {"item": ITEM, "answer": "4", "params": {"abs_limit": 0.1}}),
]


def with_one_endless(value: Any) -> Iterator[Any]:
    """Yield copies of `value`, each with one of its numbers replaced by an infinite one."""
    if isinstance(value, bool) or not isinstance(value, dict | list | int | float):
        return
    if isinstance(value, int | float):
        yield ENDLESS
        yield -ENDLESS
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        for changed in with_one_endless(value[key]):
            whole = copy.copy(value)
            whole[key] = changed
            yield whole


def examples(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield path and body of each example in the description of the API."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = sent.get("schema", {}).get("$ref", "").rpartition("/")[2]
            for body in document["components"]["schemas"].get(name, {}).get("examples", ()):
                yield re.sub("{.*?}", "demo", path), body


async def test_no_infinite_number_in_a_body_gives_a_500(app: FastAPI, client: Client) -> None:
    await install_demo_bank(app.state.services.database)
    paths, kind = set(), {"Content-Type": "application/json"}
    for path, body in [*NUMBERS, *examples(await got(client, "/openapi.json"))]:
        for changed in with_one_endless(body):
            answer = await client.post(path, content=json.dumps(changed), headers=kind)
            assert answer.status_code < 500, (path, answer.text)
            paths.add(path)
    assert len(paths) > 10


async def test_no_infinite_number_in_a_query_gives_a_500(client: Client) -> None:
    for path in ("/v1/endpoints", "/v1/sessions", "/v1/banks", "/v1/rankings", "/v1/api-keys"):
        for number in (str(ENDLESS), "9" * 5000, "1e400", "nan"):
            answer = await client.get(path, params={"limit": number})
            assert answer.status_code == 422, (path, answer.text)


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
