"""Recovery: killed workers, a stopped Postgres, and two workers on one database."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.records.sessions import SessionRecord
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.leased import MAX_LAPSES
from app.storage.migrate import upgrade
from app.worker.loop import running_worker
from tests.servers.fault_server import FaultServer
from tests.servers.forked import Forked
from tests.services.sessions import opened, scripted, spec, until
from tests.waiting import waiting
from tests.worker.test_live_sessions import asked, model_at


@contextmanager
def worker_process(settings: Settings) -> Iterator[Forked]:
    """Run `sextant worker` as a separate process; kill it at the end if it still runs."""
    assert settings.database_url is not None
    process = Forked(
        ["sextant", "worker"],
        env={
            **os.environ,
            "DATABASE_URL": settings.database_url,
            "SEXTANT_DATA_DIR": str(settings.data_dir),
            "SEXTANT_HEARTBEAT_S": str(settings.heartbeat_s),
            "SEXTANT_LEASE_S": str(settings.lease_s),
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def repeated_calls(faults: FaultServer) -> int:
    """Return the number of calls beyond the first for each prompt."""
    prompts = Counter(str(call.body["messages"]) for call in faults.calls)
    return sum(times - 1 for times in prompts.values())


async def epoch_above(services: Services, session_id: str, epoch: int) -> SessionRecord:
    """Return the session once a worker has claimed it after `epoch`, or it has ended."""
    async with waiting() as pause:
        while True:
            record = await services.sessions.get(session_id)
            if record.lease_epoch > epoch or record.finished_at is not None:
                return record
            await pause()


async def until_stored(services: Services, record: SessionRecord) -> None:
    """Wait for an answer from the worker that runs the session, or for the session's end."""
    async with waiting() as pause:
        while record.lapses and record.finished_at is None:
            await pause()
            record = await services.sessions.get(record.id)


@pytest.mark.slow
async def test_a_session_survives_eight_killed_workers(
    services: Services, settings: Settings, faults: FaultServer, faults_url: str
) -> None:
    rng = np.random.default_rng(2026)
    plan = {
        "stopping": {"score_margin": None, "max_items": 50},
        "concurrency": 1,
        "failures": {"max_consecutive": 150, "max_share": 1.0},
    }
    created = await services.sessions.create(
        spec(plan=plan, endpoint=model_at(f"{faults_url}/slow/v1"))
    )

    kills, epoch = 0, 0
    current = worker_process(settings)
    process = current.__enter__()
    try:
        while kills < 8:
            record = await epoch_above(services, created.id, epoch)
            epoch = record.lease_epoch
            standby = worker_process(settings)
            following = standby.__enter__()
            if record.lapses == MAX_LAPSES - 1:  # one more lapse without an answer would
                await until_stored(services, record)  # count as the session's own fault
            await asyncio.sleep(float(rng.uniform(0.0, 0.3)))
            process.send_signal(signal.SIGKILL)
            current.__exit__(None, None, None)
            current, process = standby, following
            kills += 1
        ended = await until(services, created.id)
    finally:
        current.__exit__(None, None, None)

    rows = await services.sessions.responses(created.id)
    arrivals = sorted(row.arrival or 0 for row in rows)
    assert ended.status == "completed", ended.failure
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    assert arrivals == list(range(1, len(rows) + 1))
    assert len(rows) == 50
    assert repeated_calls(faults) <= kills
    async with running_worker(services):
        straight = await services.sessions.create(
            spec(plan=plan, endpoint=model_at(f"{faults_url}/ok/v1"))
        )
        uninterrupted = await until(services, straight.id)
    assert await asked(services, ended) == await asked(services, uninterrupted)
    assert ended.summary["estimate"] == uninterrupted.summary["estimate"]


async def test_a_session_survives_a_stop_of_postgres(scratch: Path, tmp_path: Path) -> None:
    with EmbeddedPostgres(scratch / "pg", durable=False) as postgres:
        upgrade(postgres.url)
        settings = Settings(
            database_url=postgres.url, data_dir=tmp_path, heartbeat_s=0.2, lease_s=1.0
        )
        database = Database(postgres.url)
        plan = {"stopping": {"se": None, "max_items": 60}, "concurrency": 3}
        async with opened(settings, database) as services, running_worker(services):
            examinee = scripted(theta=0.3, seed=1, latency_ms=40)
            created = await services.sessions.create(spec(plan=plan, endpoint=examinee))
            await until(services, created.id, "running")
            await asyncio.to_thread(postgres.stop)
            await asyncio.sleep(3)
            await asyncio.to_thread(postgres.start)
            ended = await until(services, created.id)
            rows = await services.sessions.responses(created.id)
        await database.dispose()

    assert ended.status == "completed", ended.failure
    assert sorted(row.arrival or 0 for row in rows) == list(range(1, 61))
    assert ended.summary["outcomes"]["scored"] == 60


@pytest.mark.slow
async def test_two_workers_share_the_sessions_and_one_takes_over_from_the_other(
    services: Services, settings: Settings
) -> None:
    plan = {"stopping": {"se": None, "max_items": 24}}
    slow = scripted(theta=0.0, seed=1, latency_ms=150)
    with worker_process(settings) as first, worker_process(settings):
        created = [
            await services.sessions.create(spec(plan=plan, endpoint=slow, seed=seed))
            for seed in range(6)
        ]
        for record in created:
            await until(services, record.id, "running")
        first.send_signal(signal.SIGKILL)
        ended = [await until(services, record.id) for record in created]

    assert {record.status for record in ended} == {"completed"}
    assert {record.summary["progress"]["items"] for record in ended} == {24}


async def test_a_worker_that_is_stopped_gives_its_sessions_back_at_once(
    services: Services, settings: Settings
) -> None:
    plan = {"stopping": {"se": None, "max_items": 100}}
    created = await services.sessions.create(
        spec(plan=plan, endpoint=scripted(theta=0.0, latency_ms=50))
    )
    with worker_process(settings) as process:
        await until(services, created.id, "running")
        process.terminate()
        process.wait(60)

    record = await services.sessions.get(created.id)
    assert process.returncode == 0
    assert record.status == "queued"


async def test_a_worker_presumed_dead_writes_nothing(services: Services) -> None:
    examinee = scripted(theta=0.0, latency_ms=300)
    plan = {"stopping": {"se": None, "max_items": 5}}
    async with running_worker(services):
        created = await services.sessions.create(spec(plan=plan, endpoint=examinee))
        await until(services, created.id, "running")
        paused = await services.sessions.pause(created.id)  # takes the lease away
        before = await services.sessions.events(created.id)
        await asyncio.sleep(0.6)  # twice as long as the answer in flight
        assert await services.sessions.events(created.id) == before
    assert paused.status == "paused"
