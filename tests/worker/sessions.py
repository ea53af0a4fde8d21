"""Sessions with real workers: run to their end, in this process or by others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import text

from app.calling import RetryPolicy
from app.records.endpoints import EndpointSettings
from app.records.sessions import Closing, SessionRecord
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from app.settings import Settings
from app.storage.scoping import of_opened
from tests.servers.forked import Forked
from tests.services.sessions import spec, until
from tests.waiting import waiting

QUICK = RetryPolicy(max_attempts=3, base_s=0.01, cap_s=0.02)


def model_at(url: str, **settings: Any) -> EndpointSpec:
    given = {"kind": "openai_chat", "model": "m", "base_url": url, "retry": QUICK, "timeout_s": 60}
    return EndpointSpec(settings=EndpointSettings(**{**given, **settings}))


async def asked(services: Services, record: SessionRecord) -> list[tuple[str, str | None]]:
    """Return item and outcome of each step."""
    rows = await services.sessions.responses(record.id)
    return [(row.item_key, row.closing.outcome if row.closing else None) for row in rows]


async def closings(services: Services, record: SessionRecord) -> dict[str, Closing]:
    """Return the end of each answered item, in order of asking."""
    rows = await services.sessions.responses(record.id)
    return {row.item_key: row.closing for row in rows if row.closing is not None}


async def run_session(services: Services, **changes: Any) -> SessionRecord:
    """Return a session that has ended; `changes` as for `spec`."""
    created = await services.sessions.create(spec(**changes))
    return await until(services, created.id)


async def lapse_twice(services: Services, table: str) -> None:
    """Have all work of a table look as if its lease had run out twice without a step."""
    said = text(f"UPDATE {table} SET lapses = 2")
    async with services.database.unit_of_work() as uow:
        await uow._db.execute(said.execution_options(**of_opened(table)))


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


async def epoch_above(services: Services, session_id: str, epoch: int) -> SessionRecord:
    """Return the session once a worker has claimed it after `epoch`, or it has ended."""
    async with waiting() as pause:
        while True:
            record = await services.sessions.get(session_id)
            if record.lease_epoch > epoch or record.finished_at is not None:
                return record
            await pause()
