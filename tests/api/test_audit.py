"""The audit trail: who changed what, and whose requests workers carry out."""

import json
from typing import Any
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, event
from structlog.typing import EventDict

from app.records.api_keys import AuditFilter
from app.services.projects import ProjectService
from app.storage.database import Database
from app.storage.paging import PageRequest
from app.worker.loop import running_worker
from tests.api.calls import answered, listing, posted
from tests.api.conftest import Client
from tests.api.test_projects import Member, bank_made, furnished
from tests.databases import libpq
from tests.waiting import waiting


async def trail(client: Client, query: str = "") -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/audit?order=asc&limit=100{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_each_change_has_one_entry_with_key_and_request(
    client: Client, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = await bank_made(client, "exam")
    head = {"If-Match": '"1"', "X-Request-Id": "mine-1"}
    await client.patch("/v1/banks/exam", json={"description": "x"}, headers=head)
    manual = {"mode": "manual", "bank": "exam", "stopping": {"max_items": 2}}
    session = await posted(client, "/v1/sessions", manual)
    await answered(client, session["id"], {"response": "x"})
    await client.post(f"/v1/sessions/{session['id']}:cancel")
    key = await posted(client, "/v1/api-keys", {"name": "k", "scopes": ["read"]})
    await client.delete(f"/v1/api-keys/{key['id']}")
    assert (await client.post("/v1/banks", json={"name": "exam"})).status_code == 409
    assert (await client.get("/v1/banks/exam")).status_code == 200

    entries = await trail(client)
    assert [(entry["action"], entry["path"]) for entry in entries] == [
        ("create_bank", "/v1/banks"),
        ("import_into_bank", "/v1/banks/exam/imports"),
        ("update_bank", "/v1/banks/exam"),
        ("create_session", "/v1/sessions"),
        ("answer_item", f"/v1/sessions/{session['id']}/responses"),
        ("cancel_session", f"/v1/sessions/{session['id']}:cancel"),
        ("create_api_key", "/v1/api-keys"),
        ("revoke_api_key", f"/v1/api-keys/{key['id']}"),
    ]
    assert all(bank["id"] in entry["resources"] for entry in entries[:3])
    assert entries[2]["request_id"] == "mine-1"
    assert all(session["id"] in entry["resources"] for entry in entries[3:6])
    assert key["id"] in entries[6]["resources"]
    assert {entry["key_id"] for entry in entries} == {bank["created_by"]}
    assert [entry["action"] for entry in await trail(client, f"&resource={session['id']}")] == [
        "create_session",
        "answer_item",
        "cancel_session",
    ]
    for size in (250, len(entries), 2):
        monkeypatch.setattr("app.api.routers.api_keys._PAGE", size)
        exported = (await client.get("/v1/audit/export")).text.splitlines()
        assert [json.loads(line) for line in exported] == entries
    assert key["secret"] not in json.dumps(entries)

    told = [line for line in logs if line["event"] == "request"]
    assert all(line["key_id"] == bank["created_by"] and line["request_id"] for line in told)


async def test_the_trail_of_a_resource_is_found_by_id_name_or_path(client: Client) -> None:
    bank = await bank_made(client, "exam")
    await posted(client, "/v1/banks", {"name": "exam2"})
    manual = {"mode": "manual", "bank": "exam", "stopping": {"max_items": 2}}
    session = (await posted(client, "/v1/sessions", manual))["id"]
    await client.post(f"/v1/sessions/{session}:cancel")
    into_bank, cancelled = "/v1/banks/exam/imports", f"/v1/sessions/{session}:cancel"
    for resource, actions in {
        bank["id"]: ["create_bank", "import_into_bank"],
        "exam": ["import_into_bank"],
        into_bank: ["import_into_bank"],
        session: ["create_session", "cancel_session"],
        cancelled: ["cancel_session"],
        "exa": [],
        "%": [],
    }.items():
        told = await trail(client, f"&resource={quote(resource, safe='')}")
        assert [entry["action"] for entry in told] == actions, resource


async def test_resources_with_the_longest_names_are_found_in_the_trail(client: Client) -> None:
    # Names that do not compress: random characters of four bytes each.
    signs = [chr(0x20000 + sign) for sign in np.random.default_rng(1).permutation(40_000)]
    name, key = "".join(signs[:200]), "".join(signs[200:712])
    await posted(client, "/v1/banks", {"name": name})
    items = f"/v1/banks/{quote(name)}/items"
    await posted(client, items, {"key": key, "prompt": "?", "target": "!"})
    gone = await client.delete(f"{items}/{quote(key)}", headers={"If-Match": '"1"'})
    assert gone.status_code == 204, gone.text
    told = await trail(client, f"&resource={quote(name)}")
    assert [entry["action"] for entry in told] == ["create_item", "delete_item"]


async def test_the_trail_of_a_resource_has_an_index(database: Database, database_url: str) -> None:
    asked: list[tuple[str, Any]] = []

    def watch(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        asked.append((statement, values))

    event.listen(Engine, "before_cursor_execute", watch)
    async with database.unit_of_work() as uow:
        await uow.audit.page(PageRequest(limit=100), AuditFilter(resource="ses_1"))
    event.remove(Engine, "before_cursor_execute", watch)
    with psycopg.connect(libpq(database_url)) as connection:
        # Statistics as if the table had a million entries.
        connection.execute("SET enable_seqscan = off; SET enable_indexscan = off")
        plan = connection.execute(f"EXPLAIN {asked[0][0]}".encode(), asked[0][1]).fetchall()
    assert "ix_audit_names" in str(plan)


async def test_projects_have_own_trails(app: FastAPI, database: Database, client: Client) -> None:
    member = await Member(app, database, "theirs").client("admin")
    await bank_made(client, "mine")
    await bank_made(member, "theirs")
    assert {entry["project_id"] for entry in await trail(member)} == {
        (await ProjectService(database).find("theirs")).id
    }
    assert len(await trail(client)) == 4
    reader = await Member(app, database, "readers").client("read", "run", "banks:write")
    assert (await reader.get("/v1/audit")).status_code == 403


async def test_the_trail_cannot_be_changed(client: Client, database_url: str) -> None:
    await posted(client, "/v1/banks", {"name": "exam"})
    with psycopg.connect(libpq(database_url), autocommit=True) as connection:
        for statement in ("UPDATE audit SET key_id = 'x'", "DELETE FROM audit", "TRUNCATE audit"):
            with pytest.raises(psycopg.errors.RaiseException, match="added to"):
                connection.execute(statement)
    assert len(await trail(client)) == 1


ENDS = ("session_ended", "ranking_ended", "calibration_completed")


@pytest.mark.usefixtures("fits_here")
async def test_a_workers_lines_bear_the_id_of_the_request_that_made_the_work(
    app: FastAPI, database: Database, logs: list[EventDict]
) -> None:
    member = Member(app, database, "theirs")
    made = await furnished(member)
    async with running_worker(app.state.services), waiting(240) as pause:
        while not {*ENDS} <= {line["event"] for line in logs}:
            await pause()
    async with await member.client("admin") as client:
        for kind, route, event in zip(
            ("session", "ranking", "calibration"),
            ("create_session", "create_ranking", "create_calibration"),
            ENDS,
            strict=True,
        ):
            trail = await listing(client, "/v1/audit", params={"action": route})
            requests = {entry["resources"][0]: entry["request_id"] for entry in trail}
            lines = [line for line in logs if line["event"] == event]
            assert lines
            for line in lines:
                assert requests[line[f"{kind}_id"]] == line["request_id"], line
                assert line["key_id"].startswith("key_")
    assert made["ranking_id"] in {line.get("ranking_id") for line in logs}
