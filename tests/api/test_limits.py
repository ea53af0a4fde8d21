"""Limits of projects and what they count, origins of requests, and retention."""

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import text

from app.acting import DEFAULT_PROJECT, EVERYBODY, acting_for
from app.api.rates import let_in
from app.errors import TooManyRequestsError
from app.main import create_app
from app.records.projects import Limits, Project
from app.settings import Settings
from app.storage.database import Database
from app.storage.scoping import of_opened
from app.worker.loop import purge
from tests.api.calls import answered, edited, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, client_of
from tests.api.test_projects import bank_made
from tests.databases import executed

PROJECT = "/v1/projects/default"
STREAM = {"Accept": "text/event-stream"}
MANUAL = {
    "mode": "manual",
    "bank": "exam",
    "stopping": {"se": None, "min_items": 1, "max_items": 2},
}


def paced(project_id: str, requests_per_s: float | None = None) -> Project:
    now, limits = datetime.now(UTC), Limits(requests_per_s=requests_per_s)
    return Project(id=project_id, name="r", limits=limits, created_at=now, updated_at=now)


def test_requests_are_let_in_at_the_rate_that_is_set() -> None:
    project = paced("prj_rate", 2)
    for _ in range(20):
        let_in(project, "key_1", now=100.0)
    with pytest.raises(TooManyRequestsError) as refused:
        let_in(project, "key_1", now=100.0)
    assert refused.value.retry_after_s == pytest.approx(0.5)
    let_in(project, "key_1", now=100.5)
    admitted = 0
    for tick in range(1000):
        try:
            let_in(project, "key_1", now=101 + tick / 10)
            admitted += 1
        except TooManyRequestsError:
            pass
    assert admitted == pytest.approx(200, abs=2)


def test_one_key_leaves_the_others_of_its_project_a_part_of_the_rate() -> None:
    project = paced("prj_share", 4)
    let_in_at: dict[str, list[float]] = {"greedy": [], "modest": []}
    for tick in range(1200):
        at = 100 + tick / 10
        for _ in range(3):
            with contextlib.suppress(TooManyRequestsError):
                let_in(project, "greedy", now=at)
                let_in_at["greedy"].append(at)
        if at >= 140 and tick % 10 == 0:  # once a second, a quarter of the rate
            with contextlib.suppress(TooManyRequestsError):
                let_in(project, "modest", now=at)
                let_in_at["modest"].append(at)
    alone = [at for at in let_in_at["greedy"] if at < 140]
    assert len(alone) == pytest.approx(4 * 50, abs=4)  # the whole rate, with ten seconds at once
    beside = [at for at in let_in_at["greedy"] if at >= 160]
    assert len(beside) == pytest.approx(3 * 60, abs=4)
    assert sum(at >= 160 for at in let_in_at["modest"]) >= 58


async def test_a_project_is_held_to_its_limits(client: Client) -> None:
    await bank_made(client, "exam")
    limits = {"open_sessions": 1, "event_streams": 0, "requests_per_s": 0.5}
    await edited(client, PROJECT, limits=limits)
    session = await posted(client, "/v1/sessions", MANUAL)
    await refusal_of(client.post("/v1/sessions", json=MANUAL), 429, "too_many_sessions")
    stream = client.get(f"/v1/sessions/{session['id']}/events", headers=STREAM)
    await refusal_of(stream, 429, "too_many_streams", says="Project 'default'")
    await client.post(f"/v1/sessions/{session['id']}:cancel")
    await posted(client, "/v1/sessions", MANUAL)
    answers = [await client.get("/v1/banks") for _ in range(6)]
    late = answers[-1]
    assert (late.status_code, late.json()["code"]) == (429, "too_many_requests")
    assert 1 <= int(late.headers["retry-after"]) <= 10


async def test_one_key_leaves_others_of_its_project_a_part_of_its_sessions(client: Client) -> None:
    await bank_made(client, "exam")
    await edited(client, PROJECT, limits={"open_sessions": 8})

    async def key() -> tuple[str, dict[str, str]]:
        new = await posted(client, "/v1/api-keys", {"name": "k", "scopes": ["run"]})
        return new["id"], {"Authorization": f"Bearer {new['secret']}"}

    async def begun(headers: dict[str, str]) -> tuple[list[str], str]:
        """Return sessions that the key may start, and why it may start no more."""
        made = []
        while (
            answer := await client.post("/v1/sessions", json=MANUAL, headers=headers)
        ).is_success:
            made.append(answer.json()["id"])
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (429, "too_many_sessions")
        return made, problem["detail"]

    greedy_id, greedy = await key()
    alone, why = await begun(greedy)  # no other key: the whole limit
    assert len(alone) == 8
    assert why.startswith("Project 'default' has 8 sessions that have not ended")
    assert "limit open_sessions: 8" in why
    for session_id in alone:
        await client.post(f"/v1/sessions/{session_id}:cancel")

    _, modest = await key()
    many, why = await begun(greedy)
    assert len(many) == 6
    assert why.startswith("This key has 6 sessions that have not ended")
    assert "limit open_sessions: 8" in why
    assert len((await begun(modest))[0]) == 1  # three quarters of what remains
    await client.delete(f"/v1/api-keys/{greedy_id}")
    assert len((await begun(modest))[0]) == 0  # sessions of a revoked key continue
    for session_id in many:
        await client.post(f"/v1/sessions/{session_id}:cancel")
    assert len((await begun(modest))[0]) == 7


async def test_without_keys_foreign_hosts_are_refused(
    settings: Settings, database: Database
) -> None:
    app = create_app(settings.model_copy(update={"auth": "off"}), database)
    async with (
        app.router.lifespan_context(app),
        client_of(app, base_url="http://127.0.0.1:8000") as local,
    ):
        assert (await local.get("/v1/banks")).status_code == 200
        for scheme in ("http", "https"):  # a proxy takes https, and passes it on as http
            own = {"Origin": f"{scheme}://127.0.0.1:8000"}
            assert (await local.get("/v1/banks", headers=own)).status_code == 200
        for headers in (
            {"Host": "rebound.example:8000"},
            # An invalid host name: the address of the connection shows nothing.
            {"Host": "a{b.rebound.example"},
            {"Host": "localhost@rebound.example"},
            {"Host": "localhost.rebound.example"},
            {"Origin": "http://["},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Host": "rebound.example", "Origin": "http://rebound.example"},
        ):
            answer = await local.post("/v1/banks", json={"name": "x"}, headers=headers)
            assert answer.status_code == 403, headers
        assert await listing(local, "/v1/banks") == []


async def test_a_session_knows_whether_it_came_from_here(app: FastAPI, client: Client) -> None:
    key = client.headers["Authorization"]
    async with client_of(app, address="192.0.2.7") as other:
        await bank_made(client, "exam")
        scripted = {"kind": "scripted", "model": "m", "options": {"theta": 1}}
        live = {"bank": "exam", "endpoint": scripted, "stopping": MANUAL["stopping"]}
        far = await other.post("/v1/sessions", json=live, headers={"Authorization": key})
        assert far.json()["provenance"]["private_endpoints"] is False
        here = await posted(client, "/v1/sessions", live)
        assert here["provenance"]["private_endpoints"] is True


async def test_every_response_has_security_headers(client: Client) -> None:
    for path in ("/v1/banks", "/v1/nothing", "/healthz", "/openapi.json"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "content-security-policy" in headers


async def test_retention_is_set_by_project(client: Client, database: Database) -> None:
    await bank_made(client, "exam")
    told = {"response": "x"}
    old, young, source = [(await posted(client, "/v1/sessions", MANUAL))["id"] for _ in range(3)]
    for session_id in (old, young, source):
        await answered(client, session_id, told, told)
    made = await posted(client, f"/v1/sessions/{source}:replay", {"estimator": {"method": "wle"}})

    async def age(days: int, *session_ids: str) -> None:
        aged = "UPDATE sessions SET finished_at = now() - %s * interval '1 day' WHERE id = ANY(%s)"
        await executed(database, aged, [days, [*session_ids]])
        with acting_for(EVERYBODY):
            async with database.unit_of_work() as uow:
                await uow.removals.past_retention()
                await uow.audit.purge()

    async def count(of: str) -> int:
        ((found,),) = await executed(database, f"SELECT count(*) FROM {of}")
        return int(found)

    # The first of several answers may have failed while others of the call were kept.
    await executed(
        database,
        "UPDATE administrations SET answer_text = NULL, raw_text = NULL, reasoning = NULL, "
        'method = \'{"repeats": [{"answer_text": null}, {"answer_text": "said"}]}\' '
        f"WHERE session_id = '{source}'",
    )
    await executed(
        database,
        "INSERT INTO kept_answers (key, answer, project_id, created_at) SELECT day::text, '{}', "
        f"'{DEFAULT_PROJECT}', now() - day * interval '1 day' FROM generate_series(1, 61, 30) day",
    )
    await age(400, old, source)
    assert (await client.get(f"/v1/sessions/{old}")).status_code == 200  # no retention is set
    assert await count("kept_answers") == 3
    quoted = (
        f"administrations WHERE session_id = '{old}' AND (extracted = 'x' OR marking::text ~ 'x')",
        f"session_events WHERE session_id = '{old}' AND data ->> 'extracted' = 'x'",
    )
    await executed(
        database,
        "UPDATE administrations SET marking = "
        '\'{"judgements": [{"score": 1, "reason": "It said x."}, {"score": null, "reason": ""}]}\'',
    )
    assert [await count(of) for of in quoted] == [2, 2]
    await edited(client, PROJECT, retention={"texts_days": 30})
    await age(31, old)
    assert [await count(of) for of in quoted] == [0, 0]
    assert await count("kept_answers") == 1
    assert await count("administrations WHERE method::text LIKE '%said%'") == 0
    answers = await listing(client, f"/v1/sessions/{old}/responses")
    assert [(each["score"], each["answer"]) for each in answers] == [(1, None), (1, None)]
    assert [each["score"] for each in answers[0]["marking"]["judgements"]] == [1, None]
    await edited(client, PROJECT, retention={"texts_days": 30, "events_days": 30})
    await age(31, old)
    events = await got(client, f"/v1/sessions/{old}/events")
    assert events["ended"]
    assert len(events["data"]) == 1
    kept = await listing(client, f"/v1/sessions/{young}/responses")
    assert kept[0]["answer"] == "x"
    await edited(client, PROJECT, retention={"sessions_days": 30})
    await age(31, old)
    assert (await client.get(f"/v1/sessions/{old}")).status_code == 404
    for session_id in (young, source, made["id"]):  # sources of other sessions stay with them
        assert (await client.get(f"/v1/sessions/{session_id}")).status_code == 200


async def test_a_deletion_runs_beside_the_retention_job(client: Client, database: Database) -> None:
    await bank_made(client, "exam")
    session = await posted(client, "/v1/sessions", MANUAL)
    await answered(client, session["id"], {"response": "x"}, {"response": "x"})
    await edited(client, PROJECT, retention={"texts_days": 30, "sessions_days": 30})
    with acting_for(EVERYBODY):
        async with asyncio.timeout(240), database.unit_of_work() as uow:
            deleting = await uow.driver_connection()
            await deleting.execute("UPDATE sessions SET finished_at = now() - interval '31 days'")
            await deleting.commit()
            await deleting.execute("SELECT FROM sessions FOR UPDATE")
            removal = asyncio.create_task(purge(database))
            waits_for_us = (
                "SELECT FROM pg_locks theirs JOIN pg_locks ours USING (transactionid) "
                "WHERE NOT theirs.granted AND ours.pid = pg_backend_pid()"
            )
            while True:
                if (await deleting.execute(waits_for_us)).rowcount:
                    break
                await asyncio.sleep(0.01)
            await deleting.execute("DELETE FROM sessions")
        await removal
    assert await listing(client, "/v1/sessions") == []


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """JSON Schema counts 5.0 as an integer."""
    read = TypeAdapter(Limits).validate_python
    assert read({"open_sessions": 5.0}).open_sessions == 5
    for wrong in (5.5, True, "5", -1.0):
        with pytest.raises(ValidationError):
            read({"open_sessions": wrong})


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


async def test_all_that_is_stored_is_counted(client: Client, database: Database) -> None:
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
    await edited(client, PROJECT, limits={"stored_bytes": await counted()})
    spend = await got(client, f"{PROJECT}/spend")
    assert int(spend["stored_bytes"]["spent"]) == await counted()
    more = {"files": [{"content": "examinee,item,score\nf,q1,1\n", "name": "f.csv"}]}
    for full, body in (
        ("/v1/sessions", MANUAL),
        ("/v1/banks/exam/items", new),
        (f"{path}/imports", more),
    ):
        await problem_of(client, full, body, 409, "storage_full", says="bytes allowed")
