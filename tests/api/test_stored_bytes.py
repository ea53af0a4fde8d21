"""Stored bytes of a project are counted after imports, edits, copies and deletions."""

from sqlalchemy import text

from app.acting import DEFAULT_PROJECT
from app.storage.database import Database
from app.storage.scoping import of_opened
from tests.api.calls import answered, got, posted, problem_of
from tests.api.conftest import Client
from tests.api.test_limits import MANUAL
from tests.api.test_projects import bank_made
from tests.databases import executed

LONG = "a long text that can be compressed; " * 300
_PRESENT = text("""
    SELECT (SELECT coalesce(sum(pg_column_size(content)), 0) FROM items)
        + (SELECT coalesce(sum(pg_column_size(examinee) + pg_column_size(codes)
            + coalesce(pg_column_size(fractions), 0)), 0) FROM answer_sheets)
        + (SELECT coalesce(sum(
            coalesce(pg_column_size(answer_text), 0) + coalesce(pg_column_size(raw_text), 0)
            + coalesce(pg_column_size(reasoning), 0) + coalesce(pg_column_size(method), 0)
        ), 0) FROM administrations)
        + (SELECT coalesce(sum(pg_column_size(answer)), 0) FROM kept_answers)
        + (SELECT coalesce(sum(pg_column_size(baseline)), 0) FROM baselines)
""").execution_options(**of_opened("all"))


async def test_imports_edits_copies_and_deletions_are_counted(
    client: Client, database: Database
) -> None:
    async def counted() -> int:
        async with database.reading() as uow:
            stored = await uow.projects.stored_bytes(DEFAULT_PROJECT)
            assert stored == await uow._db.scalar(_PRESENT)
        return stored

    async def grows(method: str, path: str, body: object, revision: int | None = None) -> bool:
        head = {} if revision is None else {"If-Match": f'"{revision}"'}
        before = await counted()
        answer = await client.request(method, path, json=body, headers=head)
        assert answer.is_success, answer.text
        return await counted() > before

    await bank_made(client, "exam")
    new = {"key": "new", "prompt": LONG, "target": "x"}
    assert await grows("POST", "/v1/banks/exam/items", new)
    path = "/v1/banks/exam/items/new"
    assert await grows("PATCH", path, {"prompt": LONG * 3}, 1)
    assert not await grows("PATCH", path, {"prompt": "short"}, 2)
    assert not await grows("DELETE", path, None, 3)

    session = await posted(client, "/v1/sessions", MANUAL)
    before = await counted()
    async with database.unit_of_work() as uow:
        await uow.answers.keep("a call", {"text": LONG}, session_id=session["id"])
    await answered(client, session["id"], {"response": LONG}, {"response": "x"})
    after = await counted()
    assert after > before
    await executed(database, "DELETE FROM kept_answers")
    assert before < await counted() < after
    assert await grows("POST", f"/v1/sessions/{session['id']}:replay", {})
    assert await grows("PUT", "/v1/baselines/production", {"session_id": session["id"]})

    sets = await posted(client, "/v1/response-sets", {"name": "answers"})
    path = f"/v1/response-sets/{sets['id']}"
    for keys in "qp":  # the second import has answers of the same examinee to other items
        lines = "examinee,item,score\n" + "".join(f"e,{keys}{n},{n % 2}\n" for n in range(3000))
        file = {"content": lines, "name": f"{keys}.csv"}
        assert await grows("POST", f"{path}/imports", {"files": [file]})
    assert await grows("POST", f"{path}:collect", {"bank": "exam"})
    # The limit of a project applies.
    head, limits = {"If-Match": '"1"'}, {"limits": {"stored_bytes": await counted()}}
    assert (await client.patch("/v1/projects/default", json=limits, headers=head)).is_success
    spend = await got(client, "/v1/projects/default/spend")
    assert int(spend["stored_bytes"]["spent"]) == await counted()
    more = {"files": [{"content": "examinee,item,score\nf,q1,1\n", "name": "f.csv"}]}
    for full, body in (
        ("/v1/sessions", MANUAL),
        ("/v1/banks/exam/items", new),
        (f"{path}/imports", more),
    ):
        await problem_of(client, full, body, 409, "storage_full", says="bytes allowed")
