"""Parts of a calibration: any worker takes a part, and one worker joins them."""

from datetime import timedelta

import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.errors import LeaseLostError, NotFoundError
from app.records.calibrations import CalibrationRecord
from app.services.container import Services
from app.storage.paging import PageRequest
from tests.services.calibrations import (
    answers,
    claimed,
    driven,
    imported,
    lost,
    queued,
    run,
    runner_of,
)
from tests.services.sessions import events_of, failure_of
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("fits_here")

IN_PARTS = CalibrationPlan(partition_size=100, seed=3)


async def started(services: Services) -> tuple[CalibrationRecord, list[str]]:
    """Start a calibration in two parts; return all ids."""
    made = await queued(services, answers(120, 210), IN_PARTS)
    async with services.database.unit_of_work() as uow:
        return made, [part.id for part in await uow.calibrations.parts(made.id)]


async def kinds(services: Services, calibration_id: str) -> list[str]:
    events = await events_of(services, "calibration", calibration_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type.removeprefix("calibration.") for event in events]


async def test_the_last_part_joins_the_whole(services: Services) -> None:
    made, parts = await started(services)
    assert (made.n_parts, len(parts)) == (2, 2)
    assert await claimed(services, made.id) is None  # its parts come first
    for part in parts:
        await run(services, part)
    found = await services.calibrations.get(made.id)
    assert (found.status, found.result) == ("running", None)
    assert found.progress == {"phase": "calibrating", "n_parts": 2, "parts_done": 2}
    record = await driven(services, made.id)
    assert record.status == "completed", record.failure
    assert len(await services.calibrations.items(made.id)) > 200
    async with services.database.unit_of_work() as uow:
        assert await uow.calibrations.parts(made.id) == []
    seen = await kinds(services, made.id)
    assert seen[0] == "queued"
    assert seen.count("part_started") == 2
    assert seen[-1] == "completed"


async def test_parts_are_hidden_from_callers(services: Services) -> None:
    made, parts = await started(services)
    with pytest.raises(NotFoundError):
        await services.calibrations.get(parts[0])
    with pytest.raises(NotFoundError):
        await services.calibrations.cancel(parts[0])
    page = await services.calibrations.list_page(PageRequest())
    assert [record.id for record in page.items] == [made.id]


async def test_a_cancelled_calibration_takes_its_parts_with_it(services: Services) -> None:
    made, parts = await started(services)
    running = not_none(await claimed(services, parts[0]))
    assert (await services.calibrations.get(made.id)).status == "running"
    await services.calibrations.cancel(made.id)
    async with services.database.unit_of_work() as uow:
        with pytest.raises(LeaseLostError):
            await uow.calibrations.report(running, {"phase": "reading"})
        assert {part.status for part in await uow.calibrations.parts(made.id)} == {"cancelled"}
    await runner_of(services).drive(running)
    assert await claimed(services, parts[1]) is None
    assert (await kinds(services, made.id))[-1] == "cancelled"
    async with services.database.unit_of_work() as uow:
        await uow.calibrations.delete(made.id)
    with pytest.raises(NotFoundError):
        await services.calibrations.get(made.id)


async def test_a_part_that_loses_every_worker_ends_the_calibration(services: Services) -> None:
    made, parts = await started(services)
    await lost(services, parts[1])
    found = await services.calibrations.get(made.id)
    assert found.status == "failed"
    assert "its worker was lost" in failure_of(found)["detail"]
    assert await claimed(services, parts[0]) is None
    assert (await kinds(services, made.id))[-1] == "failed"


async def test_answers_that_changed_between_the_parts_are_not_joined(services: Services) -> None:
    made, parts = await started(services)
    for part in parts:
        await run(services, part)
    other = "model,q1,q2\none-more,1,0\n"  # the same items in the same parts
    await imported(services, other)
    record = await driven(services, made.id)
    assert record.status == "failed"
    assert "answers changed while their parts were calibrated" in failure_of(record)["detail"]
    assert record.result is None


async def test_only_runnable_work_without_a_worker_is_stalled(services: Services) -> None:
    made, parts = await started(services)

    async def stalled() -> set[str]:
        async with services.database.unit_of_work() as uow:
            found = uow.calibrations.stalled(grace=timedelta(0), lease=timedelta(minutes=1))
            return set(await found)

    assert await stalled() == set(parts)
    for part in parts:
        await run(services, part)
    assert await stalled() == {made.id}


async def test_a_set_that_fills_one_part_is_calibrated_as_a_whole(services: Services) -> None:
    assert (await queued(services, answers(60, 110), IN_PARTS)).n_parts is None
