"""Leases that expire repeatedly, and steps written under leases, many in one statement."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from app.errors import InvalidInputError, LeaseLostError
from app.records.sessions import Advance, SelectedItem, SessionEvent, SessionRecord
from app.services.container import Services
from app.services.sessions.runner import StepWriter
from app.storage.leased import MAX_LAPSES
from app.storage.repositories.sessions import SessionRepository
from app.worker.loop import running_worker
from tests.databases import executed
from tests.services.sessions import failure_of, length, scripted, spec, until
from tests.values import not_none

LEASE, GRACE = timedelta(seconds=60), timedelta(0)


async def _claimed(services: Services, session_id: str) -> SessionRecord:
    async with services.database.unit_of_work() as uow:
        return not_none(await uow.sessions.claim(session_id, worker_id="frozen", lease=LEASE))


async def _run_out(services: Services, session_id: str, *, counts: bool = True) -> int:
    """Let the lease expire and be found; return the number of lapses in a row."""
    over = "UPDATE sessions SET lease_expires_at = now() - interval '1 s' WHERE id = %s"
    await executed(services.database, over, [session_id])
    async with services.database.unit_of_work() as uow:
        assert session_id in await uow.sessions.stalled(grace=GRACE, lease=LEASE, counts=counts)
        return (await uow.sessions.get(session_id)).lapses


async def _created(services: Services) -> str:
    return (await services.sessions.create(spec(endpoint=scripted(), plan=length(3)))).id


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
    await executed(services.database, "UPDATE sessions SET status = 'waiting'")
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
    before = not_none(REGISTRY.get_sample_value(name, labels))
    async with running_worker(services):
        ended = await until(services, session)
        assert ended.status == "failed"
        assert failure_of(ended)["code"] == "lease_lapsed"
        assert "until the lease ran out" in failure_of(ended)["detail"]
        resumed = await services.sessions.resume(session)
        assert (resumed.failure, resumed.lapses) == (None, 0)
        await until(services, session, "completed")
    assert REGISTRY.get_sample_value(name, labels) == before + 1


async def test_a_lease_from_a_clock_that_went_back_is_expired(services: Services) -> None:
    session_id = await _created(services)
    await _claimed(services, session_id)
    async with services.database.unit_of_work() as uow:
        assert not await uow.sessions.claim(session_id, worker_id="other", lease=LEASE)
    ahead = "UPDATE sessions SET lease_expires_at = lease_expires_at + interval '1 h'"
    await executed(services.database, ahead)
    async with services.database.unit_of_work() as uow:
        assert session_id in await uow.sessions.stalled(grace=GRACE, lease=LEASE)
        assert await uow.sessions.claim(session_id, worker_id="other", lease=LEASE)


async def test_queued_work_is_not_taken_for_lost(services: Services) -> None:
    waiting, lost = [await _created(services) for _ in range(2)]
    async with services.database.unit_of_work() as uow:
        assert await uow.sessions.stalled(grace=GRACE, lease=LEASE, besides=[waiting]) == [lost]
    async with services.database.unit_of_work() as uow:  # no other worker has it queued
        assert waiting in await uow.sessions.stalled(grace=GRACE, lease=LEASE)


def asking(record: SessionRecord, said: str = "asked") -> Advance:
    return Advance(
        asked=[SelectedItem(step=1, position=3)],
        events=[SessionEvent("session.item_selected", {"said": said})],
        summary=record.summary,
    )


async def test_concurrent_steps_share_a_statement_but_no_errors(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [await _claimed(services, await _created(services)) for _ in range(4)]
    write_each, sizes = SessionRepository.advance_each, []

    async def counted(self: SessionRepository, steps: Any) -> Any:
        sizes.append(len(steps))
        return await write_each(self, steps)

    monkeypatch.setattr(SessionRepository, "advance_each", counted)
    writer = StepWriter(services.database)
    good, stolen, broken, last = records

    async def written(record: SessionRecord, epoch: int, said: str) -> None:
        await writer.write(record.id, epoch, asking(record, said))

    both = await asyncio.gather(
        written(good, good.lease_epoch, "asked"),
        written(stolen, stolen.lease_epoch - 1, "asked"),
        return_exceptions=True,
    )
    assert [type(one) for one in both] == [type(None), LeaseLostError]
    assert sizes == [2]
    with_a_fault = await asyncio.gather(
        written(broken, broken.lease_epoch, "a text with \x00"),
        written(last, last.lease_epoch, "asked"),
        return_exceptions=True,
    )
    assert [type(one) for one in with_a_fault] == [InvalidInputError, type(None)]

    asked = [len(await services.sessions.responses(record.id)) for record in records]
    assert asked == [1, 0, 0, 1]
    assert [len(await services.sessions.events(record.id)) for record in records] == [2, 1, 1, 2]


async def test_a_cancelled_step_does_not_affect_the_others(services: Services) -> None:
    gone, stays = [await _claimed(services, await _created(services)) for _ in range(2)]
    writer = StepWriter(services.database)
    first, second = (
        asyncio.create_task(writer.write(one.id, one.lease_epoch, asking(one)))
        for one in (gone, stays)
    )
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled() or first.cancelling()
    assert len(await services.sessions.responses(stays.id)) == 1


async def test_the_writer_finishes_before_its_worker_ends(services: Services) -> None:
    gone = await _claimed(services, await _created(services))
    writer = StepWriter(services.database)
    task = asyncio.create_task(writer.write(gone.id, gone.lease_epoch, asking(gone)))
    await asyncio.sleep(0)  # it hands the step in
    await asyncio.sleep(0)  # which starts to be written
    task.cancel()
    await writer.ended()
    assert len(await services.sessions.responses(gone.id)) == 1
    await writer.ended()  # with nothing to wait for
