"""What all routes keep to: Idempotency-Key, ETag with If-Match, and pages of lists."""

import asyncio
from typing import Any

import pytest
from fastapi import Request

from app.api import idempotency as module
from app.api.etags import etag, is_current, not_modified
from app.services.endpoints.service import EndpointService
from app.storage.database import Database
from app.storage.repositories.idempotency import IdempotencyRepository
from tests.api.calls import got, listing, posted, refusal_of
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


async def test_a_secret_shown_once_is_kept_encrypted(client: Client, database: Database) -> None:
    body = {"name": "ci", "scopes": ["read"]}
    created = await client.post("/v1/api-keys", json=body, headers=KEY)
    secret = created.json()["secret"]
    rows = await executed(database, "SELECT * FROM idempotency_keys")
    assert len(rows) == 1
    assert secret not in str(rows)
    again = await client.post("/v1/api-keys", json=body, headers=KEY)
    assert again.json()["secret"] == secret


async def created(client: Client) -> str:
    response = await client.post("/v1/endpoints", json={"name": "a", "kind": "scripted"})
    assert response.headers["etag"] == '"1"'
    assert response.headers["location"] == f"/v1/endpoints/{response.json()['id']}"
    return response.headers["location"]


async def test_the_second_of_two_changes_to_one_state_is_refused(client: Client) -> None:
    path = await created(client)
    for call in (client.patch(path, json={"name": "b"}), client.delete(path)):
        await refusal_of(call, 428, "precondition_required")
    read = await client.get(path)
    held = {"If-Match": read.headers["etag"]}
    first = await client.patch(path, json={"name": "b"}, headers=held)
    assert first.status_code == 200
    assert first.headers["etag"] == '"2"'
    for call in (
        client.patch(path, json={"name": "c"}, headers=held),
        client.delete(path, headers=held),
    ):
        await refusal_of(call, 412, "precondition_failed")
    assert (await got(client, path))["name"] == "b"


async def test_a_tag_that_is_not_one_of_ours_matches_nothing(client: Client) -> None:
    path = await created(client)
    for tag in ("*", "1", "W/1", '"1", "2"', '"one"', '""', '"' + "9" * 30 + '"'):
        await refusal_of(client.patch(path, json={"name": "b"}, headers={"If-Match": tag}), 412)


@pytest.mark.parametrize(
    ("header", "current"),
    [('"abc"', True), ('"x", W/"abc"', True), ("*", True), ('"x"', False), ("abc", False)],
)
def test_a_client_with_the_current_state_gets_304(header: str, current: bool) -> None:
    request = Request(
        {"type": "http", "headers": [(b"if-none-match", header.encode())], "method": "GET"}
    )
    assert is_current(request, etag("abc")) is current


def test_not_modified_repeats_the_tag_and_has_no_body() -> None:
    response = not_modified(etag("abc"))
    assert (response.status_code, response.headers["etag"], response.body) == (304, '"abc"', b"")


async def fill(client: Client, count: int, *, start: int = 0, kind: str = "scripted") -> list[str]:
    ids = []
    for number in range(start, start + count):
        response = await posted(client, "/v1/endpoints", {"name": f"e{number}", "kind": kind}, 201)
        ids.append(response["id"])
    return ids


async def test_an_empty_list_has_no_ids(client: Client) -> None:
    assert await got(client, "/v1/endpoints") == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_give_every_entry_once_in_order(client: Client, order: str) -> None:
    ids = await fill(client, 7)
    found: list[str] = []
    params: dict[str, str | int] = {"limit": 3, "order": order}
    while True:
        page = await got(client, "/v1/endpoints", params=params)
        found += [entry["id"] for entry in page["data"]]
        assert page["first_id"] == page["data"][0]["id"]
        assert page["last_id"] == page["data"][-1]["id"]
        if not page["has_more"]:
            break
        params["after"] = page["last_id"]
    # Ids of one millisecond are not ordered by time, but have a fixed order.
    assert found == sorted(ids, reverse=order == "desc")


async def test_added_or_removed_entries_do_not_disturb_paging(client: Client) -> None:
    ids = sorted(await fill(client, 4))
    first = await got(client, "/v1/endpoints?limit=2&order=asc")
    # The entry of the cursor leaves the list, and a new one is added.
    await client.delete(f"/v1/endpoints/{first['last_id']}", headers={"If-Match": '"1"'})
    later = await fill(client, 1, start=4)
    rest = await got(client, f"/v1/endpoints?order=asc&after={first['last_id']}")
    assert [entry["id"] for entry in rest["data"]] == [*ids[2:], *later]


async def test_filters_and_pages_go_together(client: Client) -> None:
    await fill(client, 2)
    real = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    made = await posted(client, "/v1/endpoints", {"name": "real", **real})
    page = await got(client, "/v1/endpoints?kind=openai_chat&limit=1")
    assert [entry["id"] for entry in page["data"]] == [made["id"]]
    assert page["has_more"] is False
    assert (await listing(client, "/v1/endpoints?name=e1"))[0]["name"] == "e1"


async def test_an_invalid_page_is_refused(client: Client) -> None:
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=", "after=%27;DROP"):
        at = f"/query/{query.split('=')[0]}"
        await refusal_of(client.get(f"/v1/endpoints?{query}"), at=at)
    await refusal_of(client.get("/v1/endpoints?after=end_" + "0" * 26), 404, "not_found")
    assert (await client.get("/v1/banks/none/items?limit=1000")).status_code == 404
    assert (await client.get("/v1/banks/none/items?limit=1001")).status_code == 422
