"""Baselines over HTTP, and gates against them, on finished sessions."""

from typing import Any

import pytest

from app.services.container import Services
from tests.api import calls
from tests.api.calls import got, posted, refusal_of
from tests.api.conftest import Client, NewClient
from tests.services.sessions import until

STOPPING = {"min_items": 50, "max_items": 50, "score_margin": None}


def scripted(theta: float) -> dict[str, Any]:
    return {"kind": "scripted", "model": f"at {theta:g}", "options": {"theta": theta, "seed": 3}}


async def measured(client: Client, working: Services, theta: float) -> dict[str, Any]:
    # One at a time: the items do not depend on the order in which answers arrive.
    asked = {"bank": "demo", "stopping": STOPPING, "concurrency": 1}
    return await calls.measured(client, working, f"at {theta:g}", {"theta": theta}, **asked)


async def test_a_release_is_compared_with_the_last_one(client: Client, working: Services) -> None:
    before = await measured(client, working, 0.5)
    path = "/v1/baselines/production"
    named = await client.put(path, json={"session_id": before["id"]})
    assert named.status_code == 200, named.text
    assert named.json()["score"] == before["score"]["value"]
    await client.put("/v1/baselines/older", json={"session_id": before["id"]})
    first = await got(client, "/v1/baselines?limit=1")
    assert (first["last_id"], first["has_more"]) == ("older", True)
    rest = await got(client, "/v1/baselines?limit=1&after=older")
    assert (rest["data"], rest["has_more"]) == ([named.json()], False)
    # The baseline outlasts its session.
    assert (await client.delete(f"/v1/sessions/{before['id']}")).status_code == 204

    outcomes = {}
    for theta, tolerance in ((0.5, 0.2), (-6.0, 0.05)):
        body = {
            "baseline": "production",
            "tolerance": tolerance,
            "session": {"bank": "demo", "endpoint": scripted(theta), "concurrency": 1},
        }
        gate = await posted(client, "/v1/gates", body, 201)
        await until(working, gate["session_id"])
        gate = await got(client, f"/v1/gates/{gate['id']}")
        session = await got(client, f"/v1/sessions/{gate['session_id']}")
        assert (session["seed"], session["design"]["stopping"]["max_items"]) == (5, 50)
        assert gate["value"] == pytest.approx(session["score"]["value"] - before["score"]["value"])
        assert (gate["threshold"], gate["baseline"]) == (-tolerance, "production")
        assert gate["margin"] == pytest.approx(gate["value"] + tolerance)
        outcomes[theta] = gate
    # Both answered the same questions; independent errors would be 1.4 times as wide.
    assert outcomes[0.5]["outcome"] == "go"
    assert outcomes[0.5]["value"] == 0.0
    width = before["score"]["interval"]["hi"] - before["score"]["interval"]["lo"]
    assert outcomes[0.5]["interval"]["hi"] - outcomes[0.5]["interval"]["lo"] < 1.2 * width
    assert outcomes[-6.0]["outcome"] == "no_go"

    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404
    kept = await got(client, f"/v1/gates/{outcomes[0.5]['id']}")
    assert kept == outcomes[0.5]


async def test_abilities_are_compared_with_a_session(client: Client, working: Services) -> None:
    before, after = [await measured(client, working, theta) for theta in (2.0, -2.0)]
    body = {"session_id": after["id"], "baseline": before["id"]}
    body |= {"metric": "theta", "tolerance": 0.5}
    gate = await posted(client, "/v1/gates", body)
    assert gate["outcome"] == "no_go"
    assert gate["value"] == pytest.approx(after["estimate"]["theta"] - before["estimate"]["theta"])
    turned = {**body, "session_id": before["id"], "baseline": after["id"]}
    assert (await posted(client, "/v1/gates", turned))["outcome"] == "go"


async def test_a_baseline_is_moved_by_its_maker_or_an_admin(
    client: Client, client_with: NewClient, working: Services
) -> None:
    before = await measured(client, working, 0.5)
    body = {"session_id": before["id"]}
    mine, theirs = [await client_with("run", "read") for _ in range(2)]
    assert (await mine.put("/v1/baselines/mine", json=body)).status_code == 200
    path = "/v1/baselines/mine"
    for call in (theirs.put(path, json=body), theirs.delete(path)):
        await refusal_of(call, 403, "missing_scope", says="was made by another key")
    assert (await client.put("/v1/baselines/mine", json=body)).status_code == 200


async def test_impossible_baselines_are_refused(client: Client, working: Services) -> None:
    before = await measured(client, working, 0.5)
    gate = {"session_id": before["id"], "baseline": before["id"], "tolerance": 0.02}
    for said, sentence in (
        ({}, "shares answers with the baseline; gate a new session"),
        ({"threshold": 0.5}, "give exactly one of threshold and baseline"),
        ({"tolerance": None}, "give baseline and tolerance together"),
        ({"tolerance": 2}, "tolerance: expected a share from 0 to 1, got 2; for 2 % say 0.02"),
        ({"tag": "x"}, "with the score of the whole bank"),
        ({"baseline": "nothing"}, "nothing"),
    ):
        refused = await client.post("/v1/gates", json={**gate, **said})
        assert refused.status_code in (404, 422)
        assert sentence in refused.text, refused.text
    going_on = await posted(client, "/v1/sessions", {"mode": "manual", "bank": "demo"})
    early = client.put("/v1/baselines/x", json={"session_id": going_on["id"]})
    await refusal_of(early, 409, "invalid_state")
    as_id = client.put(f"/v1/baselines/{before['id']}", json={"session_id": before["id"]})
    await refusal_of(as_id, says="got the id of a session")
