"""Forbidden addresses in every route that takes an address: each is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request

from app.storage.database import Database
from tests.adapters.test_guard import ALWAYS_REFUSED, PRIVATE
from tests.api.calls import got, listing, posted
from tests.api.conftest import Client, client_of
from tests.api.test_projects import STOPPING, bank_made
from tests.databases import executed
from tests.servers import serving

FIELD = "base_url"
REFUSALS = ("endpoint_address_blocked", "invalid_input")
THROUGH = [
    *({"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}),
    *({"Via": "1.1 proxy"}, {"X-Real-IP": "127.0.0.1"}),
]


def named(schemas: dict[str, Any], part: Any, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Return the names of all fields in a part of an OpenAPI document."""
    if isinstance(part, list):
        for each in part:
            yield from named(schemas, each, seen)
    elif isinstance(part, dict):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in seen:
            yield from named(schemas, schemas[name], seen | {name})
        yield from part.get("properties", {})
        for each in part.values():
            yield from named(schemas, each, seen)


def taking_addresses(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Return method and route of each operation whose body may contain an address."""
    schemas = document["components"]["schemas"]
    return {
        (method.upper(), route)
        for route, operations in document["paths"].items()
        for method, operation in operations.items()
        if any(
            any(part in name for part in ("url", "uri", "host", "address"))
            for name in named(schemas, operation.get("requestBody", {}))
        )
    }


async def bodies(client: Client, database: Database) -> dict[tuple[str, str], tuple[str, Any]]:
    """Return path and body of a request to each such operation, valid except for its address."""
    await bank_made(client, "exam")
    item = (await listing(client, "/v1/banks/exam/items"))[0]["id"]
    simulated = {"kind": "scripted", "model": "m", "options": {"theta": 1}}
    other = {"kind": "scripted", "model": "n", "options": {"theta": 0}}
    saved = {"kind": "openai_chat", "base_url": "http://203.0.113.9/v1", "model": "m"}
    kept = await posted(client, "/v1/endpoints", {**saved, "name": "kept"})
    asking = {"bank": "exam", "min_items": 1}
    rivals = [{"endpoint": simulated}, {"endpoint": other}]
    ranking = await posted(client, "/v1/rankings", {**asking, "endpoints": rivals})
    ended = "UPDATE rankings SET status = 'completed', summary = '{\"order\": []}'"
    await executed(database, ended)
    endpoint = {"kind": "openai_chat", FIELD: "", "model": "m"}
    session = {"bank": "exam", "endpoint": endpoint, "stopping": STOPPING}
    return {
        ("POST", "/v1/endpoints"): ("/v1/endpoints", {**endpoint, "name": "forged"}),
        ("PATCH", "/v1/endpoints/{endpoint_id}"): (f"/v1/endpoints/{kept['id']}", {FIELD: ""}),
        ("POST", "/v1/sessions"): ("/v1/sessions", session),
        ("POST", "/v1/gates"): ("/v1/gates", {"session": session, "threshold": 0.0}),
        ("POST", "/v1/webhooks"): ("/v1/webhooks", {"url": "", "secret": f"whsec_{'A' * 44}"}),
        ("POST", "/v1/rankings"): (
            "/v1/rankings",
            {**asking, "endpoints": [{"endpoint": endpoint}, {"endpoint": simulated}]},
        ),
        ("POST", "/v1/rankings/{ranking_id}:join"): (
            f"/v1/rankings/{ranking['id']}:join",
            {"endpoint": endpoint},
        ),
        ("POST", "/v1/banks/{bank}/items/{item}:preview"): (
            f"/v1/banks/exam/items/{item}:preview",
            {"endpoint": endpoint, "send": True},
        ),
    }


def with_address(body: Any, url: str) -> Any:
    """Return the body with the address filled in."""
    if isinstance(body, list):
        return [with_address(each, url) for each in body]
    if isinstance(body, dict):
        return {
            name: url if name in (FIELD, "url") else with_address(each, url)
            for name, each in body.items()
        }
    return body


async def test_no_route_takes_forged_addresses(
    app: FastAPI, client: Client, database: Database
) -> None:
    known = await bodies(client, database)
    document = await got(client, "/openapi.json")
    assert taking_addresses(document) == set(known), "say here how each of these is asked"
    before = await got(client, "/v1/endpoints")
    asked = 0
    async with client_of(app, address="198.51.100.7") as far:
        far.headers["Authorization"] = client.headers["Authorization"]
        ways: list[tuple[Client, dict[str, str], list[str]]] = [
            (client, {}, ALWAYS_REFUSED),
            (client, THROUGH[0], [*ALWAYS_REFUSED, *PRIVATE]),
            *((client, through, PRIVATE[::6]) for through in THROUGH[1:]),
            (far, {}, PRIVATE[::6]),
        ]
        for (method, route), (path, body) in known.items():
            every = 1 if route == "/v1/endpoints" else 10
            for sender, headers, addresses in ways:
                for address in addresses[::every]:
                    host = f"[{address}]" if ":" in address else address
                    answer = await sender.request(
                        method,
                        path,
                        json=with_address(body, f"http://{host}/v1"),
                        headers={"If-Match": '"1"', **headers},
                    )
                    said = (route, address, headers, answer.text)
                    assert answer.status_code == 422, said
                    assert answer.json()["code"] in REFUSALS, said
                    asked += 1
    assert asked > 150
    assert await got(client, "/v1/endpoints") == before


@pytest.fixture
def hits() -> list[str]:
    return []


@pytest.fixture
def port(hits: list[str]) -> Iterator[int]:
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def answer(request: Request) -> dict[str, str]:
        hits.append(request.url.path)
        return {}

    with serving(app) as url:
        yield int(url.rpartition(":")[2])


async def test_far_callers_reach_no_local_names(client: Client, hits: list[str], port: int) -> None:
    """Host names are checked when called: by probes, previews and every scorer that calls."""
    await bank_made(client, "exam")
    item = (await listing(client, "/v1/banks/exam/items"))[0]["id"]
    trial = {"item": {"prompt": "?", "target": ["x"]}, "answer": "y"}
    made = {}
    for kind in ("openai_chat", "callback"):
        body = {
            "name": kind,
            "kind": kind,
            "base_url": f"http://localhost:{port}/v1",
            "model": "m" if kind != "callback" else "",
            "api_key": "key-of-the-hook",
            "retry": {"max_attempts": 1},
        }
        made[kind] = await posted(client, "/v1/endpoints", body)
    calls: list[tuple[str, Any]] = [
        (f"/v1/endpoints/{made['openai_chat']['id']}:probe", None),
        (
            f"/v1/banks/exam/items/{item}:preview",
            {"endpoint_id": made["openai_chat"]["id"], "send": True},
        ),
        ("/v1/scorers/judge:test", {**trial, "params": {"judges": ["openai_chat"]}}),
        ("/v1/scorers/embedding:test", {**trial, "params": {"endpoint": "openai_chat"}}),
        ("/v1/scorers/callback:test", {**trial, "params": {"endpoint": "callback"}}),
    ]
    for path, body in calls:
        for through in THROUGH:
            answer = await client.post(path, json=body, headers=through)
            assert "_address_blocked" in answer.text, (path, answer.text)
    assert hits == []
    for path, body in calls:
        await client.post(path, json=body)
    assert len(hits) >= len(calls)  # callers on this machine get the calls made
