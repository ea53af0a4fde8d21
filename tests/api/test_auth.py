"""Who may call, and what they may do."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx2
import pytest

from app.main import create_app
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from tests.api.conftest import Client, NewClient

NEW = {"name": "a", "kind": "scripted"}


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer  ", "Basic dXNlcjpwYXNz", "Bearer sxt_not-a-key", "sxt_x"],
)
async def test_a_request_without_a_known_key_gets_401(
    anonymous: Client, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = await anonymous.get("/v1/endpoints", headers=headers)
    assert response.status_code == 401
    assert response.json()["code"] == "unauthenticated"
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_the_scheme_is_read_without_regard_to_case(client: Client) -> None:
    secret = client.headers["authorization"].removeprefix("Bearer ")
    response = await client.get("/v1/endpoints", headers={"Authorization": f"bearer {secret}"})
    assert response.status_code == 200


async def test_revoked_and_expired_keys_get_401(
    anonymous: Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ApiKeyService(database)
    revoked, revoked_secret = await keys.create(name="old", scopes=["read"])
    await keys.revoke(revoked.id)
    soon = datetime.now(UTC) + timedelta(hours=1)
    _, expired_secret = await keys.create(name="short", scopes=["read"], expires_at=soon)

    later = SimpleNamespace(now=lambda _: soon + timedelta(seconds=1))
    monkeypatch.setattr("app.services.api_keys.datetime", later)
    for secret in (revoked_secret, expired_secret):
        response = await anonymous.get(
            "/v1/endpoints", headers={"Authorization": f"Bearer {secret}"}
        )
        assert response.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/endpoints", "read"),
        ("POST", "/v1/endpoints", "run"),
        ("PATCH", "/v1/endpoints/end_" + "0" * 26, "run"),
        ("GET", "/v1/scorers", "read"),
        ("GET", "/v1/api-keys", "admin"),
        ("POST", "/v1/api-keys", "admin"),
        ("DELETE", "/v1/api-keys/key_" + "0" * 26, "admin"),
    ],
)
async def test_a_key_without_the_scope_gets_403_and_is_told_which(
    client_with: NewClient, method: str, path: str, scope: str
) -> None:
    weak = await client_with("banks:write")
    body = NEW if method in ("POST", "PATCH") else None
    response = await weak.request(method, path, json=body)
    assert response.status_code == 403
    assert response.json()["code"] == "missing_scope"
    assert f"'{scope}'" in response.json()["detail"]


async def test_a_key_may_do_what_its_scope_says_and_no_more(client_with: NewClient) -> None:
    reader, runner = await client_with("read"), await client_with("run")
    assert (await reader.get("/v1/endpoints")).status_code == 200
    assert (await reader.post("/v1/endpoints", json=NEW)).status_code == 403
    assert (await runner.post("/v1/endpoints", json=NEW)).status_code == 201
    assert (await runner.get("/v1/endpoints")).status_code == 403


async def test_admin_includes_every_scope(client: Client) -> None:
    assert (await client.post("/v1/endpoints", json=NEW)).status_code == 201
    assert (await client.get("/v1/endpoints")).status_code == 200
    assert (await client.get("/v1/api-keys")).status_code == 200


async def test_a_stranger_is_refused_before_the_body_is_looked_at(anonymous: Client) -> None:
    response = await anonymous.post(
        "/v1/endpoints", content=b"{not json", headers={"content-type": "application/json"}
    )
    assert response.status_code == 401


async def test_authentication_can_be_off_on_loopback(
    database: Database, settings: Settings
) -> None:
    app = create_app(settings.model_copy(update={"auth": "off"}), database)
    async with (
        app.router.lifespan_context(app),
        Client(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client,
    ):
        assert (await client.get("/v1/api-keys")).status_code == 200


async def test_the_description_of_the_api_names_the_scheme_and_the_scopes(client: Client) -> None:
    schema = (await client.get("/openapi.json")).json()
    assert schema["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"
    assert schema["paths"]["/v1/api-keys"]["post"]["security"] == [{"ApiKey": ["admin"]}]
    assert "security" not in schema["paths"]["/healthz"]["get"]
