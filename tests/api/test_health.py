"""Health probes and the description of the API."""

import asyncio
import threading
from importlib.metadata import version

import pytest
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings
from app.storage.database import Database
from tests.api.calls import got, refusal_of
from tests.api.conftest import Client, client_of


async def test_health_needs_no_key_and_tells_the_version(anonymous: Client) -> None:
    healthy = {"status": "ok", "version": version("sextant-server")}
    assert await got(anonymous, "/healthz") == healthy


async def test_a_migrated_database_makes_it_ready(anonymous: Client) -> None:
    assert (await got(anonymous, "/readyz"))["status"] == "ready"


async def test_without_tables_or_server_it_is_not_ready_but_healthy(
    settings: Settings, empty_database_url: str
) -> None:
    away = "postgresql+psycopg://nobody@127.0.0.1:9/none"
    for url, words in ((empty_database_url, "sextant migrate"), (away, "")):
        database = Database(url, pool_size=1)
        app = create_app(settings, database)
        async with app.router.lifespan_context(app), client_of(app) as client:
            unready = client.get("/readyz")
            await refusal_of(unready, 503, "database_unavailable", says=words)
            assert "retry-after" in (await client.get("/readyz")).headers
            assert (await client.get("/healthz")).status_code == 200
        await database.dispose()


async def test_metrics_count_requests_by_route_not_by_id(client: Client, anonymous: Client) -> None:
    await client.get("/v1/endpoints/end_" + "0" * 26)
    response = await anonymous.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    assert 'route="/v1/endpoints/{endpoint_id}",status="404"' in response.text
    assert "end_0" not in response.text


async def test_a_page_of_another_site_gets_no_access(anonymous: Client) -> None:
    response = await anonymous.get("/healthz", headers={"Origin": "https://elsewhere.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_there_are_no_pages_of_the_framework_and_no_redirects(client: Client) -> None:
    for path in ("/redoc", "/v1/endpoints/"):
        assert (await client.get(path)).status_code == 404


async def test_the_description_is_made_once_while_others_are_answered(
    app: FastAPI, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end, made = threading.Event(), threading.Event(), list[str]()

    def slow() -> dict[str, str]:
        began.set()
        made.append(threading.current_thread().name)
        assert may_end.wait(60)
        return {"openapi": "3.1.0"}

    monkeypatch.setattr(app, "openapi", slow)
    asked = [asyncio.create_task(client.get("/openapi.json")) for _ in range(2)]
    assert await asyncio.to_thread(began.wait, 60)
    assert (await client.get("/healthz")).status_code == 200
    may_end.set()
    assert [(await one).json() for one in asked] == [{"openapi": "3.1.0"}] * 2
    assert len(made) == 1


async def test_operation_ids_are_plain_names(app: FastAPI) -> None:
    ids = [
        operation["operationId"]
        for operations in app.openapi()["paths"].values()
        for operation in operations.values()
    ]
    assert "create_endpoint" in ids
    assert len(ids) == len(set(ids))
    assert all(name.replace("_", "").isalpha() for name in ids)
