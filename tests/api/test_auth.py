"""Authentication and scopes."""

import re

import pytest

from app.deps import ScopeName
from tests.api.calls import got, refusal_of
from tests.api.conftest import Client, NewClient


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer  ", "Basic dXNlcjpwYXNz", "Bearer sxt_not-a-key", "sxt_x"],
)
async def test_a_request_without_known_key_gets_401(anonymous: Client, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = await anonymous.get("/v1/endpoints", headers=headers)
    assert response.status_code == 401
    assert response.json()["code"] == "unauthenticated"
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_the_scheme_is_read_without_regard_to_case(client: Client) -> None:
    secret = client.headers["authorization"].removeprefix("Bearer ")
    response = await client.get("/v1/endpoints", headers={"Authorization": f"bearer {secret}"})
    assert response.status_code == 200


#: Scope that changes a resource, by the first part of its path; all others need `run`.
WRITTEN_BY: dict[ScopeName, set[str]] = {
    "admin": {"api-keys", "projects", "webhooks"},
    "banks:write": {"banks", "calibrations", "catalog", "installations", "response-sets"},
}
NOT_BY_THEIR_PATH: dict[tuple[str, str], ScopeName] = {
    ("GET", "/v1/api-keys"): "admin",
    ("GET", "/v1/api-keys/{key_id}/spend"): "admin",
    ("GET", "/v1/audit"): "admin",
    ("GET", "/v1/audit/export"): "admin",
    ("GET", "/v1/projects"): "admin",
    ("GET", "/v1/webhooks"): "admin",
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): "admin",
    ("GET", "/v1/sessions/{session_id}/next-item"): "run",
    ("POST", "/v1/banks/{bank}/items/{item}:preview"): "run",
    ("POST", "/v1/banks/{bank}/items:match"): "read",
    ("POST", "/v1/banks/{bank}/versions/{version}:compose"): "read",
    ("POST", "/v1/banks/{bank}/versions/{version}:validate"): "read",
    ("POST", "/v1/comparisons"): "read",
    ("POST", "/v1/simulations"): "read",
}


def _needed(method: str, path: str) -> ScopeName:
    if (scope := NOT_BY_THEIR_PATH.get((method, path))) or method == "GET":
        return scope or "read"
    first = re.split("[/:]", path)[2]
    return next((scope for scope, paths in WRITTEN_BY.items() if first in paths), "run")


async def test_every_operation_refuses_keys_without_its_scope_and_says_which(
    client: Client, client_with: NewClient
) -> None:
    every: set[ScopeName] = {"read", "run", "banks:write"}
    others = {scope: await client_with(*every - {scope}) for scope in (*every, "admin")}
    paths = (await got(client, "/openapi.json"))["paths"]
    for path, method in ((p, m.upper()) for p, of in paths.items() for m in of if "/v1" in p):
        scope = _needed(method, path)
        kind = "application/x-ndjson" if path.endswith("items:batch") else "application/json"
        response = await others[scope].request(
            method, re.sub("{.*?}", "x", path), content="{}", headers={"Content-Type": kind}
        )
        assert (response.status_code, response.json()["code"]) == (403, "missing_scope"), path
        assert f"'{scope}'" in response.json()["detail"]


async def test_keys_are_checked_before_all_else(anonymous: Client) -> None:
    assert (await anonymous.get("/v1/banks?limt=5")).status_code == 401
    kind = {"content-type": "application/json"}
    call = anonymous.post("/v1/endpoints", content=b"{not json", headers=kind)
    await refusal_of(call, 401, "unauthenticated")


async def test_the_description_of_the_api_names_the_scheme_and_the_scopes(client: Client) -> None:
    schema = await got(client, "/openapi.json")
    assert schema["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"
    assert schema["paths"]["/v1/api-keys"]["post"]["security"] == [{"ApiKey": ["admin"]}]
    assert "security" not in schema["paths"]["/healthz"]["get"]
