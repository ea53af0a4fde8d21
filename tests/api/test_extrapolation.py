"""A version calibrated on the weakest half measures a strong examinee: warned everywhere."""

from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from app.engine.bank import FloatArray
from tests.api.calls import got, listing, posted
from tests.api.conftest import Client
from tests.api.test_calibrations import URL, recorded, run, started

pytestmark = pytest.mark.usefixtures("fits_here")

N_ITEMS = 60


def records() -> FloatArray:
    """Return answers of eighty examinees, the weakest first."""
    rng = np.random.default_rng(5)
    theta, b = np.sort(rng.normal(0.0, 1.3, size=80)), rng.normal(size=N_ITEMS)
    chances = 1.0 / (1.0 + np.exp(b - theta[:, None]))
    scores = (rng.random(chances.shape) < chances).astype(np.float64)
    return scores[np.argsort(scores.mean(axis=1), kind="stable")]


async def published(client: Client, app: FastAPI, scores: FloatArray) -> dict[str, Any]:
    """Publish a version calibrated on these scores; without a report card it takes a tenth."""
    head = ",".join(f"q{n}" for n in range(N_ITEMS))
    rows = [f"m{i}," + ",".join(str(int(score)) for score in row) for i, row in enumerate(scores)]
    await recorded(client, "\n".join([f"model,{head}", *rows]))
    made = await started(client, model="1pl", filters={"least_point_biserial": None})
    await run(app, made["id"])
    return await posted(client, f"{URL}/{made['id']}:publish", {"bank": "arc"}, 201)


async def answered(
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
    path = f"/v1/sessions/{session['id']}"
    while session["status"] == "awaiting_response":
        item = await got(client, f"{path}/next-item")
        score = float(scores[int(item["item"]["id"].removeprefix("q"))])
        session = await posted(
            client, f"{path}/responses", {"step_token": item["step_token"], "score": score}
        )
    return session


async def test_an_examinee_beyond_the_reference_models_is_reported_everywhere(
    client: Client, app: FastAPI
) -> None:
    scores = records()
    version = await published(client, app, scores[:40])
    known = version["knowledge"]["curves"]
    assert set(known) >= {"abilities", "dispersion", "errors"}

    strong = await answered(client, scores[77], selection={"criterion": "v_optimal"})
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

    older = await answered(client, scores[77], length=12, prediction={"method": "p-irt"})
    assert older["score"]["method"] == "p-irt"
    guess = {"session_id": older["id"], "metric": "score", "threshold": 0.1}
    told = await posted(client, "/v1/gates", guess)
    assert (told["outcome"], "no valid intervals" in told["detail"]) == ("inconclusive", True)
    assert told["p_beyond"] is None

    fresh = {"mode": "manual", "bank": "arc"}
    started = {"session": fresh, "metric": "score", "threshold": 0.5}
    gate = await posted(client, "/v1/gates", started)
    asked = await got(client, f"/v1/sessions/{gate['session_id']}")
    assert asked["design"]["selection"]["criterion"] == "v_optimal"

    usual = await answered(client, scores[20])
    assert usual["score"]["method"] == "combined"
    assert usual["estimate"]["extrapolation"]["standing"] == "within"
    assert usual["estimate"]["extrapolation"]["caution"] is None
    # The page counts the weaker reference models as the session does.
    told = (await got(client, f"/v1/sessions/{usual['id']}/report"))["score"]["below"]
    assert 100 * told["value"] == usual["estimate"]["extrapolation"]["percentile"]
    assert told["interval"]["lo"] < told["value"] < told["interval"]["hi"]
