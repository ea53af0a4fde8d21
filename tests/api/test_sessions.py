"""Sessions over HTTP, with a worker beside the API."""

import json
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from app.engine.bank import ItemBank
from app.engine.knowledge import ABILITIES, abilities_to_dict
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.exchange.item_record import ItemRecord
from app.items import ItemContent
from app.records.banks import BankSpec
from app.services.banks.imports import BankImport
from tests.api.calls import answered, bank_of, ended, got, listing, posted, problem_of, refusal_of
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


async def test_a_saved_endpoint_and_a_fixed_version_start_a_session(client: Client) -> None:
    endpoint = await client.post("/v1/endpoints", json={**BODY["endpoint"], "name": "sim"})
    first = await posted(client, "/v1/sessions", BODY)

    body = {
        "endpoint_id": endpoint.json()["id"],
        "bank_version_id": first["bank"]["version_id"],
        "seed": 11,
        "stopping": BODY["stopping"],
        "concurrency": 1,
    }
    second = await posted(client, "/v1/sessions", body)

    one, two = [await ended(client, f"/v1/sessions/{made['id']}") for made in (first, second)]
    assert one["estimate"] == two["estimate"]


async def test_a_manual_session_from_first_item_to_result(client: Client) -> None:
    created = await posted(client, "/v1/sessions", MANUAL, 201)
    path = f"/v1/sessions/{created['id']}"

    session: dict[str, Any] = {}
    for _ in range(3):
        awaited = await got(client, f"{path}/next-item")
        assert "target" not in json.dumps(awaited)
        answer = {"item_id": awaited["item"]["id"], "score": 1}
        answer |= {"step_token": awaited["step_token"]}
        session = await posted(client, f"{path}/responses", answer, 201)

    assert session["status"] == "completed"
    await refusal_of(client.get(f"{path}/next-item"), 409, "invalid_state")


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
    detail = (await problem_of(client, path, version, 422))["detail"]
    assert detail == "None of the questions answered is in version 1 of bank 'others'."

    # Parameters without texts belong to whatever has their keys.
    await posted(client, "/v1/banks", {"name": "bare"})
    bare = {"parameters": {"content": f"item,a,b,c,d\n{numbers}"}}
    made = await posted(client, "/v1/banks/bare/imports", bare, 201)
    version = {"bank_version_id": made["version"]["id"]}
    assert (await posted(client, path, version, 201))["provenance"]["left_out"] == 0


async def test_the_endpoint_key_is_never_returned(client: Client) -> None:
    endpoint = {
        "kind": "openai_chat",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "api_key": "sk-very-secret-key-0001",
        "retry": {"max_attempts": 1},
    }
    created = await client.post(
        "/v1/sessions", json={**BODY, "endpoint": endpoint, "failures": {"max_consecutive": 1}}
    )
    session = await ended(client, created.headers["location"])
    path = f"/v1/sessions/{session['id']}"
    texts = [created.text, json.dumps(session)]
    texts += [(await client.get(f"{path}/{part}")).text for part in ("events", "responses")]

    assert session["status"] == "failed"
    assert session["failure"]["code"] == "endpoint_unreachable"
    assert not [text for text in texts if "very-secret" in text]


async def test_items_in_pretest_are_shown_apart(client: Client, app: FastAPI) -> None:
    await living_bank(app.state.services)
    body = {**BODY, "bank": BANK, "pretest": {"items_per_session": 2}}

    created = await client.post("/v1/sessions", json=body)

    session = await ended(client, created.headers["location"])
    assert session["progress"]["items"] == session["outcomes"]["scored"] == 8
    assert session["pretest"]["planned"] == 2
    assert session["pretest"]["items"] == session["pretest"]["outcomes"]["scored"]
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
    ({"stopping": {"se": "0.3"}}, "/stopping/se"),
    ({"stopping": {"any_of": [{"se": 0.1, "see": 1}]}}, "/stopping/any_of/0/see"),
    ({"stopping": {"max_items": 2**70}}, "/stopping/max_items"),
    ({"estimator": {"nodes": 20_002}}, "/estimator/nodes"),
    ({"estimator": {"nodes": 3, "range": [-4, 4]}}, "/estimator/range"),
    ({"estimator": {str(number): 1 for number in range(300)}}, "/estimator"),
    ({"selection": []}, "/selection"),
    ({"preset": "atlass"}, "/preset"),
]


async def test_a_request_is_refused_where_its_fault_lies(client: Client) -> None:
    for section, pointer in FAULTY:
        await problem_of(client, "/v1/sessions", {**BODY, **section}, at=pointer)


async def test_optimal_design_that_cannot_work_is_refused_before_anything_is_stored(
    app: FastAPI, client: Client
) -> None:
    keys = ("law/1", "law/2", "maths/1", "maths/2")
    ones = np.ones(len(keys))
    abilities = MultidimensionalModel(
        Loadings(ones, 0 * ones, 0.5 * ones[:, None], nested=True),
        Population(mean=np.zeros(2), covariance=np.eye(2)),
    )
    several = ItemBank.from_abilities(abilities, keys)
    items = [ItemRecord(key=k, content=ItemContent(prompt=k, target=(k,))) for k in keys]
    knowledge = {ABILITIES: abilities_to_dict(abilities, keys)}
    request = BankImport(
        items=items, parameters=several, response_model="nested", knowledge=knowledge
    )
    await app.state.services.banks.import_bank(BankSpec(name="several"), request)
    shown = (await got(client, "/v1/banks/several/versions/1"))["knowledge"]
    assert set(shown["abilities"]) == {"nested", "dimensions", "names"}

    v_optimal: dict[str, Any] = {"criterion": "v_optimal"}
    nowhere = {**v_optimal, "target": {"chess": 1.0}}
    by_cost = {**v_optimal, "cost_weight": 1.0}
    for bank, selection, pointer, says in (
        ("demo", {"criterion": "d_optimal"}, "/selection/criterion", "a bank with loadings"),
        ("several", nowhere, "/selection/target", "'chess' has no items"),
        ("several", by_cost, "/selection/cost_weight", "expected tokens"),
    ):
        body = {**BODY, "bank": bank, "selection": selection}
        await problem_of(client, "/v1/sessions", body, at=pointer, says=says)

    # Four items leave the general ability a larger error than their curves alone imply, 0.71,
    # because the same answers must also place the other ability.
    ratio = {"cut_score": {"theta": 0.0, "method": "sprt"}}
    for stopping, pointer, says in (
        ({"se": 0.72}, "/stopping/se", "reach 0.745 at best"),
        ({"all_of": [ratio, {"se": 0.9}]}, "/stopping/cut_score/method", "several abilities"),
        ({"min_information": 0.1}, "/stopping/min_information", "several abilities"),
    ):
        body = {**BODY, "bank": "several", "stopping": stopping}
        await problem_of(client, "/v1/sessions", body, at=pointer, says=says)

    assert await listing(client, "/v1/sessions") == []
    assert await listing(client, "/v1/endpoints") == []
