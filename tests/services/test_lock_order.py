"""Rows are locked in one order: a use case that waits for a row holds no later row.

Each test holds a row, lets a use case wait for it, and checks which rows that one holds. A wrong
row would be a deadlock with a use case that locks in the other direction.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from app.acting import DEFAULT_PROJECT, Acting, acting_for
from app.errors import NotFoundError
from app.records.projects import Retention
from app.records.sessions import Examinee
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from app.services.secret_keys import SecretKeys
from app.storage.secrets import SecretBox
from app.storage.unit_of_work import UnitOfWork
from app.worker.loop import purge
from tests.databases import executed
from tests.services.calibrations import answers, completed, queued
from tests.services.rankings import contest, members_of
from tests.services.sessions import by_hand, scripted, spec
from tests.values import not_none

_WAITING = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""

Use = Callable[[UnitOfWork, str], Awaitable[object]]


@dataclass
class Watch:
    """A connection outside the pool."""

    connection: psycopg.AsyncConnection[tuple[object, ...]]

    async def is_free(self, table: str, row_id: str) -> bool:
        """Return whether the row has no lock of any kind."""
        query = f"SELECT id FROM {table} WHERE id = %s FOR UPDATE SKIP LOCKED"
        found = await self.connection.execute(query.encode(), [row_id])
        return await found.fetchone() is not None


async def waiting(
    task: asyncio.Future[Any], connection: psycopg.AsyncConnection[tuple[object, ...]]
) -> None:
    """Wait until a task waits for a row, which must be this one."""
    async with asyncio.timeout(240):
        while True:
            if task.done():
                await task
                raise AssertionError("it did not wait")
            if await (await connection.execute(_WAITING)).fetchone() is not None:
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def held(
    services: Services, table: str, row_id: str, use: Awaitable[object]
) -> AsyncIterator[Watch]:
    """Hold a row while a use case waits for it in the block; then let it continue."""
    connect = psycopg.AsyncConnection.connect
    conninfo = services.database.conninfo
    async with await connect(conninfo) as holder, await connect(conninfo, autocommit=True) as other:
        lock = f"SELECT FROM {table} WHERE id = %s FOR UPDATE"
        await holder.execute(lock.encode(), [row_id])
        task = asyncio.ensure_future(use)
        await waiting(task, other)
        yield Watch(other)
        await holder.rollback()
        await task


async def made(services: Services) -> dict[str, str]:
    """Create one row of each kind that is locked for a change."""
    manual = await by_hand(services)
    ranking = await services.rankings.create(contest())
    calibration = await queued(services, answers(40, 12))
    return {
        "banks": manual.bank_id,
        "sessions": manual.id,
        "rankings": ranking.id,
        "response_sets": calibration.response_set_id,
        "calibrations": calibration.id,
    }


_LOCKS: dict[str, Use] = {
    "banks": lambda uow, wanted: uow.banks.find(wanted, for_update=True),
    "sessions": lambda uow, wanted: uow.sessions.get(wanted, for_update=True),
    "rankings": lambda uow, wanted: uow.rankings.get(wanted, for_update=True),
    "response_sets": lambda uow, wanted: uow.response_sets.find(wanted, for_update=True),
    "calibrations": lambda uow, wanted: uow.calibrations.get(wanted, for_update=True),
}


async def _drawn(uow: UnitOfWork, version_id: str) -> object:
    return await uow.versions.draw_pretest(version_id, 1, seed=1, barred=(), need_content=False)


async def test_changes_in_an_erased_project_wait_before_they_lock_rows(services: Services) -> None:
    """As when a session starts, or a member joins a ranking, in a project under deletion."""
    ids = await made(services)

    async def locked(use: Use, row_id: str) -> None:
        async with services.database.unit_of_work() as uow:
            await use(uow, row_id)

    for kind, row_id in ids.items():
        async with held(
            services, "projects", DEFAULT_PROJECT, locked(_LOCKS[kind], row_id)
        ) as watch:
            assert await watch.is_free(kind, row_id), kind
    version = await services.banks.ensure_demo_bank()
    async with held(services, "projects", DEFAULT_PROJECT, locked(_drawn, version.id)) as watch:
        assert await watch.is_free("banks", version.bank_id)


async def test_who_waits_for_a_session_sees_what_was_changed_meanwhile(services: Services) -> None:
    manual = await by_hand(services)
    tokens = []

    async def locked() -> None:
        async with services.database.unit_of_work() as uow:
            _, (awaited,), _ = await uow.sessions.locked_with_awaited(manual.id)
            tokens.append(awaited.step_token)

    async with held(services, "projects", DEFAULT_PROJECT, locked()) as watch:
        assert await watch.is_free("sessions", manual.id)
    async with held(services, "sessions", manual.id, locked()) as watch:
        await watch.connection.execute("UPDATE administrations SET step_token = 'renewed'")
    assert tokens[1] == "renewed"


async def test_nothing_is_created_in_an_erased_project(services: Services) -> None:
    with acting_for(Acting("prj_gone")), pytest.raises(NotFoundError, match="project"):
        async with services.database.unit_of_work() as uow:
            await uow.banks.find("demo", for_update=True)


async def test_a_manual_ranking_is_locked_before_its_members(services: Services) -> None:
    pair = [Examinee(name=name) for name in "ab"]
    ranking = await services.rankings.create(contest(endpoints=pair))
    first, last = sorted(one.id for one in await members_of(services, ranking.id))
    items = services.manual_sessions.ranking_items
    async with held(services, "rankings", ranking.id, items(ranking.id, 1)) as watch:
        assert await watch.is_free("sessions", first)
    async with held(services, "sessions", first, items(ranking.id, 2)) as watch:
        assert not await watch.is_free("rankings", ranking.id)
        assert await watch.is_free("sessions", last)


async def test_expired_rows_in_an_erased_project_are_not_locked(services: Services) -> None:
    old = await by_hand(services)
    await services.sessions.cancel(old.id)
    old_now = "UPDATE sessions SET finished_at = now() - interval '9 days'"
    await executed(services.database, old_now)
    await services.projects.update("default", 1, {"retention": Retention(sessions_days=1)})
    async with held(services, "projects", DEFAULT_PROJECT, purge(services.database)) as watch:
        assert await watch.is_free("sessions", old.id)
    with pytest.raises(NotFoundError):
        await services.sessions.get(old.id)


@pytest.mark.usefixtures("fits_here")
async def test_a_second_publication_does_not_hold_its_calibration(services: Services) -> None:
    record = await completed(services)
    again = Publication(bank="arc")
    version = await services.calibrations.publish(record.id, again)
    publishing = services.calibrations.publish(record.id, again)
    async with held(services, "banks", version.bank_id, publishing) as watch:
        assert await watch.is_free("calibrations", record.id)


def _with_key(name: str) -> EndpointSpec:
    return replace(scripted({"name": name}), api_key="sk-1")


async def _in_team(services: Services) -> tuple[str, list[str]]:
    """Create a project with two endpoints, where the lower id is second in the table."""
    team = await services.projects.create("team")
    with acting_for(Acting(team.id)):
        ids = sorted([(await services.endpoints.create(_with_key(name))).id for name in "ab"])
    moved = "UPDATE endpoints SET metadata = '{}' WHERE id = %s"
    await executed(services.database, moved, [ids[0]])
    return team.id, ids


async def test_a_project_is_erased_in_the_order_of_a_rotation(services: Services) -> None:
    team, (first, second) = await _in_team(services)
    erasing = services.projects.delete(team, 1, erases=True)
    async with held(services, "endpoints", first, erasing) as watch:
        assert await watch.is_free("endpoints", second)
    with pytest.raises(NotFoundError):
        await services.projects.find(team)


async def test_a_secret_is_rotated_while_sessions_are_made_with_it(services: Services) -> None:
    _, (first, _) = await _in_team(services)
    async with await psycopg.AsyncConnection.connect(services.database.conninfo) as starting:
        # The lock that a referencing row takes.
        await starting.execute("SELECT FROM endpoints WHERE id = %s FOR KEY SHARE", [first])
        keys = SecretStr(",".join(Fernet.generate_key().decode() for _ in "12"))
        box = SecretBox(services.settings.model_copy(update={"secret_key": keys}))
        done = await asyncio.wait_for(SecretKeys(services.database, box).rotate(), timeout=60)
    assert len(done.unreadable) == 2  # read, though its key differs


async def test_an_endpoint_is_deleted_beside_a_bank_that_is_held(services: Services) -> None:
    bank = (await services.banks.get_bank("demo")).bank
    endpoint = await services.endpoints.create(_with_key("a"))
    async with services.database.unit_of_work() as uow:
        await uow.banks.archive(bank.id, bank.revision)  # no version uses it
    async with await psycopg.AsyncConnection.connect(services.database.conninfo) as deleting:
        await deleting.execute("SELECT FROM banks WHERE id = %s FOR UPDATE", [bank.id])
        gone = services.endpoints.delete(endpoint.id, expected_revision=1)
        await asyncio.wait_for(gone, timeout=60)


async def test_a_copied_session_does_not_hold_its_endpoint(services: Services) -> None:
    parent = await services.sessions.create(spec())
    await services.sessions.cancel(parent.id)
    copying = services.derived_sessions.extend(parent.id, {}, {})
    async with held(services, "sessions", parent.id, copying) as watch:
        assert await watch.is_free("endpoints", not_none(parent.endpoint_id))


async def test_a_session_is_not_copied_from_one_deleted_meanwhile(services: Services) -> None:
    parent = await services.sessions.create(spec())
    await services.sessions.cancel(parent.id)
    async with services.database.unit_of_work() as uow:
        asked = await uow.removals.endpoints_of(parent.id)
        await uow.sessions.delete(parent.id)
        copying = asyncio.ensure_future(services.derived_sessions.extend(parent.id, {}, {}))
        connect = psycopg.AsyncConnection.connect
        async with await connect(services.database.conninfo, autocommit=True) as other:
            await waiting(copying, other)
        await uow.removals.unused(parent.id, endpoints=asked)
    with pytest.raises(NotFoundError, match=parent.id):
        await copying
    with pytest.raises(NotFoundError):
        await services.endpoints.get(asked[0], archived=True)
