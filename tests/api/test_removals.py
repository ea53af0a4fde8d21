"""Deletions: no table keeps texts of a deleted resource, and a refusal gives its reason."""

from typing import Any

import psycopg
import pytest
from fastapi import FastAPI
from psycopg import sql

from app.services.api_keys import ApiKeyService
from app.services.projects import ProjectService
from app.settings import Settings
from app.storage.database import Database
from tests.api.calls import bank_of, deleted, ended, posted, refusal_of
from tests.api.conftest import Client, client_of
from tests.api.test_webhooks import HOOK
from tests.databases import libpq
from tests.servers import serving
from tests.servers.fault_server import FaultServer

pytestmark = pytest.mark.usefixtures("working")

MARK = "xylophone-7391"


@pytest.fixture
def faults() -> FaultServer:
    body = (
        b'{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":'
        b'{"role":"assistant","content":"the xylophone-7391"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
    )
    return FaultServer(answers={"said": (200, {"content-type": "application/json"}, body)})


def rows_with(database_url: str, mark: str) -> set[str]:
    """Return `table.column` of every row with this text, stored as text or as bytes."""
    found = set()
    with psycopg.connect(libpq(database_url)) as connection:
        columns = connection.execute(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns "
            "JOIN information_schema.tables USING (table_schema, table_name) "
            "WHERE table_schema IN ('public', 'procrastinate') AND table_type = 'BASE TABLE'"
        ).fetchall()
        for schema, table, column in columns:
            query = sql.SQL(
                "SELECT count(*) FROM {} WHERE strpos({column}::text, {mark}) > 0 "
                "OR strpos({column}::text, encode({mark}::bytea, 'hex')) > 0"
            ).format(
                sql.Identifier(schema, table), column=sql.Identifier(column), mark=sql.Literal(mark)
            )
            counted = connection.execute(query).fetchone()
            if counted and counted[0]:
                found.add(f"{table}.{column}")
    return found


async def measured(client: Client, url: str, **changes: object) -> dict[str, Any]:
    """Create a bank with marked items, and a finished session with the mark in its answers."""
    items = [
        {"key": f"q{n}", "prompt": f"Which {MARK}?", "target": f"the {MARK}"} for n in range(3)
    ]
    numbers = "q0,1,0,0,1\nq1,1,0.1,0,1\nq2,1,0.2,0,1\n"
    bank = await bank_of(client, f"bank-{MARK}", items, numbers)
    body = {
        "bank": bank["id"],
        "endpoint": {
            "kind": "openai_chat",
            "base_url": f"{url}/said/v1",
            "model": f"model-{MARK}",
            "api_key": "sk-endpoint",
        },
        "stopping": {"se": None, "max_items": 3, "min_items": 1},
        "cache": True,
        **changes,
    }
    session = await posted(client, "/v1/sessions", body)
    session = await ended(client, f"/v1/sessions/{session['id']}")
    assert session["status"] == "completed", session
    return {"bank": bank, "session": session}


async def test_a_bank_and_its_sessions_leave_no_text(
    client: Client, settings: Settings, faults: FaultServer
) -> None:
    assert settings.database_url is not None
    with serving(faults.app) as url:
        made = await measured(client, url)
    bank, session = (f"/v1/{kind}s/{made[kind]['id']}" for kind in ("bank", "session"))
    assert rows_with(settings.database_url, MARK) >= {
        *("items.content", "administrations.answer_text", "kept_answers.answer"),
        "endpoints.model",
    }
    asked = {"session_id": made["session"]["id"], "threshold": 0.0}
    gate = await posted(client, "/v1/gates", asked)

    await refusal_of(deleted(client, bank, erase=True), 409, says=made["session"]["id"])
    assert (await client.get(bank)).status_code == 200, "what is refused changes nothing"

    assert (await deleted(client, bank)).status_code == 204
    kept = await client.get(f"{session}/report")
    assert kept.status_code == 200, "its sessions keep their results"
    assert "items.content" in rows_with(settings.database_url, MARK)
    assert (await deleted(client, session)).status_code == 204
    assert rows_with(settings.database_url, MARK) == set()
    assert rows_with(settings.database_url, gate["id"]) <= {"audit.resources", "audit.path"}


async def test_an_unused_bank_and_endpoint_go_at_once(client: Client, settings: Settings) -> None:
    assert settings.database_url is not None
    bank = await posted(client, "/v1/banks", {"name": f"b-{MARK}", "description": MARK})
    body = {"kind": "scripted", "model": MARK, "name": f"e-{MARK}"}
    endpoint = await posted(client, "/v1/endpoints", body)
    for path in (f"/v1/banks/{bank['id']}", f"/v1/endpoints/{endpoint['id']}"):
        assert (await deleted(client, path, erase=True)).status_code == 204
    assert rows_with(settings.database_url, MARK) == set()


async def test_an_endpoint_in_use_is_erased_with_its_last_session(
    client: Client, settings: Settings, faults: FaultServer
) -> None:
    assert settings.database_url is not None
    with serving(faults.app) as url:
        body = {"kind": "openai_chat", "base_url": f"{url}/said/v1", "model": "m", "name": "kept"}
        endpoint = await posted(client, "/v1/endpoints", body)
        made = await measured(client, url, endpoint=None, endpoint_id=endpoint["id"])
    path = f"/v1/endpoints/{endpoint['id']}"
    says = f"1 session ({made['session']['id']})"
    await refusal_of(deleted(client, path, erase=True), 409, says=says)
    assert (await deleted(client, path)).status_code == 204
    assert "endpoints.id" in rows_with(settings.database_url, endpoint["id"])
    assert (await deleted(client, f"/v1/sessions/{made['session']['id']}")).status_code == 204
    assert "endpoints.id" not in rows_with(settings.database_url, endpoint["id"])


async def test_a_project_is_erased_with_all_that_it_holds(
    app: FastAPI, client: Client, database: Database, settings: Settings, faults: FaultServer
) -> None:
    assert settings.database_url is not None
    project = await ProjectService(database).create("team", description=MARK)
    _, secret = await ApiKeyService(database).create(
        name=MARK, scopes=["admin"], project_id=project.id
    )
    async with client_of(app, secret) as theirs:
        with serving(faults.app) as url:
            made = await measured(theirs, url)
        manual = {"mode": "manual", "bank": made["bank"]["id"], "stopping": {"max_items": 2}}
        underway = await posted(theirs, "/v1/sessions", manual)
        again = {"Idempotency-Key": "once"}
        await theirs.post("/v1/response-sets", json={"name": MARK}, headers=again)
        await posted(theirs, "/v1/webhooks", {**HOOK, "url": f"http://127.0.0.1:9/{MARK}"})
        refused = deleted(client, "/v1/projects/team", erase=True)
        await refusal_of(refused, 409, says=underway["id"])
        assert "items.content" in rows_with(settings.database_url, MARK)
        await posted(theirs, f"/v1/sessions/{underway['id']}:cancel", None)
    assert (await deleted(client, "/v1/projects/team")).status_code == 409
    assert (await deleted(client, "/v1/projects/team", erase=True)).status_code == 204
    assert rows_with(settings.database_url, MARK) == set()
    left = {"audit.project_id", "audit.resources", "audit.path"}
    assert rows_with(settings.database_url, project.id) <= left


async def test_the_default_project_stays(client: Client) -> None:
    bank = await posted(client, "/v1/banks", {"name": "kept"})
    content = '{"key": "q", "prompt": "?", "target": "4", "a": 1, "b": 0}'
    await posted(client, "/v1/banks/kept/imports", {"items": {"content": content}})
    await posted(client, "/v1/sessions", {"mode": "manual", "bank": "kept"})
    refused = deleted(client, "/v1/projects/default", erase=True)
    await refusal_of(refused, 409, "invalid_state", says="always exists")
    assert (await client.get(f"/v1/banks/{bank['id']}")).status_code == 200
