"""Forecasts over HTTP."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi import FastAPI
from typer.testing import CliRunner

from app.cli.lab import simulate
from app.cli.lab.inputs import KnownBank
from app.demo.bank import demo_bank
from app.engine.knowledge import CURVES
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.errors import FileFormatError
from app.exchange.bundles import line
from app.services.banks.imports import BankImport
from app.services.results import simulations
from tests.api.calls import posted, problem_of
from tests.api.conftest import Client

pytestmark = pytest.mark.usefixtures("services")

URL = "/v1/simulations"
command = typer.Typer()
command.command()(simulate.command)


async def forecast_of(client: Client, **changes: Any) -> dict[str, Any]:
    body = {"bank": "demo", "n_examinees": 10, "stopping": {"se": None, "max_items": 8}, **changes}
    return await posted(client, URL, body, 200)


async def refused(client: Client, **changes: Any) -> dict[str, Any]:
    return await problem_of(client, URL, {"bank": "demo", "n_examinees": 30, **changes})


async def test_a_goal_that_few_tests_reach_is_reported(client: Client) -> None:
    stopping = {"score_margin": 0.01, "max_items": 12}
    found = await forecast_of(client, n_examinees=5, stopping=stopping)
    assert found["reached"] == 0.0
    assert "0 % of the simulated tests become as exact as asked for" in found["caution"]
    found = await forecast_of(client, n_examinees=5, stopping={"score_margin": 0.3})
    assert found["caution"] is None


async def test_items_cost_and_time_are_known_before_a_call(client: Client) -> None:
    price = {"input_per_1m": 1.0, "output_per_1m": 2.0}
    usual = {"tokens_in": 100, "tokens_out": 10, "latency_ms": 500}
    found = await forecast_of(client, price=price, concurrency=2, **usual)
    assert (found["population"], found["n_examinees"]) == ("prior", 10)
    assert found["items"]["median"] == 8
    assert found["seconds"]["median"] == 2
    assert found["stop_reasons"] == {"max_items": 1}
    assert "with at least 8 scored answers (min_items)" in found["stops_when"]
    assert found["usd"]["median"] > 0
    assert found["design"]["stopping"]["max_items"] == 8
    assert await forecast_of(client) == await forecast_of(client)
    assert (await forecast_of(client, seed=1))["se"] != (await forecast_of(client))["se"]


async def test_tokens_of_the_request_replace_those_of_the_bank(client: Client) -> None:
    price = {"input_per_1m": 1.0, "output_per_1m": 1.0}
    given = await forecast_of(client, price=price, tokens_in=4000, tokens_out=50)
    assert given["tokens"]["median"] == 8 * 4050
    assert (await forecast_of(client, price=price))["tokens"]["median"] < 8 * 4050


async def test_a_saved_endpoint_gives_its_price_and_limits(client: Client) -> None:
    body = {"name": "priced", "kind": "scripted", "model": "simulated", "limits": {"rpm": 30}}
    body["price"] = {"input_per_1m": 10.0, "output_per_1m": 0.0}
    usual = {"tokens_in": 50, "tokens_out": 5, "latency_ms": 100}
    endpoint = await posted(client, "/v1/endpoints", body, 201)
    found = await forecast_of(client, endpoint_id=endpoint["id"], **usual)
    assert found["seconds"]["median"] == pytest.approx(8 * 2)
    assert found["usd"]["median"] > 0
    await problem_of(client, URL, {"bank": "demo", "endpoint_id": "end_none"}, 404)


async def test_examinees_are_drawn_like_the_reference_models(client: Client, app: FastAPI) -> None:
    twice = IntervalFactor(answers=(1,), factor=(2.0,), usual=(1.0,), power=0.0)
    correction = IntervalCorrection(theta=twice, n_examinees=99)
    knowledge = {
        "interval_correction": correction.to_dict(),
        "reference_abilities": {"n_examinees": 99, "quantiles": [2.0, 2.5, 3.0]},
    }
    banks = app.state.services.banks
    await banks.create_version("demo", BankImport(parameters=demo_bank().item_bank()))
    plain = await forecast_of(client, thetas=[0.0, 1.0])
    assert (plain["population"], plain["n_examinees"]) == ("given", 2)
    await banks.create_version(
        "demo", BankImport(parameters=demo_bank().item_bank(), knowledge=knowledge)
    )
    found = await forecast_of(client)
    assert found["population"] == "reference"
    assert [region["theta_lo"] for region in found["regions"]] == [1.5]
    corrected = await forecast_of(client, thetas=[0.0, 1.0])
    assert corrected["interval"]["median"] == pytest.approx(2 * plain["interval"]["median"])
    assert (await forecast_of(client, population="prior"))["population"] == "prior"


async def test_what_cannot_be_forecast_is_refused_with_the_reason(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = await refused(client, population="reference")
    assert reference["errors"][0]["pointer"] == "/population"
    budget = await refused(client, budget={"seconds": 60})
    assert "give latency_ms" in budget["detail"]
    coarse = await refused(client, estimator={"nodes": 3, "range": [-4, 4]})
    assert "at least 17 nodes" in coarse["detail"]
    both = await refused(client, thetas=[0.0], population="prior")
    assert "not both" in str(both)
    monkeypatch.setattr(simulations, "MAX_ITEMS", 100)
    long = await refused(client, stopping={"max_items": 10})
    assert "set n_examinees to 10 or fewer" in long["detail"]
    await problem_of(client, URL, {"bank": "nobody"}, 404)


async def test_a_bundle_gives_the_same_forecast_without_a_server(
    client: Client, tmp_path: Path
) -> None:
    asked = {"stopping": {"score_margin": 0.05}, "n_examinees": 8}
    over_rest = await forecast_of(client, **asked)
    files = {"bundle": tmp_path / "demo.sextant-bank.jsonl", "export": tmp_path / "demo.csv"}
    offline, said = {}, {}
    for way, path in files.items():
        path.write_bytes((await client.get(f"/v1/banks/demo/versions/latest/{way}")).content)
        out = tmp_path / f"{way}.json"
        flags = ["--bank", path, "--margin", "5", "--examinees", "8", "--json", out]
        result = await asyncio.to_thread(CliRunner().invoke, command, list(map(str, flags)))
        assert result.exit_code == 0, result.output
        offline[way], said[way] = json.loads(out.read_text())["forecast"], result.output
    assert {name: over_rest[name] for name in ("items", "margin", "reached")} == {
        name: offline["bundle"][name] for name in ("items", "margin", "reached")
    }
    assert offline["export"]["margin"]["median"] > 1.05 * offline["bundle"]["margin"]["median"]
    assert "demo.csv carries no reference models" in " ".join(said["export"].split())
    assert "carries no" not in said["bundle"]

    # A changed bundle can be hashed again.
    head, bank, version, *rest, _ = files["bundle"].read_bytes().splitlines(keepends=True)
    odd = json.loads(version)
    odd["version"]["knowledge"][CURVES] = ["of nobody"]
    text = b"".join([head, bank, line(odd), *rest])
    files["bundle"].write_bytes(text + line({"sha256": hashlib.sha256(text).hexdigest()}))
    with pytest.raises(FileFormatError, match="its facts about the version cannot be read"):
        KnownBank.load(files["bundle"])
