"""Calibrations beside sessions in a worker: finished, cancelled, and after a lost worker.

SIGSTOP halts the calibrating process where a test needs it to last.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.records.calibrations import CalibrationRecord
from app.services.container import Services
from app.settings import Settings
from app.worker.loop import running_worker
from tests.chaos.fleet import children_of
from tests.services.calibrations import answers, ended, queued
from tests.services.sessions import events_of, failure_of
from tests.waiting import waiting
from tests.worker.sessions import lapse_twice, run_session, worker_process


def processes_of(worker_pid: int) -> list[int]:
    """Return the processes that calibrate for a worker."""
    with suppress(OSError):  # a process that has just ended
        return [
            pid
            for pid in children_of(worker_pid)
            if "calibrations.process" in Path(f"/proc/{pid}/cmdline").read_text()
        ]
    return []


async def halted(worker_pid: int) -> int:
    """Halt the process that calibrates for a worker as soon as it exists; return it."""
    async with waiting() as pause:
        while not (found := processes_of(worker_pid)):
            await pause()
    os.kill(found[0], signal.SIGSTOP)
    return found[0]


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def gone(pid: int) -> None:
    """Wait for the end of a process."""
    async with waiting() as pause:
        while is_running(pid):
            await pause()


async def test_sessions_go_on_beside_a_calibration_and_it_is_cancelled(working: Services) -> None:
    made = await queued(working, answers())
    process = await halted(os.getpid())
    begun, seed = time.monotonic(), 0
    while time.monotonic() < begun + 2 * working.settings.lease_s:
        await run_session(working, "completed", seed=seed)
        await asyncio.sleep(working.settings.heartbeat_s)
        seed += 1
    still = await working.calibrations.get(made.id)
    assert (still.status, still.lease_epoch) == ("running", 1)

    cancelled = await working.calibrations.cancel(made.id)
    assert cancelled.status == "cancelled"
    await gone(process)
    following = await working.calibrations.create("answers", CalibrationPlan())
    await ended(working, following.id, "completed")
    assert await working.calibrations.get(made.id) == cancelled


async def test_a_process_that_dies_is_a_failure_with_a_reason(working: Services) -> None:
    made = await queued(working, answers())
    os.kill(await halted(os.getpid()), signal.SIGKILL)
    record = await ended(working, made.id, "failed")
    assert "ended without a result (exit -9)" in failure_of(record)["detail"]


async def test_a_stopped_worker_hands_its_calibration_over(services: Services) -> None:
    made = await queued(services, answers())
    async with running_worker(services):
        process = await halted(os.getpid())
    assert not is_running(process)
    given_back = await services.calibrations.get(made.id)
    assert (given_back.status, given_back.result) == ("queued", None)
    await lapse_twice(services, "calibrations")
    async with running_worker(services):
        record = await ended(services, made.id, "completed")
    assert (record.lease_epoch, record.lapses) == (2, 0)  # progress counts them anew


async def in_parts(services: Services) -> CalibrationRecord:
    """Queue a calibration in two parts; too few models for curves, which take longest."""
    return await queued(services, answers(19, 250), CalibrationPlan(partition_size=100))


async def data_of(services: Services, calibration_id: str, kind: str) -> list[dict[str, Any]]:
    return [
        event.data
        for event in await events_of(services, "calibration", calibration_id)
        if event.type == f"calibration.{kind}"
    ]


@pytest.mark.slow
async def test_a_part_of_a_killed_worker_is_taken_over_and_the_parts_are_joined(
    services: Services, settings: Settings
) -> None:
    made = await in_parts(services)
    with worker_process(settings) as worker:
        process = await halted(worker.pid)
        worker.kill()
        worker.wait()
    os.kill(process, signal.SIGCONT)
    await gone(process)
    assert (await services.calibrations.get(made.id)).result is None
    async with running_worker(services):
        record = await ended(services, made.id, "completed")
    begun = await data_of(services, made.id, "part_started")
    assert sorted((event["part"], event["attempt"]) for event in begun) == [(0, 1), (0, 2), (1, 1)]
    assert [event["attempt"] for event in await data_of(services, made.id, "started")] == [1]
    assert len(await data_of(services, made.id, "completed")) == 1
    kept = (record.result or {})["kept"]["items"]
    assert len(await services.calibrations.items(made.id)) == kept > 200


@pytest.mark.slow
async def test_two_workers_share_the_parts(working: Services, settings: Settings) -> None:
    made = await in_parts(working)
    with worker_process(settings) as other:
        # Each worker runs one part: none can hold both.
        mine, theirs = await asyncio.gather(halted(os.getpid()), halted(other.pid))
        for process in (mine, theirs):
            os.kill(process, signal.SIGCONT)
        await ended(working, made.id, "completed")
