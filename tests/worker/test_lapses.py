"""Sessions and rankings whose leases expire repeatedly."""

from datetime import timedelta

from prometheus_client import REGISTRY
from sqlalchemy import text

from app.services.container import Services
from app.storage.leased import MAX_LAPSES
from app.storage.scoping import of_opened
from app.worker.loop import running_worker
from tests.services.sessions import scripted, spec, until

LEASE, GRACE = timedelta(seconds=60), timedelta(0)


async def _claimed(services: Services, session_id: str) -> None:
    async with services.database.unit_of_work() as uow:
        assert await uow.sessions.claim(session_id, worker_id="frozen", lease=LEASE)


async def _run_out(services: Services, session_id: str, *, counts: bool = True) -> int:
    """Let the lease expire and be found; return the number of lapses in a row."""
    async with services.database.unit_of_work() as uow:
        await uow._db.execute(
            text(
                "UPDATE sessions SET lease_expires_at = now() - interval '1 s' WHERE id = :id"
            ).execution_options(**of_opened("the session")),
            {"id": session_id},
        )
    async with services.database.unit_of_work() as uow:
        assert session_id in await uow.sessions.stalled(grace=GRACE, lease=LEASE, counts=counts)
        return (await uow.sessions.get(session_id)).lapses


async def _created(services: Services) -> str:
    made = await services.sessions.create(
        spec(endpoint=scripted(), plan={"stopping": {"se": None, "max_items": 3}})
    )
    return made.id


async def test_only_leases_of_running_work_lapse(services: Services) -> None:
    session = await _created(services)
    assert await _run_out(services, session) == 0  # it waited in the queue
    await _claimed(services, session)
    assert await _run_out(services, session, counts=False) == 0  # the database was away
    await _claimed(services, session)
    async with services.database.unit_of_work() as uow:
        epoch = (await uow.sessions.get(session)).lease_epoch
        await uow.sessions.release({session: epoch})
    assert await _run_out(services, session) == 0  # it was handed back
    await _claimed(services, session)
    async with services.database.unit_of_work() as uow:
        waiting = text("UPDATE sessions SET status = 'waiting'")
        await uow._db.execute(waiting.execution_options(**of_opened("the session")))
    assert await _run_out(services, session) == 0  # it waited for a rate limit
    await _claimed(services, session)
    assert await _run_out(services, session) == 1
    assert await _run_out(services, session) == 1  # no worker has claimed it since


async def test_repeated_lapses_fail_with_a_reason_and_can_be_resumed(services: Services) -> None:
    session = await _created(services)
    lapses = 0
    for _ in range(MAX_LAPSES + 1):
        await _claimed(services, session)
        lapses = await _run_out(services, session)
    assert lapses == MAX_LAPSES + 1
    name, labels = "sextant_leases_lost_total", {"kind": "session"}
    before = REGISTRY.get_sample_value(name, labels)
    async with running_worker(services):
        ended = await until(services, session)
        assert ended.status == "failed"
        assert ended.failure is not None
        assert ended.failure["code"] == "lease_lapsed"
        assert "until the lease ran out" in ended.failure["detail"]
        resumed = await services.sessions.resume(session)
        assert (resumed.failure, resumed.lapses) == (None, 0)
        done = await until(services, session)
    assert done.status == "completed", done.failure
    assert before is not None
    assert REGISTRY.get_sample_value(name, labels) == before + 1


async def test_a_lease_from_a_clock_that_went_back_is_expired(services: Services) -> None:
    session_id = await _created(services)
    await _claimed(services, session_id)
    async with services.database.unit_of_work() as uow:
        assert not await uow.sessions.claim(session_id, worker_id="other", lease=LEASE)
        await uow._db.execute(
            text(
                "UPDATE sessions SET lease_expires_at = lease_expires_at + interval '1 h'"
                " WHERE id = :id"
            ).execution_options(**of_opened("the session")),
            {"id": session_id},
        )
    async with services.database.unit_of_work() as uow:
        assert session_id in await uow.sessions.stalled(grace=GRACE, lease=LEASE)
        assert await uow.sessions.claim(session_id, worker_id="other", lease=LEASE)


async def test_queued_work_is_not_taken_for_lost(services: Services) -> None:
    waiting, lost = [await _created(services) for _ in range(2)]
    async with services.database.unit_of_work() as uow:
        assert await uow.sessions.stalled(grace=GRACE, lease=LEASE, besides=[waiting]) == [lost]
    async with services.database.unit_of_work() as uow:  # no other worker has it queued
        assert waiting in await uow.sessions.stalled(grace=GRACE, lease=LEASE)
