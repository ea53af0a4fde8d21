"""Webhooks over HTTP, and the deliveries that are listed."""

import asyncio
import base64
from typing import Any

from tests.api.calls import listing, posted
from tests.api.conftest import Client
from tests.api.test_problems import assert_problem

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
HOOK: dict[str, Any] = {"url": "http://127.0.0.1:9/hook", "secret": SECRET}


async def test_a_webhook_is_made_listed_sent_again_and_deleted(client: Client) -> None:
    made = await client.post("/v1/webhooks", json={**HOOK, "events": ["gate.decided"]})
    assert made.status_code == 201
    found = await client.get("/v1/webhooks")
    assert found.json()["data"] == [made.json()]
    assert (made.json()["events"], made.json()["disabled_at"]) == (["gate.decided"], None)
    path = f"/v1/webhooks/{made.json()['id']}"
    (first,) = await listing(client, f"{path}/deliveries")
    assert (first["type"], first["status"]) == ("webhook.created", "pending")
    again = await client.post(f"{path}/deliveries/{first['id']}:send")
    assert again.status_code == 200
    assert again.json()["id"] == first["id"]
    assert SECRET.removeprefix("whsec_") not in made.text + found.text + again.text
    assert (await client.delete(path)).status_code == 204
    assert_problem(await client.get(f"{path}/deliveries"), 404, "not_found")


async def test_all_events_are_sent_where_none_are_named(client: Client) -> None:
    events = (await posted(client, "/v1/webhooks", HOOK))["events"]
    assert {"session.completed", "endpoint.failed", "gate.decided"} < set(events)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"secret": "whsec_c2hvcnQ="}, "invalid_input", "24 to 64 bytes in base64"),
    ({"secret": SECRET.removeprefix("whsec_")}, "invalid_input", "expected whsec_"),
    ({"secret": "whsec_" + "é" * 40}, "invalid_input", "openssl rand"),
    ({"url": "ftp://example.com"}, "invalid_input", "must start with http"),
    ({"url": "http://169.254.169.254/"}, "endpoint_address_blocked", "metadata"),
    ({"events": ["session.begun"]}, "invalid_input", "session.completed"),
    ({"events": []}, "invalid_input", "events"),
]


async def test_what_cannot_be_a_webhook_is_refused_with_what_was_expected(client: Client) -> None:
    for change, code, words in REFUSED:
        answer = await client.post("/v1/webhooks", json={**HOOK, **change})
        assert_problem(answer, 422, code)
        assert words in answer.text
        assert change.get("secret", SECRET) not in answer.text


async def test_a_project_has_few_webhooks(client: Client) -> None:
    answers = await asyncio.gather(*(client.post("/v1/webhooks", json=HOOK) for _ in range(30)))
    assert sorted(answer.status_code for answer in answers) == [201] * 20 + [409] * 10
