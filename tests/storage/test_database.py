import asyncio
import itertools
import os
import signal
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import event, make_url, text
from sqlalchemy.pool import AsyncAdaptedQueuePool

from app.acting import DEFAULT_PROJECT, Acting, AuditEntry, acting_for
from app.errors import (
    AlreadyExistsError,
    ConflictError,
    DatabaseUnavailableError,
    InvalidInputError,
    NotFoundError,
)
from app.records.api_keys import Scope
from app.records.projects import Limits
from app.storage import database as database_module
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.identifiers import new_id
from app.storage.migrate import upgrade
from app.storage.paging import PageRequest
from app.storage.rows.banks import ItemRow
from app.storage.scoping import of_opened
from app.storage.unit_of_work import UnitOfWork
from app.worker.queue import JobQueue
from tests.databases import executed


async def _add_key(
    uow: UnitOfWork,
    *,
    name: str = "ci",
    secret_hash: str = "h1",
    expires_at: datetime | None = None,
) -> str:
    key = await uow.api_keys.add(
        key_id=new_id("key"),
        name=name,
        prefix="sxt_x",
        secret_hash=secret_hash,
        scopes=[Scope.READ],
        expires_at=expires_at,
        limits=Limits(),
    )
    return key.id


async def _key_names(database: Database) -> list[str]:
    async with database.unit_of_work() as uow:
        page = await uow.api_keys.page(PageRequest(descending=False))
    return [key.name for key in page.items]


async def test_a_cancelled_unit_of_work_returns_its_connection(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    inside = asyncio.Event()

    async def work() -> None:
        async with database.unit_of_work() as uow:
            await _add_key(uow)
            inside.set()
            await asyncio.Event().wait()

    for _ in range(3):  # more often than the pool has connections
        task = asyncio.create_task(work())
        await inside.wait()
        inside.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await _key_names(database) == []
    await database.dispose()


@types.coroutine
def _interrupted(work: Coroutine[Any, Any, None], at: int) -> Generator[Any, Any, None]:
    """Run the work in tasks, cancelled at each await from number `at` on."""
    task = asyncio.current_task()
    assert task is not None
    step: Callable[[Any], Any] = work.send
    sent: Any = None
    for n in itertools.count():
        try:
            awaited = step(sent)
        except StopIteration:
            return
        if n >= at:
            asyncio.get_running_loop().call_soon(task.cancel)
        try:
            step, sent = work.send, (yield awaited)
        except BaseException as error:  # noqa: BLE001 - the work handles it
            step, sent = work.throw, error


@pytest.mark.parametrize("kind", ["unit_of_work", "reading", "snapshot"])
async def test_a_connection_is_returned_wherever_its_task_is_cancelled(
    database_url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a busy machine, where psycopg yields to other tasks even without a wait.
    monkeypatch.setattr("psycopg.waiting.MAX_BUSY_TIME", 0.0)

    async def work(database: Database) -> None:
        async with getattr(database, kind)() as uow:
            await uow.ping()
            await uow.ping()

    for at in itertools.count():
        database = Database(database_url)  # connecting can be cancelled, too
        pool = database._engine.pool
        assert isinstance(pool, AsyncAdaptedQueuePool)
        task = asyncio.create_task(_interrupted(work(database), at))
        await asyncio.wait([task])
        assert pool.checkedout() == 0, at
        await database.dispose()
        if not task.cancelled():
            await task
            break
    assert at > 3  # it connects, sends two queries and ends


async def test_a_taken_value_is_told_where_it_happens(database: Database) -> None:
    async with database.unit_of_work() as uow:
        await _add_key(uow)
    async with database.unit_of_work() as uow:
        await _add_key(uow, name="second", secret_hash="h2")
        with pytest.raises(
            AlreadyExistsError, match="api keys there is already one with the secret_hash 'h1'"
        ):
            async with uow._db.begin_nested():
                await _add_key(uow, name="third")
    assert await _key_names(database) == ["ci", "second"]


async def test_a_reference_to_nothing_is_a_conflict(database: Database) -> None:
    with pytest.raises(ConflictError, match=r"^bnk_none is not there any more: it was deleted"):
        async with database.unit_of_work() as uow:
            uow._db.add(
                ItemRow(id="itm_1", bank_id="bnk_none", key="q", content={}, content_hash="h")
            )


async def test_referenced_rows_cannot_be_deleted(database: Database) -> None:
    async def delete_what_is_used() -> None:
        async with database.unit_of_work() as uow:
            for statement in (
                "CREATE TABLE parents (id text PRIMARY KEY)",
                "CREATE TABLE children (id text REFERENCES parents)",
                "INSERT INTO parents VALUES ('a')",
                "INSERT INTO children VALUES ('a')",
                "DELETE FROM parents",
            ):
                await uow._db.execute(text(statement).execution_options(**of_opened("none")))

    with pytest.raises(
        ConflictError, match=r"^a cannot be deleted: something in children refers to it"
    ):
        await delete_what_is_used()


@pytest.mark.parametrize("name", ["nul \0 inside", "lone surrogate \ud800"])
async def test_a_text_that_postgres_refuses_is_invalid(database: Database, name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        async with database.unit_of_work() as uow:
            await _add_key(uow, name=name)


async def test_missing_tables_say_what_to_do(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    with pytest.raises(DatabaseUnavailableError, match="run `sextant migrate`"):
        await _key_names(database)
    await database.dispose()


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"postgresql+psycopg://u@/x?host={tmp_path}")
    with pytest.raises(DatabaseUnavailableError, match="cannot serve this now: connection"):
        await _key_names(database)
    assert not await database.healthy()
    await database.dispose()


async def test_a_used_up_pool_is_unavailable_not_a_hang(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_POOL_TIMEOUT_S", 0.01)
    database = Database(database_url, pool_size=1)
    async with database.unit_of_work(), database.unit_of_work():
        with pytest.raises(DatabaseUnavailableError, match="connections are busy"):
            await _key_names(database)
        assert not await database.healthy()
    await database.dispose()


@pytest.fixture
async def own_server(scratch: Path) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(scratch, durable=False) as server:
        await asyncio.to_thread(upgrade, server.url)
        yield server


async def test_a_server_may_be_restarted(own_server: EmbeddedPostgres, scratch: Path) -> None:
    database = Database(own_server.url)
    async with database.unit_of_work() as uow:
        await _add_key(uow)

    async def work_until_the_shutdown_arrives() -> None:
        async with database.unit_of_work() as uow:
            await _add_key(uow, name="lost", secret_hash="h2")
            postmaster = (scratch / "postgres" / "data" / "postmaster.pid").read_text()
            os.kill(int(postmaster.split()[0]), signal.SIGINT)
            while True:
                await uow.api_keys.page(PageRequest())

    with pytest.raises(DatabaseUnavailableError):
        await work_until_the_shutdown_arrives()
    assert not await database.healthy()
    await asyncio.to_thread(own_server.start)
    assert await database.healthy()
    assert await _key_names(database) == ["ci"]
    await database.dispose()


def test_options_that_the_url_already_has_are_kept() -> None:
    database = Database("postgresql://u:p%40ss@h/x?options=-c%20statement_timeout%3D5s")
    parts = conninfo_to_dict(database.conninfo)
    own = "-c search_path=public,procrastinate -c timezone=UTC"
    assert parts["options"] == f"-c statement_timeout=5s {own}"
    assert parts["password"] == "p@ss"


async def test_the_last_times_are_read_back_from_a_server_ahead_of_utc(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"options": "-c timezone=Asia/Tokyo"})
    database = Database(url.render_as_string(hide_password=False))
    last = datetime.max.replace(tzinfo=UTC)
    async with database.unit_of_work() as uow:
        await _add_key(uow, expires_at=last)
    async with database.unit_of_work() as uow:
        (key,) = (await uow.api_keys.page(PageRequest())).items
    assert key.expires_at == last
    await database.dispose()


async def test_new_connections_are_not_pinged(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check by the pool would raise an error, not retried, for a connection that just broke."""
    fresh = Database(database_url)
    dialect = fresh._engine.sync_engine.dialect

    def dead(_: object) -> bool:
        raise psycopg.OperationalError("the connection is closed")

    monkeypatch.setattr(dialect, "do_ping", dead)
    async with fresh.reading() as uow:
        await uow.ping()
    await fresh.dispose()


async def _change(work: UnitOfWork, path: str = "") -> None:
    """Do what the audit trail takes for a change, which it notes at the end."""
    entry = AuditEntry(lambda: "test", path, None, "")
    with acting_for(Acting(DEFAULT_PROJECT, audit_entry=entry)):
        async with work as uow:
            await uow._db.execute(text("SELECT 'UPDATE '").execution_options(**of_opened("no row")))


async def test_a_trail_that_fails_gives_its_connection_back(database: Database) -> None:
    pool = database._engine.pool
    assert isinstance(pool, AsyncAdaptedQueuePool)
    kept = database.reading()  # or the garbage collector closes it later
    with pytest.raises(InvalidInputError):
        await _change(kept, "a path with a \0")
    assert pool.checkedout() == 0


async def test_a_cancelled_trail_gives_its_connection_back(database: Database) -> None:
    pool = database._engine.pool
    assert isinstance(pool, AsyncAdaptedQueuePool)
    kept, noting = database.reading(), asyncio.Event()

    def see(_: object, cursor: object, statement: str, *__: object) -> None:
        if statement.startswith("INSERT INTO audit"):
            noting.set()

    event.listen(database._engine.sync_engine, "before_cursor_execute", see)
    try:
        async with database.unit_of_work() as other:
            raw = await other.driver_connection()
            await raw.execute("LOCK TABLE audit")
            task = asyncio.create_task(_change(kept))
            await noting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not kept._db.in_transaction()
            assert pool.checkedout() == 1  # this one
    finally:
        event.remove(database._engine.sync_engine, "before_cursor_execute", see)


async def test_a_job_of_a_rolled_back_transaction_is_not_queued(database: Database) -> None:
    async def enqueue_and_fail() -> None:
        async with database.unit_of_work() as uow:
            await JobQueue(database).enqueue(uow, "cal_1")
            raise NotFoundError("bank", "bnk_1")

    with pytest.raises(NotFoundError):
        await enqueue_and_fail()
    assert await executed(database, "SELECT id FROM procrastinate_jobs") == []


async def test_a_queue_on_a_broken_connection_is_unavailable(database: Database) -> None:
    async def enqueue() -> None:
        async with database.unit_of_work() as uow, database.unit_of_work() as other:
            broken = (await uow.driver_connection()).info.backend_pid
            raw = await other.driver_connection()
            await raw.execute("SELECT pg_terminate_backend(%s, 10000)", [broken])
            await JobQueue(database).enqueue(uow, "cal_1")

    with pytest.raises(DatabaseUnavailableError):
        await enqueue()
