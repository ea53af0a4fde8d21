"""Calibrations beside sessions in a worker: to the end, cancelled, and through a lost worker."""

import asyncio
import signal
from pathlib import Path

from app.calibration.filters import FilterSettings
from app.services.calibration_plan import CalibrationPlan
from app.services.calibrations import Publication
from app.services.container import Services
from app.settings import Settings
from app.storage.repositories.calibrations import CalibrationRecord
from app.worker.loop import running_worker
from tests.services.calibrations import answers, csv_of, ended, imported
from tests.services.sessions import spec, until
from tests.worker.test_recovery import worker_process

PLAN = CalibrationPlan()
#: Maximum likelihood of a 4PL from few answers: it wanders for as many cycles as it may.
LONG = CalibrationPlan(model="4pl", priors=False, max_cycles=100_000, filters=FilterSettings.none())
SOME_SECONDS = CalibrationPlan(
    model="4pl", priors=False, max_cycles=400, filters=FilterSettings.none()
)


async def calibrating(services: Services, calibration_id: str) -> CalibrationRecord:
    """The calibration once its process has reported a cycle."""
    async with asyncio.timeout(60):
        while True:
            record = await services.calibrations.get(calibration_id)
            if record.finished_at is not None or record.progress.get("cycle"):
                return record
            await asyncio.sleep(0.02)


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie, which only waits to be collected."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_a_worker_calibrates_and_the_version_serves_a_session(working: Services) -> None:
    await imported(working, csv_of(answers()))
    made = await working.calibrations.create("answers", PLAN)
    record = await ended(working, made.id, "completed")
    assert record.result is not None
    assert record.result["converged"]
    version = await working.calibrations.publish(record.id, Publication(bank="arc"))
    created = await working.sessions.create(
        spec(mode="manual", endpoint=None, bank=None, bank_version_id=version.id)
    )
    assert created.provenance["scale"] == version.scale


async def test_sessions_go_on_and_leases_hold_while_numbers_are_crunched(
    working: Services,
) -> None:
    await imported(working, csv_of(answers(800, 80)))
    made = await working.calibrations.create("answers", LONG)
    at_work = await calibrating(working, made.id)
    assert at_work.progress["phase"] == "calibrating"
    sessions = [await working.sessions.create(spec(seed=seed)) for seed in range(3)]
    for created in sessions:
        assert (await until(working, created.id)).status == "completed"
    still = await working.calibrations.get(made.id)
    assert (still.status, still.lease_epoch) == ("running", 1)
    assert still.progress["cycle"] >= at_work.progress["cycle"]

    cancelled = await working.calibrations.cancel(made.id)
    assert cancelled.status == "cancelled"
    # The one place of this worker is free again as soon as the process is gone.
    await imported(working, csv_of(answers()), "small")
    following = await working.calibrations.create("small", PLAN)
    await ended(working, following.id, "completed", limit_s=20)
    assert await working.calibrations.get(made.id) == cancelled


async def test_a_stopped_worker_hands_its_calibration_over(services: Services) -> None:
    await imported(services, csv_of(answers(400, 40)))
    made = await services.calibrations.create("answers", SOME_SECONDS)
    async with running_worker(services):
        await calibrating(services, made.id)
    given_back = await services.calibrations.get(made.id)
    assert (given_back.status, given_back.result) == ("queued", None)
    async with running_worker(services):
        record = await ended(services, made.id, "completed")
    assert record.lease_epoch == 2


async def test_a_calibration_survives_a_killed_worker(
    services: Services, settings: Settings
) -> None:
    await imported(services, csv_of(answers(400, 40)))
    made = await services.calibrations.create("answers", SOME_SECONDS)
    with worker_process(settings) as process:
        lost = await calibrating(services, made.id)
        (child,) = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    async with asyncio.timeout(10):
        while True:
            if not is_running(child):
                break
            await asyncio.sleep(0.02)
    assert (lost.status, lost.result) == ("running", None)
    async with running_worker(services):
        record = await ended(services, made.id, "completed")
    assert record.lease_epoch > lost.lease_epoch
    assert record.result is not None
    assert record.result["kept"] == {"items": 40, "examinees": 400}
    assert len(await services.calibrations.items(made.id)) == 40
