"""Drift over HTTP: reports of drift, and calibrations that flag it."""

import pytest
from fastapi import FastAPI

from app.api.schemas.drift import DriftRead
from tests.api.calls import got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client
from tests.services.calibrations import driven
from tests.services.test_recalibration import world

pytestmark = pytest.mark.usefixtures("fits_here")


async def test_drift_is_judged_from_a_response_set(
    client: Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.schemas.drift._AT_ONCE", 4)
    await world(app.state.services, n=800)
    url = "/v1/banks/living/versions/latest/drift"
    drift = await got(client, url, params={"response_set": "live", "limit": 10})

    assert drift["scale"] == "old"
    assert len(drift["data"]) == 10
    DriftRead.model_validate(drift)
    assert drift["figures"]["easier"] == sum(item["possibly_leaked"] for item in drift["data"]) > 0
    assert drift["data"][0]["z"] > 3
    assert "has become easier" in drift["data"][0]["explanation"]
    await refusal_of(client.get(url))
    await refusal_of(client.get(url, params={"response_set": "none"}), 404)


async def test_a_calibration_onto_a_version_flags_drifted_items(
    client: Client, app: FastAPI
) -> None:
    old = await world(app.state.services, n=800)
    link = {"bank_version_id": old.version.id, "method": "fixed_anchor", "check_drift": True}
    body = {"response_set": "live", "model": "2pl", "link": link}
    made = await posted(client, "/v1/calibrations", body, 202)
    await driven(app.state.services, made["id"])

    url = f"/v1/calibrations/{made['id']}"
    result = (await got(client, url))["result"]
    items = await listing(client, f"{url}/items", params={"limit": 100})
    version = await posted(client, f"{url}:publish", {"bank": "living"}, 201)
    assert result["drift"]["easier"] == sum(item["drifted"] is True for item in items) > 0
    assert version["scale"] == "old"
    assert version["calibration"]["drift"] == result["drift"]
    assert version["lint"]["findings"]["drift"] == result["drift"]["drifted"]
    link["method"] = "stocking_lord"
    await problem_of(client, "/v1/calibrations", {**body, "link": link}, says="fixed_anchor")
