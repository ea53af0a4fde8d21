"""Provisional banks over HTTP: guessed difficulties, revised by answers."""

import json

import numpy as np
import pytest
from fastapi import FastAPI

from tests.api.calls import got, listing, posted, problem_of
from tests.api.conftest import Client
from tests.services.calibrations import driven, imported

pytestmark = pytest.mark.usefixtures("fits_here")

N = 20


def table() -> str:
    """Return answers of 40 models; later items are harder."""
    rng = np.random.default_rng(2)
    theta, b = rng.normal(size=(40, 1)), np.linspace(-1.5, 1.5, N)
    right = rng.random((40, N)) < 1 / (1 + np.exp(-1.5 * (theta - b)))
    rows = [f"m{i}," + ",".join("01"[int(x)] for x in row) for i, row in enumerate(right)]
    return "\n".join([",".join(["examinee", *(f"q{j}" for j in range(N))]), *rows])


async def test_a_provisional_import_can_be_revised(client: Client, app: FastAPI) -> None:
    lines = [
        {"key": f"q{j}", "prompt": f"{j} + {j}?", "target": str(2 * j), "difficulty": -(j % 5)}
        for j in range(N)
    ]
    items = {"content": "\n".join(map(json.dumps, lines)), "name": "items.jsonl"}
    await client.post("/v1/banks", json={"name": "own"})
    imports, latest = "/v1/banks/own/imports", "/v1/banks/own/versions/latest"
    await problem_of(client, imports, {"items": items}, says="say `provisional`")
    made = await posted(client, imports, {"items": items, "provisional": True}, 201)
    version = made["version"]
    offer = await got(client, f"{latest}/recalibration")

    assert version["provisional"] is True
    assert version["knowledge"]["provisional"]["n_examinees"] == 0
    assert "beliefs" not in version["knowledge"]["provisional"]
    assert (offer["n_examinees"], offer["wanted"], offer["due"]) == (0, 30, False)

    await imported(app.state.services, table())
    asked = {"response_set": "answers", "prior_version_id": version["id"]}
    created = await posted(client, "/v1/calibrations", asked)
    await driven(app.state.services, created["id"])
    result = (await got(client, f"/v1/calibrations/{created['id']}"))["result"]
    await posted(client, f"/v1/calibrations/{created['id']}:publish", {"bank": "own"}, 201)
    again = await got(client, f"{latest}/recalibration")
    rows = await listing(client, f"{latest}/items?limit=100")
    report = await got(client, f"{latest}/report")

    assert result["local_dependence"] is None
    assert again["provisional"]["n_examinees"] == 40
    assert again["provisional"]["widening"] < offer["provisional"]["widening"]
    assert again["wanted"] == 60
    assert np.corrcoef([row["b"] for row in rows], np.arange(N))[0, 1] > 0.9
    assert "answers of 40 examinees" in report["summary"][1]
    both = {**asked, "link": {"bank_version_id": version["id"]}}
    await problem_of(client, "/v1/calibrations", both, says="has no setting link")
