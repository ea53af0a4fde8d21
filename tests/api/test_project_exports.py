"""A project as one file: who gets it, what is in it, and that it comes in slices."""

import asyncio
import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from app.cli import build
from app.errors import DatabaseUnavailableError
from app.storage import project_exports
from app.storage.database import Database
from tests.api.conftest import Client
from tests.api.test_projects import Member, bank_made, posted

WORDS = "what nobody has seen"
WITHHELD = {"name": "exam", "visibility": "withheld", "description": "theirs"}


async def with_bank(member: Client) -> None:
    await posted(member, "/v1/banks", WITHHELD)
    for n in range(5):
        item = {"key": f"q{n}", "prompt": f"{WORDS} {n}", "target": "x"}
        await posted(member, "/v1/banks/exam/items", item)


def parts_of(content: bytes) -> dict[str, list[dict[str, object]]]:
    """Rows of each table, all of which are as the manifest says."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist()[-1] == "manifest.json"
        found = {}
        for name, part in json.loads(archive.read("manifest.json"))["parts"].items():
            lines = archive.read(f"{name}.jsonl")
            assert sha256(lines).hexdigest() == part["sha256"]
            found[name] = [json.loads(line) for line in lines.splitlines()]
            assert len(found[name]) == part["rows"]
        return found


async def test_a_project_is_given_to_its_admins_alone_and_its_trail_says_so(
    app: FastAPI, database: Database, client: Client
) -> None:
    theirs = Member(app, database, "theirs")
    writer, admin = await theirs.client("read", "run", "banks:write"), await theirs.client("admin")
    await with_bank(writer)
    await bank_made(client, "mine")
    path = "/v1/projects/theirs/export"
    assert (await writer.get(path)).status_code == 403
    other = await Member(app, database, "others").client("admin")
    refused, unknown = await other.get(path), await other.get("/v1/projects/nobody/export")
    assert (refused.status_code, unknown.status_code) == (404, 404)

    given = await admin.get(path)
    assert given.headers["content-type"] == "application/zip"
    assert 'filename="theirs.zip"' in given.headers["content-disposition"]
    parts = parts_of(given.content)
    assert [row["name"] for row in parts["banks"]] == ["exam"]
    assert WORDS in json.dumps(parts["items"])  # who may have the file may read the bank
    assert parts_of((await client.get(path)).content)["items"] == parts["items"]

    trail = (await admin.get(f"/v1/audit?resource={theirs.project_id}")).json()["data"]
    assert [(one["action"], one["path"]) for one in trail] == [("export_project", path)] * 2
    assert (await admin.get("/v1/projects/theirs")).status_code == 200
    assert len((await admin.get("/v1/audit")).json()["data"]) == 8  # other reading leaves none
    for each in (writer, admin, other):
        await each.aclose()


async def test_an_export_comes_in_slices_of_one_moment(
    app: FastAPI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Member(app, database, "theirs")
    writer = await theirs.client("read", "banks:write")
    await with_bank(writer)
    monkeypatch.setattr(project_exports, "_SLICE_BYTES", 1)
    monkeypatch.setattr(project_exports, "_FIRST_ROWS", 1)
    slices = project_exports.export_project(database.conninfo, theirs.project_id)
    taken = [await anext(slices)]
    tag = (await writer.get("/v1/banks/exam")).headers["etag"]
    gone = await writer.delete("/v1/banks/exam?erase=true", headers={"If-Match": tag})
    assert gone.status_code == 204
    taken += [block async for block in slices]
    assert len(parts_of(b"".join(taken))["items"]) == 5
    assert len(taken) > 10
    await writer.aclose()


async def test_small_rows_do_not_bring_many_large_ones_along(
    app: FastAPI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Member(app, database, "theirs")
    writer = await theirs.client("read", "banks:write")
    await with_bank(writer)
    for n in range(4):
        item = {"key": f"long{n}", "prompt": "x" * 3000, "target": "y"}
        await posted(writer, "/v1/banks/exam/items", item)
    monkeypatch.setattr(project_exports, "_LARGE_ROW", 2000)
    monkeypatch.setattr(project_exports, "_FIRST_ROWS", 2)
    condition = project_exports.PARTS["items"]
    async with await psycopg.AsyncConnection.connect(database.conninfo) as connection:
        read = project_exports._lines(connection, "items", condition, theirs.project_id)
        slices = [lines async for lines in read]
    keys = [[json.loads(line)["key"] for line in lines] for lines in slices]
    # In the order in which the table has them, which is nobody's promise.
    assert all(len(found) == 1 for found in keys if any(key.startswith("long") for key in found))
    assert any(len(found) > 1 for found in keys)
    assert sorted(key for found in keys for key in found) == [
        *(f"long{n}" for n in range(4)),
        *(f"q{n}" for n in range(5)),
    ]
    exported = project_exports.export_project(database.conninfo, theirs.project_id)
    assert len(parts_of(b"".join([block async for block in exported]))["items"]) == 9
    await writer.aclose()


async def test_who_takes_no_slice_for_long_holds_nothing_for_ever(
    app: FastAPI, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Member(app, database, "theirs")
    writer = await theirs.client("read", "banks:write")
    await with_bank(writer)
    monkeypatch.setattr(project_exports, "_PATIENCE", "1ms")
    slices = project_exports.export_project(database.conninfo, theirs.project_id)

    async def take_slowly() -> None:
        async for _ in slices:
            await writer.get("/v1/banks")

    with pytest.raises(DatabaseUnavailableError):
        await take_slowly()
    await writer.aclose()


async def test_the_command_writes_the_whole_file_or_none(
    app: FastAPI,
    database: Database,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = await Member(app, database, "theirs").client("read", "banks:write")
    await with_bank(writer)
    monkeypatch.setenv("DATABASE_URL", database_url)
    file = tmp_path / "theirs.zip"
    words = ["projects", "export", "theirs", str(file), "--server", "local"]
    told = await asyncio.to_thread(CliRunner().invoke, build("projects", "export"), words)
    assert (told.exit_code, f"Wrote {file}: 1 projects, 1 banks" in told.stdout) == (0, True)
    assert len(parts_of(file.read_bytes())["items"]) == 5
    again = await asyncio.to_thread(CliRunner().invoke, build("projects", "export"), words)
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)
    await writer.aclose()
