"""Installations in a worker: downloaded, watched, cancelled, taken over, and never partial."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from app.main import create_app
from app.services.api_keys import ApiKeyService
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.api.calls import answered, got, listing, posted, problem_of
from tests.api.conftest import Client, client_of
from tests.servers.hub import COMMIT, DATASET, Hub, served_as_the_hub
from tests.services.catalog import (
    PARAMETERS,
    QUESTIONS,
    agents_entry,
    at,
    sha256,
    solved,
    write_entry,
)
from tests.waiting import waiting

OTHER_FILE = "is not the file that the catalogue's entry names"


@pytest.fixture
def hub() -> Hub:
    return Hub(files={"test.jsonl": QUESTIONS, "main/test.jsonl": QUESTIONS, "irt.csv": PARAMETERS})


@pytest.fixture
def url(hub: Hub, tmp_path: Path) -> Iterator[str]:
    with served_as_the_hub(hub, tmp_path / "hf") as url:
        write_entry(
            tmp_path / "catalog",
            questions=f'{{dataset = "{DATASET}", revision = "{COMMIT}", path = "main/test.jsonl", '
            f'sha256 = "{sha256(QUESTIONS)}"}}, {at(url, QUESTIONS, "test.jsonl")}',
            parameters=at(url, PARAMETERS, "irt.csv"),
        )
        yield url


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, url: str) -> Settings:
    return settings.model_copy(update={"catalog": tmp_path / "catalog"})


@pytest.fixture
async def app(settings: Settings, database: Database, helpers_stay: None) -> AsyncIterator[FastAPI]:
    app = create_app(settings, database)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def client(app: FastAPI, database: Database) -> AsyncIterator[Client]:
    """Return a client of the API with all scopes."""
    _, secret = await ApiKeyService(database).create(name="test", scopes=["admin"])
    async with client_of(app, secret) as client:
        yield client


@pytest.fixture
def services(app: FastAPI) -> Services:
    found: Services = app.state.services
    return found


async def until(
    client: Client, name: str, ready: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    found: dict[str, Any]
    async with waiting(120) as pause:
        while not ready(found := await got(client, f"/v1/installations/{name}")):
            await pause()
    return found


def ended(found: dict[str, Any]) -> bool:
    return found["finished_at"] is not None


async def installed(client: Client, name: str = "small") -> dict[str, Any]:
    started = await posted(client, f"/v1/catalog/{name}:install", None)
    return await until(client, started["id"], ended)


async def half_way(client: Client, hub: Hub) -> str:
    """Start an installation whose second file never arrives in whole; return its id."""
    hub.held.add("irt.csv")
    started = await posted(client, "/v1/catalog/small:install", None)
    await until(client, started["id"], lambda found: found["progress"]["file"] == "irt.csv")
    return str(started["id"])


async def names(client: Client) -> list[str]:
    return [bank["name"] for bank in await listing(client, "/v1/banks")]


async def test_a_bank_is_installed_by_its_name(
    client: Client, services: Services, hub: Hub
) -> None:
    assert {"gsm8k", "small"} <= {entry["name"] for entry in await listing(client, "/v1/catalog")}
    started = await client.post("/v1/catalog/small:install")
    assert started.status_code == 202
    assert started.headers["location"] == f"/v1/installations/{started.json()['id']}"
    twice = (await client.post("/v1/catalog/small:install")).json()
    assert twice["id"] == started.json()["id"]
    async with running_worker(services):
        done = await until(client, started.json()["id"], ended)
        assert done["status"] == "completed", done["failure"]
        assert done["result"]["items"] == {"active": 5, "quarantined": 1, "pretest": 0}
        entry = await got(client, "/v1/catalog/small")
        assert entry["bank_id"] == done["result"]["bank_id"]
        asked = Counter(hub.asked)
        again = await installed(client)
        assert again["result"]["was_there"]
        assert hub.asked == asked  # everything was in the cache
    assert (await client.get("/v1/catalog/smalll")).status_code == 404


async def test_a_failure_is_one_sentence_and_the_same_call_continues(
    client: Client, services: Services, hub: Hub
) -> None:
    async with running_worker(services):
        hub.files["irt.csv"] = PARAMETERS.replace(b"1.5", b"1.4")
        changed = await installed(client)
        assert changed["status"] == "failed"
        assert f"irt.csv {OTHER_FILE}" in changed["failure"]["detail"]
        hub.files["irt.csv"] = PARAMETERS
        del hub.files["main/test.jsonl"]
        hub.cuts["test.jsonl"] = 1
        assert await names(client) == []
        assert (await installed(client))["status"] == "completed"
    assert await names(client) == ["small"]


async def test_cancelling_makes_no_bank(client: Client, services: Services, hub: Hub) -> None:
    async with running_worker(services):
        cancel = f"/v1/installations/{await half_way(client, hub)}:cancel"
        assert (await posted(client, cancel, None))["status"] == "cancelled"
        assert (await client.post(cancel)).status_code == 409
        hub.held.clear()
        assert (await installed(client))["status"] == "completed"


async def test_a_stopped_worker_hands_it_over(client: Client, services: Services, hub: Hub) -> None:
    async with running_worker(services):
        started = await half_way(client, hub)
    assert await names(client) == []
    hub.held.clear()
    async with running_worker(services):
        assert (await until(client, started, ended))["status"] == "completed"
    assert await names(client) == ["small"]
    assert any(wanted.startswith("bytes=") for path, wanted in hub.ranges if path == "irt.csv")


async def test_without_a_known_hash_the_hash_of_the_hub_is_checked(
    client: Client, services: Services, hub: Hub, tmp_path: Path
) -> None:
    path = tmp_path / "catalog/small.toml"
    entry = path.read_text()
    path.write_text(entry.replace(f', sha256 = "{sha256(QUESTIONS)}"}}, {{url', "}, {url", 1))
    hub.wrong.add("main/test.jsonl")
    async with running_worker(services):
        wrong = await installed(client)
        assert wrong["status"] == "failed"
        assert f"test.jsonl {OTHER_FILE}" in wrong["failure"]["detail"]
        hub.wrong.clear()
        done = await installed(client)
    assert done["result"]["files"]["questions"]["checked_by"] == "hub"


async def test_results_of_agents_are_calibrated_after_the_download(
    client: Client, services: Services, hub: Hub, tmp_path: Path, url: str
) -> None:
    content = solved()
    hub.files["responses.jsonl"] = content.replace(b": 1", b": 2", 1)
    source = f'{{url = "{url}/plain/responses.jsonl"}}'
    (tmp_path / "catalog/agents.toml").write_text(agents_entry(source))
    async with running_worker(services):
        faulty = await installed(client, "agents")
        assert "responses.jsonl, line 1: expected 0 or 1" in faulty["failure"]["detail"]
        assert await names(client) == []
        hub.files["responses.jsonl"] = content
        done = await installed(client, "agents")
    result = done["result"]
    assert result["files"]["responses"]["checked_by"] == "content"
    assert result["files"]["responses"]["sha256"] == sha256(content)
    assert (result["agents"], result["rows"], result["was_there"]) == (19, 16, False)
    calibrated = await got(client, f"/v1/calibrations/{result['calibration_id']}")
    assert calibrated["bank_version_id"] == result["bank_version_id"]
    assert calibrated["result"]["kept"]["examinees"] == 19
    entry = await got(client, "/v1/catalog/agents")
    assert (entry["agents"], entry["asked"]) == (19, None)

    endpoint = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    asked = {"bank": "agents", "endpoint": endpoint}
    await problem_of(client, "/v1/sessions", asked, says="no endpoint can be asked", at="/bank")
    stopping = {"min_items": 8, "max_items": 8}
    body = {"bank": "agents", "mode": "manual", "concurrency": 8, "stopping": stopping}
    session = await posted(client, "/v1/sessions", body)
    session = await answered(client, session["id"], *[{"score": 1.0}] * 8)
    assert session["headline"]["recent"] == {
        "since": "2025-12-01",
        "agents": 19,
        "better_than": pytest.approx(1.0, abs=0.2),
    }


async def test_faults_of_a_withheld_entry_quote_nothing(
    client: Client, services: Services, hub: Hub, tmp_path: Path
) -> None:
    path = tmp_path / "catalog/small.toml"
    path.write_text(path.read_text().replace('"MIT"', '"MIT"\nvisibility = "withheld"'))
    hub.files["irt.csv"] = PARAMETERS + b"\n"
    async with running_worker(services):
        failure = (await installed(client))["failure"]
    assert "Its bank is withheld" in failure["detail"]
    assert "irt.csv" not in failure["detail"]
