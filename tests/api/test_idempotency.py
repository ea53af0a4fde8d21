"""Idempotency: a repeated creating call gets the first response and creates nothing."""

import asyncio
from typing import Any

import pytest

from app.api import idempotency as module
from app.services.endpoints.service import EndpointService
from app.storage.database import Database
from app.storage.repositories.idempotency import IdempotencyRepository
from tests.api.calls import got, listing, refusal_of
from tests.api.conftest import Client, NewClient
from tests.databases import executed

NEW = {"name": "a", "kind": "scripted"}
KEY = {"Idempotency-Key": "7f3e"}


async def count(client: Client) -> int:
    return len(await listing(client, "/v1/endpoints"))


async def test_a_repeat_gets_the_first_answer_and_creates_nothing(client: Client) -> None:
    first = await client.post("/v1/endpoints", json=NEW, headers=KEY)
    again = await client.post("/v1/endpoints", json=NEW, headers=KEY)
    assert first.status_code == again.status_code == 201
    assert again.content == first.content
    for header in ("location", "etag", "content-type"):
        assert again.headers[header] == first.headers[header]
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert await count(client) == 1


async def test_every_call_that_creates_takes_a_key(client: Client) -> None:
    paths = (await got(client, "/openapi.json"))["paths"]
    for path, operation in ((p, of["post"]) for p, of in paths.items() if "post" in of):
        if {"201", "202"} & set(operation["responses"]):
            key = {"$ref": "#/components/parameters/Idempotency-Key"}
            assert key in operation["parameters"], path


async def test_without_a_key_each_call_stands_alone(client: Client) -> None:
    assert (await client.post("/v1/endpoints", json=NEW)).status_code == 201
    assert (await client.post("/v1/endpoints", json=NEW)).status_code == 409


async def test_the_same_key_with_another_body_or_resource_is_refused(client: Client) -> None:
    await client.post("/v1/endpoints", json=NEW, headers=KEY)
    for path, body in (
        ("/v1/endpoints", NEW | {"name": "b"}),
        ("/v1/api-keys", {"name": "a", "scopes": ["read"]}),
    ):
        refused = client.post(path, json=body, headers=KEY)
        await refusal_of(refused, 422, "idempotency_mismatch")
    assert await count(client) == 1


async def test_two_callers_may_use_the_same_key(client_with: NewClient) -> None:
    one, other = await client_with("admin"), await client_with("admin")
    assert (await one.post("/v1/endpoints", json=NEW, headers=KEY)).status_code == 201
    second = await other.post("/v1/endpoints", json=NEW | {"name": "b"}, headers=KEY)
    assert second.status_code == 201
    assert "idempotent-replayed" not in second.headers


async def test_a_failed_call_may_be_corrected_under_the_same_key(client: Client) -> None:
    for kind in (1, "unheard_of", "openai_chat"):
        await refusal_of(client.post("/v1/endpoints", json=NEW | {"kind": kind}, headers=KEY))
    assert (await client.post("/v1/endpoints", json=NEW, headers=KEY)).status_code == 201


async def test_calls_with_the_same_request_id_stay_separate(client_with: NewClient) -> None:
    """A client may use one id for a chain of calls, and another project may use the same id."""
    trace = {"X-Request-Id": "trace-1"}
    one, other = await client_with("admin"), await client_with("admin")
    made = await one.post("/v1/endpoints", json=NEW, headers=trace)
    assert made.status_code == 201
    for _ in range(2):
        refused = other.post("/v1/endpoints", json=NEW, headers={**KEY, **trace})
        assert made.json()["id"] not in str(await refusal_of(refused, 409, "already_exists"))
    renamed = await other.post("/v1/endpoints", json=NEW | {"name": "b"}, headers={**KEY, **trace})
    assert renamed.status_code == 201


async def test_a_crash_leaves_the_key_free(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def crash(*_: object) -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(EndpointService, "create", crash)
        response = await client.post("/v1/endpoints", json=NEW, headers=KEY)
        assert response.status_code == 500
    assert (await client.post("/v1/endpoints", json=NEW, headers=KEY)).status_code == 201


async def test_a_repeat_during_the_first_call_is_refused_however_slow_that_is(
    client: Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ALIVE_S", 0.01)
    started, go_on = asyncio.Event(), asyncio.Event()
    create, keep_alive = EndpointService.create, IdempotencyRepository.keep_alive
    told = asyncio.Event()

    async def slow(service: EndpointService, spec: Any) -> Any:
        started.set()
        await go_on.wait()
        return await create(service, spec)

    async def alive(keys: IdempotencyRepository, principal: str, key: str) -> None:
        await keep_alive(keys, principal, key)
        told.set()

    monkeypatch.setattr(EndpointService, "create", slow)
    monkeypatch.setattr(IdempotencyRepository, "keep_alive", alive)
    first = asyncio.create_task(client.post("/v1/endpoints", json=NEW, headers=KEY))
    await started.wait()
    aged = "UPDATE idempotency_keys SET created_at = created_at - interval '6 minutes'"
    await executed(database, aged)
    for _ in range(2):  # the first may have been answered before
        told.clear()
        await told.wait()
    async with asyncio.timeout(60):
        again = client.post("/v1/endpoints", json=NEW, headers=KEY)
        await refusal_of(again, 409, "idempotency_in_flight")
    go_on.set()
    assert (await first).status_code == 201
    assert await count(client) == 1


async def test_a_key_that_cannot_be_kept_is_refused(client: Client) -> None:
    for key in (b"", b"x" * 256, "sch\u00f6n".encode()):
        headers = {b"Idempotency-Key": key}
        refused = client.post("/v1/endpoints", json=NEW, headers=headers)
        await refusal_of(refused, at="/header/Idempotency-Key")
        assert await count(client) == 0


async def test_a_secret_that_is_shown_once_is_not_kept_readable(
    client: Client, database: Database
) -> None:
    body = {"name": "ci", "scopes": ["read"]}
    created = await client.post("/v1/api-keys", json=body, headers=KEY)
    secret = created.json()["secret"]
    rows = await executed(database, "SELECT * FROM idempotency_keys")
    assert len(rows) == 1
    assert secret not in str(rows)
    again = await client.post("/v1/api-keys", json=body, headers=KEY)
    assert again.json()["secret"] == secret
