"""Rankings over HTTP, with a worker beside the API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank


def scripted(theta: float) -> dict[str, Any]:
    return {"endpoint": {"kind": "scripted", "model": f"m{theta}", "options": {"theta": theta}}}


BODY: dict[str, Any] = {
    "bank": "demo",
    "endpoints": [scripted(-1.8), scripted(1.8)],
    "seed": 11,
    "metadata": {"purpose": "test"},
}


@pytest.fixture
async def app(settings: Settings, database: Database) -> AsyncIterator[FastAPI]:
    """The application with a worker and the demo bank."""
    app = create_app(settings, database, background=running_worker)
    async with app.router.lifespan_context(app):
        await install_demo_bank(app.state.services.database)
        yield app


async def ended(client: Client, ranking_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            ranking: dict[str, Any] = (await client.get(f"/v1/rankings/{ranking_id}")).json()
            if ranking["status"] in {"completed", "failed", "cancelled"}:
                return ranking
            await asyncio.sleep(0.02)


async def test_one_call_ranks_two_endpoints_and_another_lets_a_third_join(client: Client) -> None:
    created = await client.post("/v1/rankings", json=BODY)

    assert created.status_code == 202, created.text
    made = created.json()
    assert created.headers["location"] == f"/v1/rankings/{made['id']}"
    assert made["status"] == "queued"
    assert made["order"] == []
    first = await ended(client, made["id"])
    assert [entry["model"] for entry in first["order"]] == ["m1.8", "m-1.8"]
    assert first["decided"] is True
    assert first["ties"] == []
    assert first["pairs"][0]["p_a_above_b"] > 0.95
    assert first["rules"]["confidence"] == 0.95
    assert first["metadata"] == {"purpose": "test"}

    joined = await client.post(f"/v1/rankings/{made['id']}:join", json=scripted(0.0))

    assert joined.status_code == 202, joined.text
    second = await ended(client, made["id"])
    assert [entry["model"] for entry in second["order"]] == ["m1.8", "m0.0", "m-1.8"]
    items = {entry["model"]: entry["items"] for entry in second["order"]}
    assert {model: items[model] for model in ("m1.8", "m-1.8")} == {
        entry["model"]: entry["items"] for entry in first["order"]
    }
    session = (await client.get(f"/v1/sessions/{second['order'][0]['session_id']}")).json()
    assert session["ranking_id"] == made["id"]


async def test_events_go_on_after_somebody_joins(client: Client) -> None:
    made = (await client.post("/v1/rankings", json=BODY)).json()
    await ended(client, made["id"])
    path = f"/v1/rankings/{made['id']}/events"
    first = (await client.get(path)).json()
    assert first["ended"] is True
    await client.post(f"/v1/rankings/{made['id']}:join", json=scripted(0.0))
    await ended(client, made["id"])

    async with client.stream(
        "GET",
        path,
        headers={"Accept": "text/event-stream", "Last-Event-ID": str(first["last_seq"])},
    ) as stream:
        lines = [line async for line in stream.aiter_lines()]

    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert kinds[0] == "ranking.joined"
    assert kinds[-1] == "ranking.completed"
    last = (await client.get(path)).json()["last_seq"]
    again = await client.get(
        path, headers={"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    )
    assert again.status_code == 204


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoints": [scripted(0.0)]}, "at least two examinees"),
        ({"endpoints": [scripted(0.0), scripted(0.0)]}, "in the ranking twice"),
        ({"endpoints": [scripted(0.0), {}]}, "exactly one of endpoint and endpoint_id"),
        ({"budget": {"items": 5}}, "too small for the warm-up"),
        ({"min_items": 30, "max_items": 20}, "min_items <= max_items"),
        ({"min_items": 5000, "max_items": 6000, "budget": {}}, "items that examinee 1 of 2 can be"),
        ({"bank": ["demo", "other"]}, "string"),
        ({"bank": None}, "exactly one of bank"),
    ],
)
async def test_what_cannot_be_ranked_is_a_problem_and_nothing_is_spent(
    client: Client, changes: dict[str, Any], words: str
) -> None:
    refused = await client.post("/v1/rankings", json={**BODY, **changes})

    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert words in refused.text
    assert (await client.get("/v1/rankings")).json()["data"] == []
    assert (await client.get("/v1/sessions")).json()["data"] == []


async def test_a_cancelled_ranking_is_a_conflict_for_whoever_wants_more_of_it(
    client: Client,
) -> None:
    slow = {"theta": 0.0, "latency_ms": 200}
    endpoints = [
        {"endpoint": {"kind": "scripted", "model": name, "options": slow}} for name in "ab"
    ]
    made = (await client.post("/v1/rankings", json={**BODY, "endpoints": endpoints})).json()
    path = f"/v1/rankings/{made['id']}"

    cancelled = await client.post(f"{path}:cancel")

    assert cancelled.json()["status"] == "cancelled"
    assert (await client.post(f"{path}:cancel")).status_code == 409
    assert (await client.post(f"{path}:join", json=scripted(0.0))).status_code == 409
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
