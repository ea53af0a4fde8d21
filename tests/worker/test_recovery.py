"""Recovery: killed workers, a stopped Postgres, and a backup restored on another machine."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from app.engine.ranking.rules import RankingRules
from app.records.sessions import SessionRecord
from app.services.container import Services, open_services
from app.settings import Settings
from app.storage.backups import back_up, restore
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from app.worker.queue import JobQueue
from tests.services.living import BANK, living_bank
from tests.services.rankings import contest, ranked
from tests.services.sessions import figures_of, length, opened, scripted, spec, until
from tests.values import not_none
from tests.waiting import waiting
from tests.worker.models import Faults
from tests.worker.sessions import (
    asked,
    epoch_above,
    lapse_twice,
    run_session,
    worker_process,
)


@pytest.mark.slow
async def test_a_ranking_is_taken_over_from_a_killed_worker(
    services: Services, settings: Settings, faults: Faults
) -> None:
    endpoints = [faults.model("slow", model=name) for name in "ab"]
    rules = RankingRules(min_items=20, max_items=20)
    asked_of_two = contest(endpoints=endpoints, rules=rules, asking={"concurrency": 2})
    created = await services.rankings.create(asked_of_two)
    with worker_process(settings) as process:
        async with waiting() as pause:
            while (await services.rankings.get(created.id)).event_seq < 4:
                await pause()
        process.kill()
    await lapse_twice(services, "rankings")
    async with running_worker(services):
        ended = await ranked(services, created.id)

    assert ended.status == "completed", ended.failure
    assert ended.lapses == 0  # progress counts them anew
    takeovers = ended.lease_epoch - 1
    assert takeovers >= 1
    asked_of = Counter(call.body["model"] for call in faults.calls)
    for entry in figures_of(ended)["order"]:
        rows = await services.sessions.responses(entry["session_id"])
        # Nothing is lost or doubled: each step and each arrival exists once.
        assert [row.step for row in rows] == list(range(1, 21))
        assert sorted(row.arrival or 0 for row in rows) == list(range(1, 21))
        assert 20 <= asked_of[entry["model"]] <= 20 + 2 * takeovers


async def test_a_session_survives_a_stop_of_postgres(scratch: Path, tmp_path: Path) -> None:
    with EmbeddedPostgres(scratch / "pg", durable=False) as postgres:
        upgrade(postgres.url)
        settings = Settings(
            database_url=postgres.url, data_dir=tmp_path, heartbeat_s=0.2, lease_s=1.0
        )
        database = Database(postgres.url)
        async with opened(settings, database) as services, running_worker(services):
            examinee = scripted(theta=0.3, seed=1, latency_ms=40)
            created = await run_session(
                services, "running", plan=length(60, concurrency=3), endpoint=examinee
            )
            await asyncio.to_thread(postgres.stop)
            await asyncio.sleep(3)
            await asyncio.to_thread(postgres.start)
            ended = await until(services, created.id, "completed")
            rows = await services.sessions.responses(created.id)
        await database.dispose()

    assert sorted(row.arrival or 0 for row in rows) == list(range(1, 61))
    assert ended.summary["outcomes"]["scored"] == 60


async def test_a_stopped_worker_gives_sessions_back(services: Services, settings: Settings) -> None:
    slow = scripted(theta=0.0, latency_ms=50)
    created = await services.sessions.create(spec(plan=length(100), endpoint=slow))
    with worker_process(settings) as process:
        await until(services, created.id, "running")
        process.terminate()
        process.wait(60)

    record = await services.sessions.get(created.id)
    assert process.returncode == 0
    assert record.status == "queued"
    await lapse_twice(services, "sessions")
    async with running_worker(services), waiting() as pause:
        while (ended := await services.sessions.get(created.id)).arrivals <= record.arrivals:
            await pause()
    assert ended.lapses == 0  # progress counts them anew


@pytest.mark.slow
async def test_pretest_items_survive_killed_workers(services: Services, settings: Settings) -> None:
    await living_bank(services)
    plan = length(30, pretest={"items_per_session": 8}, concurrency=1)
    slow = scripted(theta=0.6, seed=4, latency_ms=60)
    created = await services.sessions.create(spec(bank=BANK, plan=plan, endpoint=slow))
    epoch = 0
    for _ in range(2):
        with worker_process(settings):
            epoch = (await epoch_above(services, created.id, epoch)).lease_epoch
            await until(services, created.id, "running")
    async with running_worker(services):
        ended = await until(services, created.id, "completed")
        # The other session draws other pretest items, as those of the first are no longer rarest.
        quick = scripted(theta=0.6, seed=4)
        straight = await run_session(services, bank=BANK, plan=plan, endpoint=quick)

    rows = await services.sessions.responses(ended.id)
    steps = [row.step for row in rows]
    assert ended.lease_epoch >= 3
    assert steps == list(range(1, 39))
    assert [row.position for row in rows if row.is_pretest] == ended.design["pretest"]["positions"]
    seeded = {row.item_key for row in rows if row.is_pretest}
    of_test = [pair for pair in await asked(services, ended) if pair[0] not in seeded]
    others = await services.sessions.responses(straight.id)
    assert not seeded & {row.item_key for row in others if row.is_pretest}
    assert of_test == [(row.item_key, "scored") for row in others if not row.is_pretest]
    assert ended.summary["estimate"] == straight.summary["estimate"]


#: One call at a time: with two in flight the order of answers would change the next item.
PLAN = length(30, concurrency=1)


async def to_the_end(services: Services, ids: list[str]) -> list[SessionRecord]:
    return [await until(services, session_id) for session_id in ids]


async def each_answered(services: Services, ids: list[str], least: int) -> None:
    """Wait until each session has so many answers."""
    async with waiting() as pause:
        for session_id in ids:
            while len(await services.sessions.responses(session_id)) < least:
                await pause()


async def told(services: Services, ended: list[SessionRecord]) -> list[object]:
    """Return what must be the same wherever the sessions ended."""
    return [
        (s.status, s.summary["estimate"], s.provenance, await asked(services, s)) for s in ended
    ]


async def test_sessions_continue_from_a_backup_in_a_new_data_directory(
    services: Services, settings: Settings, scratch: Path, tmp_path: Path
) -> None:
    url = not_none(settings.database_url)
    await services.secret_keys.check()
    examinees = [scripted(theta=theta, seed=3, latency_ms=30) for theta in (-0.5, 0.8)]
    async with running_worker(services):
        ids = [
            (await services.sessions.create(spec(plan=PLAN, endpoint=endpoint))).id
            for endpoint in examinees
        ]
        await each_answered(services, ids, 5)
        waiting = await services.sessions.create(spec(plan=PLAN, endpoint=examinees[0], seed=12))
        ids.append(waiting.id)
        await asyncio.to_thread(back_up, url, tmp_path / "all.backup")
        here = await told(services, await to_the_end(services, ids))

    elsewhere = Settings(data_dir=scratch, heartbeat_s=0.4, lease_s=3.0)
    (scratch / "secret.key").write_bytes((settings.data_dir / "secret.key").read_bytes())
    (scratch / "secret.key").chmod(0o600)
    with EmbeddedPostgres(scratch, durable=False) as postgres:
        restore(postgres.url, tmp_path / "all.backup", SecretBox(elsewhere))
        database = Database(postgres.url)
        async with (
            open_services(elsewhere, database, JobQueue(database)) as restored,
            running_worker(restored),
        ):
            found = [await restored.sessions.get(each) for each in ids]
            assert {record.status for record in found} <= {"queued", "running"}
            assert await restored.secret_keys.state() == "ok"
            ended = await to_the_end(restored, ids)
            assert await told(restored, ended) == here
            for each in ids:
                rows = await restored.sessions.responses(each)
                assert sorted(row.arrival or 0 for row in rows) == list(range(1, 31))
        await database.dispose()
