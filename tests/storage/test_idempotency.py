import asyncio

import pytest

from app.acting import DEFAULT_PROJECT, Acting, AuditEntry, acting_for
from app.errors import IdempotencyAnswerLostError, IdempotencyInFlightError
from app.services.projects import ProjectService
from app.storage.database import Database
from app.storage.repositories.idempotency import StoredResponse
from tests.databases import executed

_CREATED = StoredResponse(201, {"location": "/v1/banks/bnk_1"}, b'{"id":"bnk_1"}')


async def _begin(
    database: Database, *, who: str = "key_1", key: str = "k", request: str = "r"
) -> StoredResponse | None:
    async with database.unit_of_work() as uow:
        return await uow.idempotency.begin(who, key, request)


async def _finish(database: Database, response: StoredResponse = _CREATED) -> None:
    async with database.unit_of_work() as uow:
        await uow.idempotency.finish("key_1", "k", response)


async def _age(database: Database, interval: str) -> None:
    """Make all records older."""
    query = "UPDATE idempotency_keys SET created_at = created_at - %s::interval"
    await executed(database, query, [interval])


async def test_exactly_one_of_many_concurrent_calls_is_executed(database: Database) -> None:
    results = await asyncio.gather(*(_begin(database) for _ in range(10)), return_exceptions=True)
    assert results.count(None) == 1
    assert sum(isinstance(result, IdempotencyInFlightError) for result in results) == 9


async def test_the_first_response_is_kept(database: Database) -> None:
    await _begin(database)
    await _finish(database)
    await _finish(database, StoredResponse(201, {}, b"of a lost call that resumed"))
    async with database.unit_of_work() as uow:
        await uow.idempotency.forget("key_1", "k")
    assert await _begin(database) == _CREATED


@pytest.mark.parametrize("is_set_back", [False, True])
async def test_a_lost_call_is_taken_over_after_minutes_even_if_the_clock_is_set_back(
    database: Database, is_set_back: bool
) -> None:
    await _begin(database)
    if is_set_back:
        await _age(database, "-1 hour")
        with pytest.raises(IdempotencyInFlightError):
            await _begin(database)
        async with database.unit_of_work() as uow:
            await uow.idempotency.count_from_now("key_1", "k")
    await _age(database, "4 minutes")
    with pytest.raises(IdempotencyInFlightError):
        await _begin(database)
    await _age(database, "2 minutes")
    assert await _begin(database) is None
    with pytest.raises(IdempotencyInFlightError):
        await _begin(database)


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_an_executed_call_is_not_executed_again(
    database: Database, is_given_up: bool
) -> None:
    entry = AuditEntry(lambda: "make", "/v1/projects", "request-1", "here")
    with acting_for(Acting(DEFAULT_PROJECT, audit_entry=entry)):
        await _begin(database)
        made = await ProjectService(database).create("made once")
        if is_given_up:
            async with database.unit_of_work() as uow:
                await uow.idempotency.forget("key_1", "k")
        else:  # its process is killed, or misses the confirmation
            with pytest.raises(IdempotencyInFlightError):
                await _begin(database)
            await _age(database, "6 minutes")
    for _ in range(2):
        with pytest.raises(IdempotencyAnswerLostError, match=f"was carried out.*{made.id}"):
            await _begin(database)
    entry = AuditEntry(lambda: "make", "/v1/projects", "request-2", "here")
    with acting_for(Acting(DEFAULT_PROJECT, audit_entry=entry)):
        await _begin(database, key="not carried out")
        await _age(database, "6 minutes")
        assert await _begin(database, key="not carried out") is None


async def test_after_a_day_the_key_is_free(database: Database) -> None:
    await _begin(database)
    await _finish(database)
    await _age(database, "23 hours")
    assert await _begin(database) == _CREATED
    await _age(database, "2 hours")
    assert await _begin(database, request="other") is None
    with pytest.raises(IdempotencyInFlightError):  # the old response is deleted with it
        await _begin(database, request="other")


async def test_a_purge_removes_what_is_older_than_a_day(database: Database) -> None:
    await _begin(database, key="old")
    await _age(database, "25 hours")
    await _begin(database, key="new")
    async with database.unit_of_work() as uow:
        await uow.idempotency.purge()
    assert await executed(database, "SELECT key FROM idempotency_keys") == [("new",)]
    with pytest.raises(IdempotencyInFlightError):
        await _begin(database, key="new")
