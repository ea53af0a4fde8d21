"""Calibrations over HTTP, drift, guesses to replace, and examinees beyond the reference models."""

import json
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from app.api.schemas.reports import DriftRead
from app.calibration.fit import held_out
from app.engine.bank import FloatArray, ItemBank
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import draw_scores
from app.exchange.response_files import write_csv
from app.shapes import Failure
from tests.api.calls import answered, answered_by, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import EVENTS, Client
from tests.services.calibrations import answers, csv_of, imported
from tests.services.calibrations import run as run_calibration
from tests.services.test_recalibration import world

pytestmark = pytest.mark.usefixtures("fits_here")

URL = "/v1/calibrations"


async def recorded(client: Client, text: str | None = None) -> None:
    """Create a response set named `arc`."""
    await posted(client, "/v1/response-sets", {"name": "arc"}, 201)
    file = {"name": "scores.csv", "content": text or csv_of(answers())}
    await posted(client, "/v1/response-sets/arc/imports", {"files": [file]}, 201)


async def started(client: Client, **settings: Any) -> dict[str, Any]:
    asked = {"response_set": "arc", "report_card": False, **settings}
    response = await client.post(URL, json=asked)
    assert response.status_code == 202, response.text
    made: dict[str, Any] = response.json()
    assert response.headers["location"] == f"{URL}/{made['id']}"
    return made


async def run(app: FastAPI, calibration_id: str) -> None:
    """Run the calibration as a worker does."""
    await run_calibration(app.state.services, calibration_id)


async def test_answers_become_a_bank_version(
    client: Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out, "FOLDS", 2)  # a report card with more takes too long
    simulated = answers(50)
    await recorded(client, csv_of(simulated))
    filters = {"least_point_biserial": None}
    made = await started(
        client, model="2pl", filters=filters, compare=["1pl", "2pl"], report_card=True
    )
    assert (made["status"], made["result"], made["failure"]) == ("queued", None, None)
    assert made["settings"]["filters"]["least_point_biserial"] is None
    await refusal_of(client.get(f"{URL}/{made['id']}/items"), 409, "invalid_state")
    await run(app, made["id"])
    found = await got(client, f"{URL}/{made['id']}")
    assert found["status"] == "completed", found["failure"]
    result = found["result"]
    assert result["converged"]
    assert result["kept"] == {"items": 12, "examinees": 50}
    found_items = await listing(client, f"{URL}/{made['id']}/items")
    b = [item["b"] for item in found_items]
    assert [item["key"] for item in found_items] == [f"q{n}" for n in range(1, 13)]
    assert float(np.corrcoef(b, simulated.b)[0, 1]) > 0.9
    assert all(0 < item["se_b"] < 2 for item in found_items)
    assert result["dropped_items"] == {"n": 0, "reasons": {}, "listed": []}
    assert {family["model"] for family in result["comparison"]} == {"1pl", "2pl"}
    assert await listing(client, URL) == [found]
    page = await got(client, f"{URL}/{made['id']}/items?limit=5&after=9")
    assert [item["key"] for item in page["data"]] == ["q11", "q12"]
    assert (page["last_position"], page["has_more"]) == (11, False)
    item = page["data"][0]
    assert item["b"] == pytest.approx(-item["intercept"] / item["a"])
    assert item["se_c"] is None
    card = result["report_card"]
    assert [row["design"] for row in card["rows"]][:2] == ["score", "ability"]
    *_, families = card["shifts"]
    assert (families["rows"], families["reason"][:23]) == ([], "No families are known: ")
    rows = await listing(client, f"{URL}/{made['id']}/abilities?limit=50")
    assert [row["examinee"] for row in rows[:2]] == ["model-1", "model-2"]
    assert max(rows, key=lambda row: row["score"])["theta"] > 1
    page = await got(client, f"{URL}/{made['id']}/abilities?limit=2&after=47")
    assert [row["position"] for row in page["data"]] == [48, 49]
    assert (page["last_position"], page["has_more"]) == (49, False)
    published = await client.post(f"{URL}/{made['id']}:publish", json={"bank": "arc"})
    assert published.status_code == 201, published.text
    version = published.json()
    assert version["knowledge"] == result["knowledge"]
    assert version["calibration"]["id"] == made["id"]
    assert not version["provisional"]
    assert await got(client, published.headers["location"]) == version
    report = await got(client, "/v1/banks/arc/versions/latest/report")
    facts = report["calibration"]
    assert (facts["n_examinees"], facts["n_items"], facts["model"]) == (50, 12, "2pl")
    assert facts["fit"]["verdict"] == version["calibration"]["fit"]["verdict"]
    assert report["simulated"]["n_examinees"] == 50
    again = await client.post(f"{URL}/{made['id']}:publish", json={"bank": "other"})
    assert (again.status_code, again.json()["scale"]) == (201, version["scale"])
    await refusal_of(client.delete(f"{URL}/{made['id']}"), 409, "invalid_state")
    used = client.delete("/v1/response-sets/arc", headers={"If-Match": '"2"'})
    await refusal_of(used, 409, "invalid_state")


async def test_a_wrong_key_can_stay_in_the_bank_for_the_score(client: Client, app: FastAPI) -> None:
    head, *rows = [line.split(",") for line in csv_of(answers(100)).splitlines()]
    for row in rows:
        row[1] = str(1 - int(row[1]))
    await recorded(client, "\n".join(map(",".join, (head, *rows))))
    made = await started(client, filters={"keep_for_score": True})
    assert made["settings"]["filters"]["keep_for_score"] is True
    await run(app, made["id"])
    result = (await got(client, f"{URL}/{made['id']}"))["result"]
    assert result["dropped_items"]["n"] == 0
    assert result["score_only_items"]["reasons"] == {"low_point_biserial": 1}
    assert [item["name"] for item in result["score_only_items"]["listed"]] == ["q1"]
    assert result["kept"]["items"] == 12
    published = await posted(client, f"{URL}/{made['id']}:publish", {"bank": "arc"}, 201)
    items = await listing(client, "/v1/banks/arc/versions/1/items")
    assert [(item["status"], item["a"]) for item in items if item["key"] == "q1"] == [("active", 0)]
    asked = {"bank_version_id": published["id"], "mode": "manual"}
    bank = (await posted(client, "/v1/sessions", asked, 201))["bank"]
    assert (bank["n_items"], bank["n_uncalibrated"]) == (12, 0)


async def test_events_report_progress_until_the_end(client: Client, app: FastAPI) -> None:
    await recorded(client)
    made = await started(client)
    events = f"{URL}/{made['id']}/events"
    early = await got(client, events)
    assert [event["type"] for event in early["data"]] == ["calibration.queued"]
    assert not early["ended"]
    await run(app, made["id"])
    later = await got(client, f"{events}?after=1")
    assert later["data"][0]["type"] == "calibration.started"
    assert {event["data"]["phase"] for event in later["data"] if "phase" in event["data"]} >= {
        "calibrating",
        "checking_fit",
    }
    assert later["data"][-1]["type"] == "calibration.completed"
    assert EVENTS.validate_python(early["data"] + later["data"])
    assert later["ended"]
    stream = await client.get(events, headers={"Accept": "text/event-stream"})
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.text.count("event: calibration.") == later["last_seq"]
    seen = {"Accept": "text/event-stream", "Last-Event-ID": str(later["last_seq"])}
    assert (await client.get(events, headers=seen)).status_code == 204
    assert (await client.get(f"{URL}/cal_{'0' * 26}/events")).status_code == 404


async def test_a_calibration_is_cancelled_once_and_deleted(client: Client) -> None:
    await recorded(client)
    made = await started(client)
    await refusal_of(client.delete(f"{URL}/{made['id']}"), 409, "invalid_state")
    cancelled = await client.post(f"{URL}/{made['id']}:cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    await problem_of(client, f"{URL}/{made['id']}:cancel", None, 409, "invalid_state")
    assert (await listing(client, f"{URL}?status=cancelled"))[0]["id"] == made["id"]
    assert await listing(client, f"{URL}?status=running") == []
    assert (await client.delete(f"{URL}/{made['id']}")).status_code == 204
    assert (await client.get(f"{URL}/{made['id']}")).status_code == 404


UNFIT: list[tuple[dict[str, Any], int, str]] = [
    ({"model": "5pl"}, 422, "model"),
    ({"model": "1pl", "negative_slopes": True}, 422, "1PL"),
    ({"priors": 1}, 422, "priors"),
    ({"filters": {"greatest_mean": 2}}, 422, "greatest_mean"),
    ({"filters": {"least_mean": 0.99, "greatest_mean": None}}, 422, "No item is left"),
    ({"partitions": 3}, 422, "partitions"),
    ({"partition_size": 50}, 422, "partition_size"),
    ({"model": "nested", "dimensions": 11}, 422, "11 dimensions are too many"),
    ({"model": "mirt", "dimensions": 12}, 422, "12 dimensions are too many"),
    ({"response_set": "nowhere"}, 404, "nowhere"),
]


async def test_what_cannot_be_calibrated_is_refused_with_the_reason(client: Client) -> None:
    await recorded(client)
    for body, status, says in UNFIT:
        response = await client.post(URL, json={"response_set": "arc", **body})
        assert response.status_code == status, body
        assert says in response.text
        assert await listing(client, URL) == []


async def test_several_abilities_respect_the_given_cycles(client: Client, app: FastAPI) -> None:
    await recorded(client, csv_of(answers(40)))
    made = await started(client, model="nested", dimensions=1, max_cycles=2)
    await run(app, made["id"])
    result = (await got(client, f"{URL}/{made['id']}"))["result"]
    assert (result["iterations"], result["converged"]) == (2, False)
    publish = f"{URL}/{made['id']}:publish"
    await problem_of(client, publish, {"bank": "b"}, 409, says="larger max_cycles")


async def test_tasks_named_by_item_ids_are_predicted(client: Client, app: FastAPI) -> None:
    matrix = answers(40).matrix
    tasks = [f"{'law' if j % 2 else 'maths'}/{j}" for j in range(matrix.n_items)]
    rows = [",".join([f"m{i}", *map(str, row)]) for i, row in enumerate(matrix.scores.astype(int))]
    await recorded(client, "\n".join([",".join(["model", *tasks]), *rows]))
    made = await started(
        client, model="nested", dimensions=1, filters={"least_point_biserial": None}
    )
    await run(app, made["id"])
    await posted(client, f"{URL}/{made['id']}:publish", {"bank": "tasks"}, 201)
    selection = {"criterion": "v_optimal", "target": {"law": 1.0}}
    body = {"mode": "manual", "bank": "tasks", "selection": selection}
    session = await posted(client, "/v1/sessions", body, 201)
    told = (await answered(client, session["id"], *[{"score": 1.0}] * 5))["profile"]["tasks"]
    assert {task["tag"]: task["n_items"] for task in told} == {"all": 12, "law": 6, "maths": 6}
    link = {"bank_version_id": session["bank"]["version_id"]}
    several = "measures several abilities (nested)"
    one = {"response_set": "arc", "link": link}
    await problem_of(client, URL, one, at="/link/bank_version_id", says=several)


async def test_continuous_scores_make_a_continuous_version(client: Client, app: FastAPI) -> None:
    rng = np.random.default_rng(1)
    bank = ItemBank.from_difficulties(
        a=np.ones(10), b=rng.normal(size=10), k=rng.uniform(0.02, 0.08, 10)
    )
    scores = np.array(list(draw_scores(bank, rng.normal(size=80), rng)))
    table = ResponseTable(tuple(f"m{i}" for i in range(80)), bank.item_ids, scores)
    await recorded(client, b"".join(write_csv(table)).decode())
    made = await started(client, model="continuous")
    await run(app, made["id"])
    found = await got(client, f"{URL}/{made['id']}")
    assert found["status"] == "completed", found["failure"]
    result = found["result"]
    assert (result["local_dependence"], result["report_card"]) == (None, None)
    assert result["dispersion"] == pytest.approx(0.05, abs=0.015)
    item = (await listing(client, f"{URL}/{made['id']}/items?limit=1"))[0]
    assert min(item["k"], item["se_k"]) > 0
    version = await posted(client, f"{URL}/{made['id']}:publish", {"bank": "graded"}, 201)
    assert version["response_model"] == "continuous"
    where = "/v1/banks/graded/versions/1"
    assert (await listing(client, f"{where}/items?limit=1"))[0]["k"] == item["k"]
    for part in ("report", "information", "lint"):
        response = await client.get(f"{where}/{part}")
        assert response.status_code == 200, response.text
    other = {"response_set": "arc", "model": "continuous", "compare": ["1pl"]}
    await problem_of(client, URL, other, says="compare")


UNPUBLISHABLE: list[tuple[dict[str, Any], int, str]] = [
    ({"bank": "bnk_" + "0" * 26}, 404, "There is no bank 'bnk_"),
    ({"bank": "a/b"}, 422, "publish.bank: expected 1 to 200 characters without /"),
    ({"bank": "new", "carry_over": True}, 422, "publish.carry_over: expected false"),
]


async def test_unpublishable_calibrations_are_refused_before_they_start(client: Client) -> None:
    await recorded(client)
    for publish, status, told in UNPUBLISHABLE:
        await problem_of(
            client, URL, {"response_set": "arc", "publish": publish}, status, says=told
        )
        assert await listing(client, URL) == []


async def test_a_bank_shared_by_another_project_takes_no_versions(client: Client) -> None:
    await client.post("/v1/projects", json={"name": "other"})
    there = {"Sextant-Project": "other"}
    lent = await client.post("/v1/banks", json={"name": "lent", "shared": True}, headers=there)
    await recorded(client)
    asked = {"response_set": "arc", "publish": {"bank": lent.json()["id"]}}
    await problem_of(client, URL, asked, 404)


def test_a_stored_failure_may_lack_newer_fields() -> None:
    assert Failure.read({"code": "no_answers", "detail": "None."}).errors == []


async def test_drift_is_judged_from_a_response_set_and_by_a_calibration(
    client: Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.schemas.reports._AT_ONCE", 4)
    old = await world(app.state.services, n=800)
    url = "/v1/banks/living/versions/latest/drift"
    drift = await got(client, url, params={"response_set": "live", "limit": 10})
    DriftRead.model_validate(drift)
    assert (drift["scale"], len(drift["data"])) == ("old", 10)
    assert drift["figures"]["easier"] == sum(item["possibly_leaked"] for item in drift["data"]) > 0
    assert "has become easier" in drift["data"][0]["explanation"]
    await refusal_of(client.get(url))
    await refusal_of(client.get(url, params={"response_set": "none"}), 404)

    link = {"bank_version_id": old.version.id, "method": "fixed_anchor", "check_drift": True}
    body = {"response_set": "live", "model": "2pl", "link": link}
    made = await posted(client, URL, body, 202)
    await run(app, made["id"])
    result = (await got(client, f"{URL}/{made['id']}"))["result"]
    items = await listing(client, f"{URL}/{made['id']}/items", params={"limit": 100})
    assert result["drift"]["easier"] == sum(item["drifted"] is True for item in items) > 0
    link["method"] = "stocking_lord"
    await problem_of(client, URL, {**body, "link": link}, says="fixed_anchor")


async def test_guesses_can_be_revised(client: Client, app: FastAPI) -> None:
    lines = [{"key": f"q{j}", "prompt": f"{j}?", "target": "x", "difficulty": j} for j in range(3)]
    items = {"content": "\n".join(map(json.dumps, lines)), "name": "items.jsonl"}
    await client.post("/v1/banks", json={"name": "own"})
    imports = "/v1/banks/own/imports"
    await problem_of(client, imports, {"items": items}, says="say `provisional`")
    version = (await posted(client, imports, {"items": items, "provisional": True}, 201))["version"]
    assert version["provisional"] is True
    assert version["knowledge"]["provisional"]["n_examinees"] == 0
    assert "beliefs" not in version["knowledge"]["provisional"]
    offer = await got(client, "/v1/banks/own/versions/latest/recalibration")
    assert (offer["n_examinees"], offer["wanted"], offer["due"]) == (0, 30, False)

    await imported(app.state.services, "model,q0,q1,q2\na,1,1,0\nb,1,0,0\nc,0,1,1\n")
    asked = {"response_set": "answers", "prior_version_id": version["id"]}
    made = await posted(client, URL, asked, 202)
    assert made["settings"]["prior_version_id"] == version["id"]
    both = {**asked, "link": {"bank_version_id": version["id"]}}
    await problem_of(client, URL, both, says="has no setting link")


N_ASKED = 60


def records() -> FloatArray:
    """Return answers of eighty examinees, the weakest first."""
    rng = np.random.default_rng(5)
    theta, b = np.sort(rng.normal(0.0, 1.3, size=80)), rng.normal(size=N_ASKED)
    chances = 1.0 / (1.0 + np.exp(b - theta[:, None]))
    scores = (rng.random(chances.shape) < chances).astype(np.float64)
    return scores[np.argsort(scores.mean(axis=1), kind="stable")]


async def published(client: Client, app: FastAPI, scores: FloatArray) -> dict[str, Any]:
    """Publish a version calibrated on these scores; without a report card it takes a tenth."""
    head = ",".join(f"q{n}" for n in range(N_ASKED))
    rows = [f"m{i}," + ",".join(str(int(score)) for score in row) for i, row in enumerate(scores)]
    await recorded(client, "\n".join([f"model,{head}", *rows]))
    made = await started(client, model="1pl", filters={"least_point_biserial": None})
    await run(app, made["id"])
    return await posted(client, f"{URL}/{made['id']}:publish", {"bank": "arc"}, 201)


async def of_record(
    client: Client, scores: FloatArray, *, length: int = 36, seed: int = 3, **design: Any
) -> dict[str, Any]:
    """Create a session of an examinee that answers from its record."""
    body = {
        "mode": "manual",
        "bank": "arc",
        "seed": seed,
        "stopping": {"se": None, "min_items": 1, "max_items": length},
        **design,
    }
    session = await posted(client, "/v1/sessions", body)
    return await answered_by(
        client, session["id"], lambda key: {"score": float(scores[int(key.removeprefix("q"))])}
    )


async def test_an_examinee_beyond_the_references_is_told(client: Client, app: FastAPI) -> None:
    scores = records()
    version = await published(client, app, scores[:40])
    known = version["knowledge"]["curves"]
    assert set(known) >= {"abilities", "dispersion", "errors"}

    strong = await of_record(client, scores[77], selection={"criterion": "v_optimal"})
    assert strong["score"]["method"] == "combined"
    stands = strong["estimate"]["extrapolation"]
    assert (stands["standing"], stands["percentile"]) == ("above", 100.0)
    assert stands["caution"].startswith("This model is stronger than all")
    assert 0 < stands["odds"] <= 1e6
    assert stands["agrees"] == (stands["odds"] < 10)
    interval = strong["score"]["interval"]
    assert interval["lo"] <= scores[77].mean() <= interval["hi"]

    path = f"/v1/sessions/{strong['id']}"
    rows = await listing(client, f"{path}/responses")
    sampled = [row["probability"] for row in rows if row["probability"] < 1]
    # With forty reference models about half of the questions are sampled.
    assert len(rows) / 5 < len(sampled) < len(rows)
    assert all(chance > 0 for chance in sampled)
    assert stands["difference"] is not None
    page = (await client.get(f"{path}/report", params={"format": "html"})).text
    assert "stronger than all reference models" in page
    report = await got(client, f"{path}/report")
    assert "extrapolation" in {caution["code"] for caution in report["warnings"]}
    # The page rebuilds the test from the database and ends where the session ended.
    assert report["trace"][-1]["score"] == strong["score"]["value"]

    gate = {"session_id": strong["id"], "metric": "score", "threshold": 0.5}
    decided = await posted(client, "/v1/gates", gate)
    assert decided["extrapolation"] == stands
    assert stands["caution"] in decided["detail"]

    again = await posted(client, f"{path}:replay", {}, 201)
    assert again["score"] == strong["score"]
    assert again["estimate"]["extrapolation"] == stands

    older = await of_record(client, scores[77], length=12, prediction={"method": "p-irt"})
    assert older["score"]["method"] == "p-irt"
    guess = {"session_id": older["id"], "metric": "score", "threshold": 0.1}
    told = await posted(client, "/v1/gates", guess)
    assert (told["outcome"], "no valid intervals" in told["detail"]) == ("inconclusive", True)
    assert told["p_beyond"] is None

    fresh = {"session": {"mode": "manual", "bank": "arc"}, "metric": "score", "threshold": 0.5}
    gate = await posted(client, "/v1/gates", fresh)
    asked = await got(client, f"/v1/sessions/{gate['session_id']}")
    assert asked["design"]["selection"]["criterion"] == "v_optimal"

    usual = await of_record(client, scores[20])
    assert usual["score"]["method"] == "combined"
    assert usual["estimate"]["extrapolation"]["standing"] == "within"
    assert usual["estimate"]["extrapolation"]["caution"] is None
    # The page counts the weaker reference models as the session does.
    told = (await got(client, f"/v1/sessions/{usual['id']}/report"))["score"]["below"]
    assert 100 * told["value"] == usual["estimate"]["extrapolation"]["percentile"]
    assert told["interval"]["lo"] < told["value"] < told["interval"]["hi"]
