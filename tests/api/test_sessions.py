"""Sessions over HTTP, with a worker beside the API."""

from typing import Any

import pytest
from fastapi import FastAPI

from tests.api.calls import answered, bank_of, ended, got, listing, posted, problem_of
from tests.api.conftest import EVENTS, Client
from tests.services.living import BANK, living_bank

pytestmark = pytest.mark.usefixtures("working")

BODY: dict[str, Any] = {
    "bank": "demo",
    "endpoint": {"kind": "scripted", "model": "simulated", "options": {"theta": 0.5, "seed": 3}},
    "stopping": {"se": None, "min_items": 1, "max_items": 8},
    "concurrency": 1,  # makes the items independent of the order in which answers arrive
    "seed": 11,
}
MANUAL = {"mode": "manual", "bank": "demo", "stopping": {"max_items": 3, "min_items": 1}}


async def test_one_call_starts_a_measurement(client: Client) -> None:
    created = await client.post("/v1/sessions", json=BODY)

    assert created.status_code == 202, created.text
    assert created.headers["location"] == f"/v1/sessions/{created.json()['id']}"
    session = await ended(client, created.headers["location"])
    assert session["status"] == "completed"
    assert session["progress"]["items"] == 8
    assert session["stops_when"] == (
        "Stops when the score is known to ±4 points; at the latest at 8 items asked."
    )
    interval = session["estimate"]["interval"]
    assert interval["lo"] < session["estimate"]["theta"] < interval["hi"]
    assert session["usage"]["usd"] is None
    assert session["endpoint"]["model"] == "simulated"
    # How theta was estimated.
    url = created.headers["location"]
    page = await got(client, f"{url}/responses?limit=5")
    rest = await got(client, f"{url}/responses?after={page['last_step']}")
    path = await listing(client, f"{url}/trajectory")
    assert [row["step"] for row in page["data"] + rest["data"]] == list(range(1, 9))
    assert (page["has_more"], rest["has_more"]) == (True, False)
    assert path[-1]["theta"] == pytest.approx(session["estimate"]["theta"])
    assert path[-1]["se"] == pytest.approx(session["estimate"]["se"])
    moments = sorted(row["answered_at"] for row in page["data"] + rest["data"])
    assert [point["answered_at"] for point in path] == moments
    assert all(row["answer"] for row in page["data"])
    # Its events, from the first to the last.
    polled = await got(client, f"{url}/events")
    seen = {"accept": "text/event-stream", "last-event-id": str(polled["last_seq"] - 1)}
    last = (await client.get(f"{url}/events", headers=seen)).text
    assert [event["seq"] for event in polled["data"]] == list(range(1, polled["last_seq"] + 1))
    assert polled["ended"] is True
    assert (last.count("event: "), "session.completed" in last) == (1, True)
    assert EVENTS.validate_python(polled["data"])


async def test_steering_over_http(client: Client) -> None:
    slow = {**BODY["endpoint"], "options": {"theta": 0.0, "latency_ms": 200}}
    created = await client.post("/v1/sessions", json={**BODY, "endpoint": slow})
    path = f"/v1/sessions/{created.json()['id']}"

    paused = await client.post(f"{path}:pause")
    resumed = await client.post(f"{path}:resume")
    cancelled = await client.post(f"{path}:cancel")
    late = await client.post(f"{path}:pause")
    extended = await client.post(f"{path}:extend", json={"stopping": {"se": None, "max_items": 2}})
    replayed = await client.post(f"{path}:replay", json={"estimator": {"method": "map"}})
    gone = await client.delete(path)

    assert paused.json()["status"] == "paused"
    assert resumed.json()["status"] == "queued"
    assert cancelled.json()["stop_reason"] == "cancelled"
    assert late.status_code == 409
    assert extended.status_code == 202, extended.text
    assert extended.json()["relation"] == "extend"
    assert replayed.status_code == 201, replayed.text
    assert replayed.json()["estimate"]["method"] == "map"
    assert gone.status_code == 409  # other sessions were made from it


async def test_a_replay_on_another_bank_counts_the_same_questions_alone(client: Client) -> None:
    numbers = "".join(f"q{n},1,{n},0,1\n" for n in range(2))

    async def version_of(name: str, *prompts: str) -> str:
        items = [
            {"key": f"q{n}", "prompt": prompt, "target": "x"} for n, prompt in enumerate(prompts)
        ]
        await bank_of(client, name, items, numbers)
        found = await got(client, f"/v1/banks/{name}")
        return str(found["latest_version"]["id"])

    await version_of("mine", "zero?", "one?")
    session = await posted(client, "/v1/sessions", {**MANUAL, "bank": "mine"})
    session = await answered(client, session["id"], *[{"score": 1.0}] * 2)
    path = f"/v1/sessions/{session['id']}:replay"

    version = {"bank_version_id": await version_of("theirs", "zero?", "another?")}
    moved = await posted(client, path, version, 201)
    asked = await listing(client, f"/v1/sessions/{moved['id']}/responses")
    assert [one["item_id"] for one in asked] == ["q0"]
    assert moved["provenance"]["left_out"] == 1

    version = {"bank_version_id": await version_of("others", "two?", "three?")}
    detail = (await problem_of(client, path, version, 422, at="/bank_version_id"))["detail"]
    assert detail == "None of the questions answered is in version 1 of bank 'others'."

    # Parameters without texts belong to whatever has their keys.
    await posted(client, "/v1/banks", {"name": "bare"})
    bare = {"parameters": {"content": f"item,a,b,c,d\n{numbers}"}}
    made = await posted(client, "/v1/banks/bare/imports", bare, 201)
    version = {"bank_version_id": made["version"]["id"]}
    assert (await posted(client, path, version, 201))["provenance"]["left_out"] == 0


async def test_items_in_pretest_are_shown_apart(client: Client, app: FastAPI) -> None:
    await living_bank(app.state.services)
    body = {**BODY, "bank": BANK, "pretest": {"items_per_session": 2}}

    created = await client.post("/v1/sessions", json=body)

    session = await ended(client, created.headers["location"])
    rows = await listing(client, f"/v1/sessions/{session['id']}/responses")
    trajectory = await listing(client, f"/v1/sessions/{session['id']}/trajectory")
    assert sum(row["pretest"] for row in rows) == session["pretest"]["items"]
    assert len(trajectory) == 8
    url = f"/v1/banks/{BANK}/versions/latest/items?status=pretest&limit=100"
    items = await listing(client, url)
    assert sum(item["pretest_sessions"] for item in items) == 2
    three = {**MANUAL, "pretest": {"items_per_session": 3}}
    none = (await posted(client, "/v1/sessions", three, 201))["pretest"]  # the demo bank has none
    assert (none["planned"], "no items without parameters" in none["caution"]) == (0, True)
    body["pretest"] = {"items_per_session": -1}
    await problem_of(client, "/v1/sessions", body, at="/pretest/items_per_session")


async def test_a_reported_design_starts_another_session(client: Client) -> None:
    rules: dict[str, Any] = {
        "any_of": [{"se": 0.2}, {"all_of": [{"se": 0.3}, {"theta_change": 0.02}]}]
    }
    stopping = {"se": None, "min_items": 1, "max_items": 3, **rules}
    told = await posted(client, "/v1/sessions", {**MANUAL, "stopping": stopping})
    names = ("preset", "estimator", "selection", "stopping", "prediction", "budget")
    body = {"mode": "manual", "bank": "demo", **{name: told["design"][name] for name in names}}
    assert (await posted(client, "/v1/sessions", body, 201))["design"] == told["design"]


FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"bank": None}, ""),
    ({"endpoint_id": "end_01jd0000000000000000000000"}, ""),
    ({"stopping": {"se": -0.3}}, "/stopping/se"),
    ({"surprise": 1}, "/surprise"),
    ({"selection": {"criterion": "luck"}}, "/selection/criterion"),
    ({"seed": 2**70}, "/seed"),
    ({"stopping": {"max_items": 2**70}}, "/stopping/max_items"),
    ({"estimator": {"nodes": 20_002}}, "/estimator/nodes"),
    ({"estimator": {"nodes": 3, "range": [-4, 4]}}, "/estimator/range"),
]


async def test_a_request_is_refused_where_its_fault_lies(client: Client) -> None:
    for section, pointer in FAULTY:
        await problem_of(client, "/v1/sessions", {**BODY, **section}, at=pointer)
