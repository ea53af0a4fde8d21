"""Versions of several abilities over HTTP: forms, scores, gates, leaderboards, rankings."""

import csv
import functools
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from app.calibration.multidimensional.score_model import LearnedScores, learn_scores
from app.calibration.pipeline.calibrator import task_targets
from app.engine.bank import FloatArray, ItemBank
from app.engine.knowledge import ABILITIES, PREDICTION, abilities_to_dict, prediction_to_dict
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.exchange.item_record import ItemRecord
from app.items import ItemContent
from app.records.banks import BankSpec
from app.services.banks.imports import BankImport
from app.services.container import Services
from tests.api import calls
from tests.api.calls import answered, ended, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank

N_ITEMS = 40
KEYS = tuple(f"{'maths' if j % 2 else 'law'}/{j}" for j in range(N_ITEMS))
TAGS = tuple(key.partition("/")[0] for key in KEYS)
URL = "/v1/banks/tasks/versions/latest"
#: General abilities of the reference models, far from normal.
QUANTILES = [-2.0, -1.9, -1.8, 0.0, 6.0]

pytestmark = pytest.mark.usefixtures("services")


def known() -> MultidimensionalModel:
    """Return a population with a general ability and one for each task."""
    rng, task = np.random.default_rng(1), np.arange(N_ITEMS) % 2
    loadings = 0.8 * np.column_stack([task == 0, task == 1])
    items = Loadings(np.full(N_ITEMS, 1.5), rng.normal(size=N_ITEMS), loadings, nested=True)
    return MultidimensionalModel(items, Population(np.zeros(3), np.eye(3)))


def records(n: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    expected = known().items.expected_score(rng.normal(size=(n, 3)))
    return (rng.random(expected.shape) < expected).astype(float)


@functools.cache
def learned() -> LearnedScores:
    return learn_scores(records(80, 2), task_targets(KEYS), np.random.default_rng(3))


async def install(services: Services) -> None:
    bank = ItemBank.from_abilities(known(), KEYS)
    items = [
        ItemRecord(
            key=key,
            content=ItemContent(prompt=f"What is {key}?", target=(key,)),
            tags=(tag,),
            expected_tokens_in=100 if position < N_ITEMS // 2 else 1,
            expected_tokens_out=1,
        )
        for position, (key, tag) in enumerate(zip(KEYS, TAGS, strict=True))
    ]
    plain = ItemBank.from_intercepts(a=bank.a, intercept=bank.intercept, item_ids=KEYS)
    knowledge = {
        ABILITIES: abilities_to_dict(known(), KEYS),
        PREDICTION: prediction_to_dict(learned().targets, KEYS),
        "reference_abilities": {"quantiles": QUANTILES},
    }
    request = BankImport(
        items=items, parameters=plain, response_model="nested", knowledge=knowledge
    )
    await services.banks.import_bank(BankSpec(name="tasks"), request)


@pytest.fixture
async def services(app: FastAPI) -> Services:
    opened: Services = app.state.services
    await install(opened)
    return opened


async def measured(
    client: Client, services: Services, name: str, skill: float, **design: Any
) -> dict[str, Any]:
    """Return a session of a simulated model with this skill in both tasks."""
    options = {"skills": {"law": skill, "maths": skill}}
    design = {"bank": "tasks", "stopping": {"se": None, "max_items": 16}, **design}
    return await calls.measured(client, services, name, options, **design)


async def test_a_form_predicts_the_score_of_an_examinee(client: Client) -> None:
    form = await posted(client, f"{URL}:compose", {"items": 10}, 200)
    chosen = [KEYS.index(item["key"]) for item in form["items"]]
    weights = np.array([item["weight"] for item in form["items"]])
    new = records(200, 4)
    missed = form["constant"] + new[:, chosen] @ weights - new.mean(axis=1)
    assert len(set(chosen)) == 10
    assert np.mean(np.abs(missed) <= form["half_width95"]) > 0.88
    assert np.abs(missed).mean() == pytest.approx(form["expected_error"], rel=0.35)
    assert form["cost"] is None
    held = await listing(client, f"{URL}/items?limit=100")
    assert {item["item_id"] for item in form["items"]} <= {item["item_id"] for item in held}


async def test_a_form_comes_as_csv_where_that_is_accepted(client: Client) -> None:
    asked = {"items": 4, "target": {"maths": 1.0}, "ask": ["law"]}
    told = await posted(client, f"{URL}:compose", asked)
    answer = await client.post(f"{URL}:compose", json=asked, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert "tasks-v1-4.form.csv" in answer.headers["content-disposition"]
    first, *rows = csv.DictReader(answer.text.splitlines())
    assert first == {"item": "", "weight": repr(told["constant"])}
    assert [row["item"] for row in rows] == [item["key"] for item in told["items"]]
    assert all(row["item"].startswith("law/") for row in rows)
    assert told["target"] == {"maths": 1.0}


async def test_costs_turn_a_form_to_cheap_items(client: Client) -> None:
    dear = {f"{key}": 50.0 if j < N_ITEMS // 2 else 1.0 for j, key in enumerate(KEYS)}
    given: list[tuple[Any, float]] = [("expected_tokens", 8 * 1.5), (dear, 8.0)]
    for costs, total in given:
        answer = await posted(client, f"{URL}:compose", {"items": 8, "costs": costs}, 200)
        assert answer["cost"] == pytest.approx(total)
        assert all(KEYS.index(i["key"]) >= N_ITEMS // 2 for i in answer["items"])


NO_FORMS: list[tuple[dict[str, Any], str, str]] = [
    ({"items": 41}, "/items", "expected 1 to 40 items"),
    ({"items": 21, "ask": ["law"]}, "/items", "expected 1 to 20 items"),
    ({"items": 4, "target": {"physics": 1.0}}, "/target", "known tags: all, law, maths"),
    ({"items": 4, "ask": ["physics"]}, "/ask", "no item has the tag 'physics'"),
    ({"items": 4, "costs": {"law/0": 1.0}}, "/costs", "39 have none, the first 'maths/1'"),
    ({"items": 4, "costs": {"law/99": 1.0}}, "/costs", "no item 'law/99'"),
]


async def test_a_form_that_cannot_be_built_is_a_clear_problem(client: Client) -> None:
    for body, pointer, words in NO_FORMS:
        await problem_of(client, f"{URL}:compose", body, at=pointer, says=words)


async def test_a_version_without_a_score_model_has_no_forms_and_no_gates_on_tags(
    client: Client, services: Services
) -> None:
    await install_demo_bank(services.database)
    answer = await problem_of(client, "/v1/banks/demo/versions/latest:compose", {"items": 4})
    assert "nested or mirt" in answer["detail"]
    session = {"mode": "manual", "bank": "demo"}
    gate = {"session": session, "metric": "score", "tag": "arithmetic", "threshold": 0.5}
    await problem_of(client, "/v1/gates", gate, at="/tag", says="measures one ability")
    model = {**session, "prediction": {"method": "score-model"}}
    await problem_of(client, "/v1/sessions", model, at="/prediction/method")
    assert await listing(client, "/v1/sessions") == []


async def test_a_design_that_several_abilities_do_not_allow_is_refused(client: Client) -> None:
    shown = (await got(client, URL))["knowledge"]  # without what only sessions can read
    assert set(shown["abilities"]) == {"nested", "dimensions", "names"}
    chess = {"criterion": "v_optimal", "target": {"chess": 1.0}}
    ratio = {"cut_score": {"theta": 0.0, "method": "sprt"}}
    for design, pointer, says in (
        ({"selection": chess}, "/selection/target", "'chess' has no items"),
        ({"stopping": {"se": 0.01}}, "/stopping/se", "at best (at theta"),
        (
            {"stopping": {"all_of": [ratio, {"se": 0.9}]}},
            "/stopping/cut_score/method",
            "several abilities",
        ),
        ({"stopping": {"min_information": 0.1}}, "/stopping/min_information", "several abilities"),
    ):
        body = {"mode": "manual", "bank": "tasks", **design}
        await problem_of(client, "/v1/sessions", body, at=pointer, says=says)
    assert await listing(client, "/v1/sessions") == []


async def test_gates_and_leaderboards_use_told_scores(client: Client, working: Services) -> None:
    design = {"selection": {"criterion": "v_optimal", "target": {"maths": 1.0}}}
    able = await measured(client, working, "able", 2.0, **design)
    assert able["score"]["target"] == {"maths": 1.0}
    tasks = {task["tag"]: task for task in able["profile"]["tasks"]}
    assert set(tasks) == {"all", "law", "maths"}
    assert tasks["maths"]["value"] == able["score"]["value"]
    general, *others = able["profile"]["abilities"]
    below = np.interp(general["value"], QUANTILES, np.linspace(0.0, 1.0, len(QUANTILES)))
    assert general["above"] == pytest.approx(below)
    assert [ability["above"] for ability in others] == [None, None]
    assert (tasks["all"]["n_items"], tasks["all"]["n_asked"]) == (N_ITEMS, 16)

    for tag in (None, "law", "maths"):
        body = {"session_id": able["id"], "metric": "score", "tag": tag, "threshold": 0.1}
        gate = await posted(client, "/v1/gates", body)
        assert gate["value"] == tasks[tag or "all"]["value"]
        assert gate["outcome"] == ("inconclusive" if tag == "law" else "go")  # not asked
        assert gate["tag"] == tag
        assert (f"score of {tag}" in gate["detail"]) == (tag is not None)
    strange = {"session_id": able["id"], "metric": "score", "tag": "physics", "threshold": 0.1}
    await problem_of(client, "/v1/gates", strange, says="known tags: all, law, maths")
    theta = {"session_id": able["id"], "metric": "theta", "tag": "law", "threshold": 0.1}
    await problem_of(client, "/v1/gates", theta, at="/tag")

    weak = await measured(client, working, "weak", -2.0)
    board = await got(client, "/v1/banks/tasks/leaderboard")
    assert [entry["session_id"] for entry in board["data"]] == [able["id"], weak["id"]]
    whole = board["data"][0]["score"]
    assert (whole["value"], whole["target"]) == (tasks["all"]["value"], None)
    exported = await client.get(f"/v1/sessions/{able['id']}/export?format=eee")
    assert str(tasks["all"]["value"]) in exported.text
    body = {"session_ids": [able["id"], weak["id"]]}
    compared = await posted(client, "/v1/comparisons", body)
    assert compared["theta"]["verdict"] == "above"


async def test_a_score_is_known_only_where_all_its_own_questions_were_asked(
    client: Client, working: Services
) -> None:
    design = {"selection": {"target": {"law": 1.0}}}
    stopping = {"score_margin": None, "min_items": N_ITEMS // 2, "max_items": N_ITEMS // 2}
    told = await measured(client, working, "able", 0.5, **design, stopping=stopping)
    methods = {task["tag"]: task["method"] for task in told["profile"]["tasks"]}
    assert told["score"]["method"] == methods["law"] == "all_items"
    assert (methods["all"], methods["maths"]) == ("combined", "combined")
    (entry,) = (await got(client, "/v1/banks/tasks/leaderboard"))["data"]
    whole = next(task for task in told["profile"]["tasks"] if task["tag"] == "all")
    assert entry["score"]["interval"] == whole["interval"]
    assert entry["score"]["method"] == "combined"
    reason = "All questions were asked."  # of the task
    assert told["headline"]["trust"]["reason"] == reason != entry["trust"]["reason"]


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "mirt"])
async def test_an_exported_version_is_imported_with_its_abilities(
    client: Client, services: Services, file_format: str
) -> None:
    content = (await client.get(f"{URL}/export?format={file_format}")).text
    where = "items" if file_format == "jsonl" else "parameters"
    await client.post("/v1/banks", json={"name": "copy"})
    await posted(client, "/v1/banks/copy/imports", {where: {"content": content}}, 201)
    version = await got(client, "/v1/banks/copy/versions/1")
    assert version["response_model"] == ("mirt" if file_format == "mirt" else "nested")
    again = await services.versions.load(version["id"])
    assert again.bank.abilities is not None
    np.testing.assert_allclose(
        again.bank.abilities.items.slopes, known().items.slopes, rtol=1e-6, atol=1e-8
    )
    session = await posted(client, "/v1/sessions", {"mode": "manual", "bank": "copy"})
    told = await answered(client, session["id"], *[{"score": 1.0}] * 5)
    assert told["score"]["method"] == "combined"
    assert len(told["profile"]["abilities"]) == 3
    other = {where: {"content": content}, "response_model": "2pl"}
    await problem_of(client, "/v1/banks/copy/imports", other, says="not of a 2pl one")
    await refusal_of(client.get(f"{URL}/export?format=py-irt"), says="measures several")


async def test_other_loadings_make_another_version_on_another_scale(client: Client) -> None:
    made = []
    for second in ("0.5", "0.6"):
        await client.post("/v1/banks", json={"name": "same"})
        content = f"item,intercept,general,dimension_1\nq1,0.5,1,{second}\nq2,0,2,-{second}\n"
        body = {"parameters": {"content": content}}
        assert (await client.post("/v1/banks/same/imports", json=body)).status_code == 201
        made.append(await got(client, "/v1/banks/same/versions/latest"))
    first, other = made
    assert first["response_model"] == "nested"
    assert first["parameters_hash"] != other["parameters_hash"]
    assert first["scale"].removeprefix("same-v1") != other["scale"].removeprefix("same-v2")


@pytest.mark.usefixtures("working")
async def test_models_are_ranked_by_their_general_ability(client: Client) -> None:
    members = []
    for name, skill in (("weak", -2.0), ("able", 2.0)):
        options = {"skills": {"law": skill, "maths": skill}, "seed": 3}
        members.append({"endpoint": {"kind": "scripted", "model": name, "options": options}})
    body = {"bank": "tasks", "endpoints": members, "seed": 1, "budget": {"items": 60}}
    made = await posted(client, "/v1/rankings", body, 202)
    ranking = await ended(client, f"/v1/rankings/{made['id']}")
    assert ranking["status"] == "completed", ranking["failure"]
    assert [entry["model"] for entry in ranking["order"]] == ["able", "weak"]
    assert ranking["pairs"][0]["decided"]
