"""API keys over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.api.calls import listing, posted, problem_of
from tests.api.conftest import Client

NEW = {"name": "ci", "scopes": ["read", "run"]}


async def test_a_new_key_works_and_its_secret_is_shown_once(
    client: Client, anonymous: Client
) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    created = await client.post("/v1/api-keys", json=NEW | {"expires_at": end.isoformat()})
    assert created.status_code == 201
    key = created.json()
    assert datetime.fromisoformat(key["expires_at"]) == end
    assert created.headers["location"] == f"/v1/api-keys/{key['id']}"
    assert key["scopes"] == ["read", "run"]
    listed = await client.get("/v1/api-keys")
    assert key["secret"] not in listed.text
    assert key["prefix"] == key["secret"][: len(key["prefix"])]
    assert key["id"] in {entry["id"] for entry in listed.json()["data"]}
    bearer = {"Authorization": f"Bearer {key['secret']}"}
    assert (await anonymous.get("/v1/endpoints", headers=bearer)).status_code == 200


async def test_a_revoked_key_is_refused_at_once_and_stays_listed(
    client: Client, anonymous: Client
) -> None:
    key = await posted(client, "/v1/api-keys", NEW)
    bearer = {"Authorization": f"Bearer {key['secret']}"}
    for _ in range(2):  # a second revocation changes nothing and is no error
        response = await client.delete(f"/v1/api-keys/{key['id']}")
        assert response.status_code == 204
    assert (await anonymous.get("/v1/endpoints", headers=bearer)).status_code == 401
    entries = {entry["id"]: entry for entry in await listing(client, "/v1/api-keys")}
    assert entries[key["id"]]["revoked_at"] is not None


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"scopes": []}, "/scopes"),
    ({"scopes": ["root"]}, "/scopes/0"),
    ({"name": ""}, "/name"),
    ({"name": " x"}, "/name"),
    ({"expires_at": "2001-01-01T00:00:00Z"}, "/expires_at"),
    ({"expires_at": "2101-01-01T00:00:00"}, "/expires_at"),
    ({"expires_at": 7}, "/expires_at"),
    ({"expires_at": "9999-12-31T23:59:59-14:00"}, "/expires_at"),  # the year 10000 in UTC
]


async def test_an_invalid_key_is_refused(client: Client) -> None:
    for change, pointer in SENSELESS:
        await problem_of(client, "/v1/api-keys", NEW | change, at=pointer)
