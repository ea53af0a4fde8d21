"""Helpers of the calibration tests: simulated answers in a response set, and waiting."""

from datetime import timedelta

import numpy as np

from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.responses import ResponseTable
from app.exchange.response_files import write_csv
from app.exchange.results.recorded import SourceFile
from app.records.calibrations import CalibrationRecord
from app.records.response_sets import ResponseSet
from app.services.calibrations.runner import MAX_CLAIMS, CalibrationRunner
from app.services.container import Services
from app.services.leased import Leasing
from app.services.responses.imports import AnswerImport
from app.worker.queue import JobQueue
from tests.calibration.simulated import Simulated, simulate
from tests.values import not_none
from tests.waiting import reached


def answers(n_examinees: int = 300, n_items: int = 12, *, seed: int = 7) -> Simulated:
    """Simulate 2PL answers, the same for the same seed."""
    return simulate(seed, Family.TWO_PL, n_examinees, n_items)


def csv_of(recorded: Simulated | ScoreMatrix) -> str:
    """Return answers as a wide table: items q1, q2, ..."""
    matrix = recorded.matrix if isinstance(recorded, Simulated) else recorded
    table = ResponseTable(
        tuple(f"model-{name}" for name in matrix.examinees),
        tuple(f"q{name}" for name in matrix.items),
        matrix.scores.astype(np.float64),
    )
    return b"".join(write_csv(table)).decode()


async def imported(
    services: Services, recorded: Simulated | ScoreMatrix | str, name: str = "answers"
) -> ResponseSet:
    """Import answers, or one CSV file, as a response set."""
    text = recorded if isinstance(recorded, str) else csv_of(recorded)
    request = AnswerImport(files=[SourceFile.of_bytes("scores.csv", text.encode())])
    return (await services.response_sets.import_set(name, request)).response_set


async def queued(
    services: Services, recorded: Simulated | str, plan: CalibrationPlan | None = None
) -> CalibrationRecord:
    """Return a calibration of these answers that no worker has begun."""
    found = await imported(services, recorded)
    return await services.calibrations.create(found.id, plan or CalibrationPlan())


async def ended(services: Services, calibration_id: str, *statuses: str) -> CalibrationRecord:
    """Return the calibration once it has one of these states (default: ended)."""
    return await reached(lambda: services.calibrations.get(calibration_id), *statuses)


def runner_of(services: Services, worker_id: str = "w1") -> CalibrationRunner:
    leasing = Leasing(
        database=services.database,
        worker_id=worker_id,
        lease=timedelta(seconds=services.settings.lease_s),
        heartbeat_s=services.settings.heartbeat_s,
    )
    queue = JobQueue(services.database)
    return CalibrationRunner(leasing, calibrations=services.calibrations, queue=queue)


async def claimed(
    services: Services, calibration_id: str, worker_id: str = "w1"
) -> CalibrationRecord | None:
    """Return the calibration under a lease of that worker, or None where it gets none."""
    lease = timedelta(seconds=services.settings.lease_s)
    async with services.database.unit_of_work() as uow:
        return await uow.calibrations.claim(calibration_id, worker_id=worker_id, lease=lease)


async def run(services: Services, calibration_id: str) -> None:
    """Run a calibration, or a part of one, as a worker does."""
    record = not_none(await claimed(services, calibration_id))
    await runner_of(services).drive(record)


async def driven(services: Services, calibration_id: str) -> CalibrationRecord:
    """Return the calibration after this process has run it as its worker."""
    await run(services, calibration_id)
    return await services.calibrations.get(calibration_id)


async def calibrated(
    services: Services, plan: CalibrationPlan | None = None, response_set: str = "answers"
) -> CalibrationRecord:
    """Calibrate a response set to the end; return the calibration."""
    made = await services.calibrations.create(response_set, plan or CalibrationPlan())
    return await driven(services, made.id)


async def completed(services: Services, plan: CalibrationPlan | None = None) -> CalibrationRecord:
    """Return a completed calibration of simulated answers."""
    return await driven(services, (await queued(services, answers(), plan)).id)


async def lost(services: Services, calibration_id: str) -> None:
    """Lose as many workers as a calibration, or a part of one, may lose; one more ends it."""
    for _ in range(MAX_CLAIMS):
        record = not_none(await claimed(services, calibration_id))
        async with services.database.unit_of_work() as uow:
            await uow.calibrations.release({record.id: record.lease_epoch})
    await run(services, calibration_id)
