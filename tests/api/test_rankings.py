"""Rankings over HTTP, with a worker beside the API."""

import json
from typing import Any

import numpy as np
import pytest

from app.calibration.multidimensional.score_curves import fit_curves, reference_population
from app.demo.bank import demo_bank
from app.engine.knowledge import curves_to_dict
from app.engine.prediction.correction import (
    IntervalCorrection,
)
from app.engine.prediction.learned_curves import LearnedCurves
from app.storage.database import Database
from tests.api.calls import ended, got, listing, posted, problem_of
from tests.api.conftest import EVENTS, Client
from tests.databases import executed
from tests.engine.corrections import level_factor

pytestmark = pytest.mark.usefixtures("working")


def scripted(theta: float) -> dict[str, Any]:
    return {"endpoint": {"kind": "scripted", "model": f"m{theta}", "options": {"theta": theta}}}


BODY: dict[str, Any] = {
    "bank": "demo",
    "endpoints": [scripted(-1.8), scripted(1.8)],
    "seed": 11,
    "metadata": {"purpose": "test"},
}


async def test_one_call_ranks_two_endpoints_and_another_lets_a_third_join(client: Client) -> None:
    body = {**BODY, "prompt": {"system": "Be brief."}}
    created = await client.post("/v1/rankings", json=body)

    assert created.status_code == 202, created.text
    made = created.json()
    assert created.headers["location"] == f"/v1/rankings/{made['id']}"
    assert made["status"] == "queued"
    assert made["order"] == []
    first = await ended(client, f"/v1/rankings/{made['id']}")
    assert [entry["model"] for entry in first["order"]] == ["m1.8", "m-1.8"]
    assert first["decided"] is True
    assert first["ties"] == []
    assert first["pairs"][0]["p_a_above_b"] > 0.95
    assert first["rules"]["confidence"] == 0.95
    assert first["metadata"] == {"purpose": "test"}

    path = f"/v1/rankings/{made['id']}/events"
    told = await got(client, path)
    assert told["ended"] is True
    await posted(client, f"/v1/rankings/{made['id']}:join", scripted(0.0), 202)
    second = await ended(client, f"/v1/rankings/{made['id']}")
    assert [entry["model"] for entry in second["order"]] == ["m1.8", "m0.0", "m-1.8"]
    before, after = (
        {entry["model"]: (entry["items"], entry["score"]) for entry in ranking["order"]}
        for ranking in (first, second)
    )
    assert {model: after[model] for model in ("m1.8", "m-1.8")} == before
    assert None not in [score for _, score in after.values()]
    members = [
        await got(client, f"/v1/sessions/{entry['session_id']}") for entry in second["order"]
    ]
    hashes = {member["provenance"]["prompt_template_hash"] for member in members}
    assert {member["ranking_id"] for member in members} == {made["id"]}
    assert len(hashes) == 1  # the new member got the same items as the others
    # Its events continue.
    stream = {"Accept": "text/event-stream", "Last-Event-ID": str(told["last_seq"])}
    lines = (await client.get(path, headers=stream)).text.splitlines()
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert (kinds[0], kinds[-1]) == ("ranking.joined", "ranking.completed")
    told = await got(client, path)
    assert EVENTS.validate_python(told["data"])
    stream["Last-Event-ID"] = str(told["last_seq"])
    assert (await client.get(path, headers=stream)).status_code == 204


async def taught_by_weak_examinees(database: Database) -> None:
    """Change the demo bank's version as if forty weak examinees had calibrated it."""
    rng, items = np.random.default_rng(3), demo_bank().items
    b, theta = np.array([item.b for item in items]), rng.normal(-1.5, 0.5, size=(40, 1))
    scores = (rng.random((40, b.size)) < 1 / (1 + np.exp(b - theta))).astype(np.float64)
    population = reference_population(scores)
    learned = LearnedCurves(curves=fit_curves(scores), n_reference=80, population=population)
    # So wide an interval decides nothing.
    correction = IntervalCorrection(theta=level_factor(30.0, spread=9.0), n_examinees=40)
    knowledge = {
        "interval_correction": correction.to_dict(),
        "curves": curves_to_dict(learned, [item.key for item in items]),
        "reference_abilities": {"quantiles": np.quantile(theta, [0.0, 0.5, 1.0]).tolist()},
    }
    taught = "UPDATE bank_versions SET knowledge = %s::jsonb"
    await executed(database, taught, [json.dumps(knowledge)])


async def test_a_ranking_uses_the_score_unless_ability_is_given(client: Client) -> None:
    body = {**BODY, "min_items": 8, "max_items": 12}
    for said, metric, preset in (({}, "score", "score"), ({"metric": "theta"}, "theta", "ability")):
        made = await posted(client, "/v1/rankings", {**body, **said}, 202)
        ranking = await ended(client, f"/v1/rankings/{made['id']}")
        assert (ranking["metric"], ranking["asking"]["preset"]) == (metric, preset)
        assert ranking["asking"]["concurrency"] == 4
        first, second = ranking["order"]
        assert first["score"]["value"] > second["score"]["value"]
        assert None not in (first["theta"], second["theta"])


async def test_a_published_ranking_is_named_and_given_values_hold(client: Client) -> None:
    body = {**BODY, "preset": "continuous-paper", "min_items": 5, "max_items": 6}
    body["allocation"] = "variance_per_cost"
    made = await posted(client, "/v1/rankings", {**body, "shared_items": True})
    assert made["metric"] == "theta"
    rules = made["rules"]
    assert (rules["decision"], rules["shared_items"]) == ("one_look", True)
    assert made["asking"]["estimator"]["prior_sd"] == 5.0
    await problem_of(client, "/v1/rankings", {**BODY, "preset": ["atlas"]})


async def test_members_beyond_the_references_are_told(client: Client, database: Database) -> None:
    await taught_by_weak_examinees(database)
    body = {**BODY, "metric": "theta", "max_items": 30, "prediction": {"method": "combined"}}
    made = await posted(client, "/v1/rankings", body, 202)
    ranking = await ended(client, f"/v1/rankings/{made['id']}")

    strong, weak_one = ranking["order"]
    assert strong["extrapolation"]["standing"] == "above"
    assert strong["extrapolation"]["caution"].startswith("This model is stronger than all")
    assert weak_one["extrapolation"]["standing"] == "unknown"
    assert weak_one["extrapolation"]["sd"] > 1.0
    assert weak_one["extrapolation"]["caution"].startswith("These answers do not tell whether")
    told = (await got(client, f"/v1/sessions/{strong['session_id']}"))["estimate"]
    assert {name: strong[name] for name in ("theta", "se", "interval")}.items() <= told.items()
    assert [pair["decided"] for pair in ranking["pairs"]] == [False]
    told = (await got(client, f"/v1/sessions/{weak_one['session_id']}"))["estimate"]
    assert weak_one["interval"] == told["interval"]
    assert told["interval"]["lo"] < -15.0 < 15.0 < told["interval"]["hi"]
    raw = told["interval_raw"]
    assert -15.0 < raw["lo"] < raw["hi"] < 15.0
    sides = {"session_ids": [strong["session_id"], weak_one["session_id"]]}
    compared = await posted(client, "/v1/comparisons", sides)
    assert compared["first"]["extrapolation"]["standing"] == "above"
    assert compared["theta"]["verdict"] == "undecided"
    gate = {"session_id": weak_one["session_id"], "metric": "theta", "threshold": 4.0}
    gated = await posted(client, "/v1/gates", gate)
    assert (gated["outcome"], gated["p_beyond"] > 0.025) == ("inconclusive", True)
    assert "These answers do not tell whether" in gated["detail"]
    board = await listing(client, "/v1/banks/demo/leaderboard")
    assert [entry["extrapolation"]["standing"] for entry in board] == ["above", "unknown"]
    forecast = {"bank": "demo", "n_examinees": 3, "stopping": {"se": None, "max_items": 5}}
    told = await posted(client, "/v1/simulations", {**forecast, "thetas": [-1.5, 9.0]})
    assert told.get("caution", "").startswith("1 of 2 simulated examinees is beyond"), told
    told = await posted(client, "/v1/simulations", forecast)
    assert "beyond" not in (told["caution"] or "")


DEAR = {"input_per_1m": 1000.0, "output_per_1m": 1000.0}
AFAR = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "price": DEAR}
PRICED, OTHER = ({"endpoint": {**AFAR, "model": model}} for model in "ab")
NONSENSE = {"endpoint": {"kind": "scripted", "options": {"nonsense": 1}}}
UNRANKABLE: list[tuple[dict[str, Any], str]] = [
    ({"endpoints": [scripted(0.0)]}, "/endpoints: expected at least 2 entries, got 1"),
    ({"endpoints": [scripted(0.0), scripted(0.0)]}, "in the ranking twice"),
    ({"endpoints": [scripted(0.0), {}]}, "exactly one of endpoint and endpoint_id"),
    ({"endpoints": [scripted(0.0), PRICED, NONSENSE]}, "nonsense"),
    ({"budget": {"items": 5}}, "/budget/items"),
    ({"budget": {"tokens": 29}}, "too small for the warm-up"),
    ({"budget": {"usd": 1.0}}, "needs the endpoint's price"),
    ({"endpoints": [PRICED, OTHER], "budget": {"usd": 0.1}}, "are expected to take"),
    ({"selection": {"content": {"targets": {"law": 1.0}}}}, "law"),
    ({"min_items": 30, "max_items": 20}, "min_items <= max_items"),
    ({"min_items": 5000, "max_items": 6000, "budget": {}}, "items that examinee 1 of 2 can be"),
    ({"estimator": {"nodes": 3, "range": [-4, 4]}}, "at least 17 nodes"),
    ({"estimator": {"range": [-1e308, 1e308]}}, "within [-50, 50]"),
    ({"bank": ["demo", "other"]}, "expected a text, got a list"),
    ({"bank": None}, "exactly one of bank"),
]


async def test_what_cannot_be_ranked_is_a_problem_and_nothing_is_spent(client: Client) -> None:
    for changes, words in UNRANKABLE:
        assert words in str(await problem_of(client, "/v1/rankings", {**BODY, **changes}))
        assert await listing(client, "/v1/rankings") == []
        assert await listing(client, "/v1/sessions") == []
