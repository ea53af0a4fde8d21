"""A backup taken under full load is restored on another machine."""

import asyncio
from pathlib import Path

from app.records.sessions import SessionRecord
from app.services.container import Services, open_services
from app.settings import Settings
from app.storage.backups import back_up, restore
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from app.worker.queue import JobQueue
from tests.services.sessions import scripted, spec, until
from tests.waiting import waiting
from tests.worker.sessions import asked

#: One call at a time: with two in flight the order of answers would change the next item.
PLAN = {"stopping": {"se": None, "max_items": 30}, "concurrency": 1}


async def to_the_end(services: Services, ids: list[str]) -> list[SessionRecord]:
    return [await until(services, session_id) for session_id in ids]


async def answered(services: Services, ids: list[str], least: int) -> None:
    """Wait until each session has so many answers."""
    async with waiting() as pause:
        for session_id in ids:
            while True:
                if len(await services.sessions.responses(session_id)) >= least:
                    break
                await pause()


async def told(services: Services, ended: list[SessionRecord]) -> list[object]:
    """Return what must be the same wherever the sessions ended."""
    return [
        (s.status, s.summary["estimate"], s.provenance, await asked(services, s)) for s in ended
    ]


async def test_sessions_continue_from_a_backup_in_a_new_data_directory(
    services: Services, settings: Settings, scratch: Path, tmp_path: Path
) -> None:
    assert settings.database_url is not None
    await services.secret_keys.check()
    examinees = [scripted(theta=theta, seed=3, latency_ms=30) for theta in (-0.5, 0.8)]
    async with running_worker(services):
        ids = [
            (await services.sessions.create(spec(plan=PLAN, endpoint=endpoint))).id
            for endpoint in examinees
        ]
        await answered(services, ids, 5)
        waiting = await services.sessions.create(spec(plan=PLAN, endpoint=examinees[0], seed=12))
        ids.append(waiting.id)
        await asyncio.to_thread(back_up, settings.database_url, tmp_path / "all.backup")
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
