"""Sessions with real workers: run to their end, in this process or by others."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.calling import RetryPolicy
from app.items import ScorerSpec
from app.records.endpoints import EndpointSettings
from app.records.sessions import Closing, SessionRecord
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from app.settings import Settings
from tests.databases import executed
from tests.servers.forked import Forked
from tests.services.sessions import spec, until
from tests.values import not_none
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


async def run_session(services: Services, *statuses: str, **changes: Any) -> SessionRecord:
    """Return a session that has ended, or has one of these states; `changes` as for `spec`."""
    created = await services.sessions.create(spec(**changes))
    return await until(services, created.id, *statuses)


async def rescored(
    services: Services, session_id: str, scorer: ScorerSpec | None = None, *statuses: str
) -> SessionRecord:
    """Return what scores the answers of a session again, once it has one of these states."""
    made = await services.derived_sessions.rescore(session_id, scorer, {})
    return await until(services, made.id, *statuses)


async def lapse_twice(services: Services, table: str) -> None:
    """Have all work of a table look as if its lease had run out twice without a step."""
    await executed(services.database, f"UPDATE {table} SET lapses = 2")


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of processes with these settings, whose lines are not wrapped."""
    return {
        **os.environ,
        "DATABASE_URL": not_none(settings.database_url),
        "SEXTANT_DATA_DIR": str(settings.data_dir),
        "SEXTANT_HEARTBEAT_S": str(settings.heartbeat_s),
        "SEXTANT_LEASE_S": str(settings.lease_s),
        "COLUMNS": "4000",
    }


async def said_in(log: Path, process: Forked, pattern: str) -> str:
    """Return the first group of a pattern, once the log of a process that runs matches it."""
    read = log.read_text
    async with waiting() as pause:
        while (found := re.search(pattern, read())) is None:
            assert process.poll() is None, read()
            await pause()
    return found[1] or ""


@contextmanager
def worker_process(settings: Settings) -> Iterator[Forked]:
    """Run `sextant worker` as a separate process; kill it at the end if it still runs."""
    process = Forked(["sextant", "worker"], env=environment(settings))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def epoch_above(services: Services, session_id: str, epoch: int) -> SessionRecord:
    """Return the session once a worker has claimed it after `epoch`, or it has ended."""
    async with waiting() as pause:
        while (record := await services.sessions.get(session_id)).lease_epoch <= epoch:
            if record.finished_at is not None:
                break
            await pause()
    return record
