"""Planted secrets, searched for in everything that Sextant writes or returns."""

import asyncio
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from psycopg import sql

from app.records.api_keys import Scope
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage import binaries
from app.storage.backups import back_up
from app.storage.database import Database
from tests.api.calls import ended, got, listing
from tests.databases import libpq
from tests.values import not_none
from tests.waiting import waiting
from tests.worker.models import Faults
from tests.worker.test_secret_key import KEY_A, serve

PLANTED = {
    "the endpoint's key": "sk-planted-endpoint-0a1b2c3d",
    "its extra header": "planted-header-4e5f6a7b",
    "the judge's key": "sk-planted-judge-8c9d0e1f",
    "the webhook's secret": "cGxhbnRlZC1zZWNyZXQtb2YtYS13ZWJob29r",
}


def talkative(whose: str) -> dict[str, Any]:
    """Return an error that repeats all that a model server received."""
    sent = f"Bearer {PLANTED[whose]}, {PLANTED['its extra header']}"
    return {"error": {"message": f"refused: {sent}"}}


CHOICE = {"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}
ANSWER = {"choices": [CHOICE], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


def told_in(text: str, secrets: dict[str, str]) -> set[str]:
    return {what for what, secret in secrets.items() if secret in text}


def of_processes() -> str:
    """Return what any user can read of all processes: their arguments."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # none, or the process has ended
            continue
    return "\n".join(found)


def of_backup(file: Path) -> str:
    """Return a backup as SQL."""
    with zipfile.ZipFile(file) as archive:
        dump, manifest = archive.read("database.dump"), archive.read("manifest.json")
    program, _ = binaries.client("pg_restore", json.loads(manifest)["dumped_by"])
    done = subprocess.run([program, "--file=-"], input=dump, capture_output=True, check=True)
    return manifest.decode() + done.stdout.decode(errors="replace")


def of_rows(url: str) -> str:
    """Return all rows of all tables."""
    parts = []
    with psycopg.connect(libpq(url)) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables "
            "WHERE schemaname IN ('public', 'procrastinate')"
        ).fetchall()
        for schema, table in tables:
            query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, table))
            parts += [row[0] for row in connection.execute(query)]
    return "\n".join(parts)


async def made(client: httpx2.AsyncClient, path: str, body: object) -> Any:
    answer = await client.post(path, json=body, headers={"Idempotency-Key": uuid4().hex})
    assert answer.is_success, answer.text
    return answer.json()


async def delivered(client: httpx2.AsyncClient, webhook_id: str, event: str) -> None:
    path = f"/v1/webhooks/{webhook_id}/deliveries"
    async with waiting() as pause:
        while (event, "delivered") not in [
            (e["type"], e["status"]) for e in await listing(client, path)
        ]:
            await pause()


async def everything(client: httpx2.AsyncClient, ids: dict[str, str]) -> tuple[str, int]:
    """Return the responses of every GET route and page, and how many succeeded."""
    told, answered = [], 0
    routes = (await got(client, "/openapi.json"))["paths"]
    pages = ["/metrics", "/", "/audit", *(f"/sessions/{ids['session_id']}", "/endpoints")]
    paths = [
        path.format_map(ids)
        for path, route in routes.items()
        if "get" in route and ("bank" in ids or "{session_id}" in path)
    ]
    for path in [*paths, *pages]:
        if path.endswith("/events"):
            path += "?after=0"
        answer = await client.get(path, headers={"Accept": "application/json, text/html, */*"})
        answered += answer.is_success
        told.append(f"{answer.headers}\n{answer.text}")
    return "\n".join(told), answered


class Ids(dict[str, str]):
    """IDs for path parameters."""

    def __missing__(self, name: str) -> str:
        return "none"


@pytest.mark.slow
async def test_planted_secrets_are_found_nowhere(
    settings: Settings,
    database: Database,
    faults: Faults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database_url = not_none(settings.database_url)
    monkeypatch.setenv("SEXTANT_LOG_LEVEL", "debug")
    monkeypatch.setenv("SEXTANT_LOG_FORMAT", "json")
    faults.canned("said", ANSWER)
    faults.canned("talkative", talkative("the endpoint's key"), status=401)
    faults.canned("judging", talkative("the judge's key"), status=401)
    _, key = await ApiKeyService(database).create(name="all", scopes=[Scope.ADMIN])
    secrets = {**PLANTED, "the API key": key, "the secret key": KEY_A}
    async with serve(settings, key, KEY_A) as (client, log):
        given: dict[str, Any] = {"kind": "openai_chat", "model": "m"}
        given["api_key"] = PLANTED["the endpoint's key"]
        given["headers"] = {"X-Extra": PLANTED["its extra header"]}
        urls = {name: faults.at(name) for name in ("said", "talkative", "judging")}
        tested = {**given, "name": "first", "base_url": urls["said"]}
        first = await made(client, "/v1/endpoints", tested)
        judge = {**given, "name": "judge", "base_url": urls["judging"]}
        judge["api_key"] = PLANTED["the judge's key"]
        await made(client, "/v1/endpoints", judge)
        hook = {"url": f"{urls['said']}/chat/completions"}
        hook["secret"] = "whsec_" + PLANTED["the webhook's secret"]
        webhook = await made(client, "/v1/webhooks", hook)
        bank = await made(client, "/v1/banks", {"name": "exam"})
        scorer = {"name": "judge", "params": {"judges": ["judge"]}}
        judged = await made(client, "/v1/banks", {"name": "judged", "default_scorer": scorer})
        rows = [{"key": f"q{n}", "prompt": f"2+{n}?", "target": "4"} for n in range(3)]
        items = {
            "items": {"content": "\n".join(map(json.dumps, rows)), "name": "items.jsonl"},
            "parameters": {"content": "item,a,b,c,d\nq0,1,0,0,1\nq1,1,0,0,1\nq2,1,0,0,1\n"},
        }
        for each in (bank, judged):
            await made(client, f"/v1/banks/{each['id']}/imports", items)
        short = {"stopping": {"se": None, "max_items": 3, "min_items": 1}}
        inline = {**given, "base_url": urls["talkative"]}
        bodies = [
            {**short, "bank": "exam", "endpoint_id": first["id"]},
            {**short, "bank": "judged", "endpoint_id": first["id"]},
            {**short, "bank": "exam", "endpoint": inline},
        ]
        sessions = [(await made(client, "/v1/sessions", body))["id"] for body in bodies]
        for session_id in sessions:
            await ended(client, f"/v1/sessions/{session_id}", "completed", "failed", "waiting")
        await client.post(f"/v1/endpoints/{first['id']}:probe")

        told, processes = [], of_processes()
        others = {"bank": bank["id"], "version": "latest", "endpoint_id": first["id"]}
        others["webhook_id"] = webhook["id"]
        await delivered(client, webhook["id"], "session.failed")
        for number, session_id in enumerate(sessions):
            ids = Ids(session_id=session_id, project="default", **({} if number else others))
            said, answered = await everything(client, ids)
            assert answered >= (5 if number else 20)
            told.append(said)
    assert any(call.headers.get("authorization", "").endswith("0a1b2c3d") for call in faults.calls)
    assert any(call.headers.get("x-extra") for call in faults.calls)
    notices = [call for call in faults.calls if "webhook-id" in call.headers]

    backup = tmp_path / "all.backup"
    await asyncio.to_thread(back_up, database_url, backup)
    places = {
        "processes": processes,
        "webhooks": str(notices),
        "answers": "\n".join(told),
        "log": log.read_text(),
        "backup": of_backup(backup),
        "rows": of_rows(database_url),
    }
    assert '"level": "debug"' in places["log"] or '"level":"debug"' in places["log"]
    assert "COPY public.endpoints" in places["backup"]
    for where, text in places.items():
        assert told_in(text, secrets) == set(), where


def test_the_search_finds_what_is_there() -> None:
    secret = PLANTED["the endpoint's key"]  # a program with the secret in its arguments
    process = subprocess.Popen(
        ["sh", "-c", "echo up; read x", secret], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    try:
        assert told_in(of_processes(), PLANTED) == {"the endpoint's key"}
    finally:
        process.communicate(b"\n")
