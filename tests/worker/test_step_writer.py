"""Steps of many sessions, written in one statement but each with its own result."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.errors import InvalidInputError, LeaseLostError
from app.records.sessions import Advance, SelectedItem, SessionEvent, SessionRecord
from app.services.container import Services
from app.services.sessions.runner import StepWriter
from app.storage.repositories.sessions import SessionRepository
from tests.services.sessions import spec


async def claimed(services: Services) -> SessionRecord:
    created = await services.sessions.create(spec())
    async with services.database.unit_of_work() as uow:
        record = await uow.sessions.claim(created.id, worker_id="w", lease=timedelta(seconds=60))
    assert record is not None
    return record


def asking(record: SessionRecord, said: str = "asked") -> Advance:
    return Advance(
        asked=[SelectedItem(step=1, position=3)],
        events=[SessionEvent("session.item_selected", {"said": said})],
        summary=record.summary,
    )


async def test_concurrent_steps_share_a_statement_but_no_errors(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [await claimed(services) for _ in range(4)]
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
    gone, stays = await claimed(services), await claimed(services)
    writer = StepWriter(services.database)
    first = asyncio.create_task(writer.write(gone.id, gone.lease_epoch, asking(gone)))
    second = asyncio.create_task(writer.write(stays.id, stays.lease_epoch, asking(stays)))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled() or first.cancelling()
    assert len(await services.sessions.responses(stays.id)) == 1


async def test_the_writer_finishes_before_its_worker_ends(services: Services) -> None:
    gone = await claimed(services)
    writer = StepWriter(services.database)
    task = asyncio.create_task(writer.write(gone.id, gone.lease_epoch, asking(gone)))
    await asyncio.sleep(0)  # it hands the step in
    await asyncio.sleep(0)  # which starts to be written
    task.cancel()
    await writer.ended()
    assert len(await services.sessions.responses(gone.id)) == 1
    await writer.ended()  # with nothing to wait for
