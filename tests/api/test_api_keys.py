"""API keys over HTTP, and their limits within their project."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI

from app.api.rates import let_in
from app.errors import TooManyRequestsError
from app.storage.database import Database
from tests.api.calls import answered, deleted, edited, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, client_of
from tests.api.test_limits import MANUAL, PROJECT, STREAM, paced
from tests.api.test_projects import Member, bank_made

NEW = {"name": "ci", "scopes": ["read", "run", "banks:write"]}
NONE: dict[str, float | None] = {
    **dict.fromkeys(("requests_per_s", "open_sessions", "event_streams")),
    **dict.fromkeys(("usd_per_day", "tokens_per_day", "stored_bytes")),
}


async def test_a_new_key_works_and_its_secret_shows_once(client: Client, anonymous: Client) -> None:
    end = datetime.now(UTC) + timedelta(days=1)
    created = await client.post("/v1/api-keys", json=NEW | {"expires_at": end.isoformat()})
    assert created.status_code == 201
    key = created.json()
    assert datetime.fromisoformat(key["expires_at"]) == end
    assert created.headers["location"] == f"/v1/api-keys/{key['id']}"
    assert key["scopes"] == ["banks:write", "read", "run"]
    listed = await client.get("/v1/api-keys")
    assert key["secret"] not in listed.text
    assert key["prefix"] == key["secret"][: len(key["prefix"])]
    assert key["id"] in {entry["id"] for entry in listed.json()["data"]}
    bearer = {"Authorization": f"Bearer {key['secret']}"}
    assert (await anonymous.get("/v1/endpoints", headers=bearer)).status_code == 200


async def test_a_revoked_key_is_refused_and_stays_listed(client: Client, anonymous: Client) -> None:
    key = await posted(client, "/v1/api-keys", NEW)
    bearer = {"Authorization": f"Bearer {key['secret']}"}
    assert (await anonymous.get("/v1/endpoints", headers=bearer)).status_code == 200
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


async def key_of(client: Client, **limits: float) -> tuple[str, dict[str, str]]:
    """Create a key with limits; return it and its header."""
    key = await posted(client, "/v1/api-keys", {**NEW, "limits": limits})
    assert key["limits"] == {**NONE, **limits}
    return key["id"], {"Authorization": f"Bearer {key['secret']}"}


async def limited(client: Client, key_id: str, **limits: float | None) -> dict[str, Any]:
    answer = await client.patch(f"/v1/api-keys/{key_id}", json={"limits": limits})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["limits"]
    return found


async def test_limits_are_set_one_by_one_and_taken_away(client: Client) -> None:
    key_id, own = await key_of(client, usd_per_day=2.5, open_sessions=0)
    path = f"/v1/api-keys/{key_id}"
    both = {**NONE, "usd_per_day": 2.5, "open_sessions": 3}
    assert await limited(client, key_id, open_sessions=3) == both
    assert (await client.patch(path, json={})).json()["limits"]["open_sessions"] == 3
    assert await limited(client, key_id, usd_per_day=None) == {**NONE, "open_sessions": 3}
    found = {key["id"]: key["limits"] for key in await listing(client, "/v1/api-keys")}
    assert found[key_id] == {**NONE, "open_sessions": 3}
    # Requests without effect are not in the trail.
    trail = await listing(client, "/v1/audit", params={"action": "update_api_key"})
    assert [entry["resources"] for entry in trail] == [[key_id], [key_id]]

    await client.delete(path)  # its sessions continue: the limit still counts them
    assert (await limited(client, key_id, tokens_per_day=1))["tokens_per_day"] == 1
    await refusal_of(client.patch(path, json={}, headers=own), 401)
    await refusal_of(client.get(f"{path}/spend", headers=own), 401)


SENSELESS_LIMITS = [
    ('{"usd_per_day": -1}', "expected a number > 0"),
    ('{"usd_per_day": 1e300}', "expected a number <= "),
    ('{"usd_per_day": NaN}', ""),
    ('{"tokens_per_day": 0}', "expected a number >= 1"),
    ('{"tokens_per_day": 1.5}', "whole number"),
    ('{"stored_bytes": 1e30}', ""),
    ('{"open_sessions": -1}', "expected a number >= 0"),
    ('{"requests_per_s": 0}', "expected a number >= 0.001"),
    ('{"requests_per_s": 1e-320}', "expected a number >= 0.001"),
    ('{"usd": 1}', "no such field; there are requests_per_s, "),
    ('{"event_streams": 5}', "expected at most 4, got 5"),
]


async def test_invalid_limits_are_refused(client: Client) -> None:
    key_id, _ = await key_of(client)
    await edited(client, PROJECT, limits={"event_streams": 4})
    kind = {"Content-Type": "application/json"}
    for limits, said in SENSELESS_LIMITS:
        for method, path, start in (
            ("PATCH", f"/v1/api-keys/{key_id}", "{"),
            ("POST", "/v1/api-keys", '{"name": "k", "scopes": ["run"], '),
        ):
            content = f'{start}"limits": {limits}}}'
            refused = await client.request(method, path, content=content, headers=kind)
            assert refused.status_code in (400, 422), (limits, refused.text)
            assert said in refused.text, limits
    assert (await limited(client, key_id, event_streams=4))["event_streams"] == 4


async def test_a_key_with_the_scope_admin_has_no_limits(client: Client) -> None:
    boss = {"name": "boss", "scopes": ["admin", "run"]}
    body = {**boss, "limits": {"usd_per_day": 1}}
    await problem_of(client, "/v1/api-keys", body, at="/limits")
    made = await posted(client, "/v1/api-keys", boss)
    path = f"/v1/api-keys/{made['id']}"
    limits = {"limits": {"usd_per_day": 1}}
    await refusal_of(client.patch(path, json=limits), says="makes and changes keys")


async def test_an_admin_limits_own_keys(client: Client, app: FastAPI, database: Database) -> None:
    theirs = Member(app, database, "theirs")
    key_id, _ = await key_of(client)
    async with await theirs.client("admin") as admin:
        own = await posted(admin, "/v1/api-keys", {**NEW, "limits": {"stored_bytes": 9}})
        assert (await limited(admin, own["id"], stored_bytes=8))["stored_bytes"] == 8
        await refusal_of(admin.patch(f"/v1/api-keys/{key_id}", json={}), 404)
        await refusal_of(admin.get(f"/v1/api-keys/{key_id}/spend"), 404)


async def test_running_sessions_of_a_key_are_limited(client: Client) -> None:
    await bank_made(client, "exam")
    key_id, own = await key_of(client, open_sessions=2)
    _, other = await key_of(client)
    begun = [(await client.post("/v1/sessions", json=MANUAL, headers=own)).json() for _ in range(2)]
    full = "This key has 2 sessions that have not ended, as many as it may have by its own"
    refused = client.post("/v1/sessions", json=MANUAL, headers=own)
    await refusal_of(refused, 429, "too_many_sessions", says=full)
    assert (await client.post("/v1/sessions", json=MANUAL, headers=other)).is_success
    await client.post(f"/v1/sessions/{begun[0]['id']}:cancel", headers=own)
    assert (await client.post("/v1/sessions", json=MANUAL, headers=own)).is_success
    await limited(client, key_id, open_sessions=None, event_streams=0)
    assert (await client.post("/v1/sessions", json=MANUAL, headers=own)).is_success
    stream = client.get(f"/v1/sessions/{begun[0]['id']}/events", headers={**own, **STREAM})
    await refusal_of(stream, 429, "too_many_streams")


async def test_storage_of_a_key_is_counted_and_limited(client: Client, app: FastAPI) -> None:
    key_id, own = await key_of(client)
    _, other = await key_of(client)

    async def stored(headers: dict[str, str]) -> int:
        spend = await got(client, "/v1/projects/default/spend", headers=headers)
        return int(spend["key"]["stored_bytes"]["spent"])

    async with client_of(app, own["Authorization"].removeprefix("Bearer ")) as mine:
        await bank_made(mine, "exam")
        items = await stored(own)
        assert items > 0
        assert await stored(other) == 0
        session = await posted(mine, "/v1/sessions", MANUAL)
        told = {"response": "x" * 1000}
        await answered(mine, session["id"], told, told)
        assert await stored(own) > items
        rows = {"content": "examinee,item,score\na,q1,1\nb,q1,0\n", "name": "a.csv"}
        sets = await posted(mine, "/v1/response-sets", {"name": "answers"})
        imported = f"/v1/response-sets/{sets['id']}/imports"
        await posted(mine, imported, {"files": [rows]})
        whole = await got(client, "/v1/projects/default/spend")
        assert whole["stored_bytes"]["spent"] == await stored(own)
        assert whole["key"] is None  # an admin of all projects

        await limited(client, key_id, stored_bytes=items)
        more = {"key": "new", "prompt": "?", "target": "x"}
        again = {"files": [{**rows, "content": "examinee,item,score\nc,q1,1\n"}]}
        for method, path, body in (
            ("POST", "/v1/sessions", MANUAL),
            ("POST", "/v1/banks/exam/items", more),
            ("POST", imported, again),
            ("PUT", "/v1/baselines/production", {"session_id": session["id"]}),
        ):
            refused = mine.request(method, path, json=body)
            await refusal_of(refused, 409, "storage_full", says="What this key made takes")
        # Other keys continue; their additions to a bank count for the key that created it.
        assert (await client.post("/v1/banks/exam/items", json=more, headers=other)).is_success
        assert await stored(other) == 0
        assert await stored(own) > items
        await mine.delete(f"/v1/sessions/{session['id']}")
        await deleted(mine, f"/v1/response-sets/{sets['id']}")
        whole = await got(client, "/v1/projects/default/spend")
        assert whole["stored_bytes"]["spent"] == await stored(own)
        assert (await deleted(mine, "/v1/banks/exam", erase=True)).is_success
        assert await stored(own) == 0
        await bank_made(mine, "exam")


def test_a_key_may_have_its_own_rate_limit() -> None:
    project = paced("prj_paced")
    for _ in range(20):
        let_in(project, "key_paced", 2.0, now=100.0)
    with pytest.raises(TooManyRequestsError, match="This key may send 2 requests") as refused:
        let_in(project, "key_paced", 2.0, now=100.0)
    assert refused.value.retry_after_s == pytest.approx(0.5)
    let_in(project, "key_other", now=100.0)
    let_in(project, "key_paced", 2.0, now=100.5)
    let_in(project, "key_paced", now=100.5)  # its limit was removed
