"""A rolling upgrade: two API processes and two workers are replaced while sessions run."""

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from app.records.api_keys import Scope
from app.services.api_keys import ApiKeyService
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from app.storage.migrate import newest_revision
from tests.api.calls import got, posted
from tests.servers import ROOT
from tests.servers.forked import Forked
from tests.services.sessions import until
from tests.worker.sessions import asked as items_asked
from tests.worker.sessions import environment, said_in

N_ITEMS = 25
_MIGRATION = """
import sqlalchemy as sa

from alembic import op

revision = "0123456789ab"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("sessions", sa.Column("of_tomorrow", sa.Text(), nullable=True))
"""


@pytest.fixture
def tomorrow(tmp_path: Path) -> Path:
    """Return the code of a later version with one more migration."""
    later = tmp_path / "later"
    for part in ("app", "migrations"):
        shutil.copytree(ROOT / part, later / part)  # with .pyc files: to compile takes 10 s
    text = _MIGRATION.format(before=newest_revision())
    (later / "migrations" / "versions" / "99991231_2359_tomorrow.py").write_text(text)
    return later


class Fleet:
    """Processes on one database, from the old or the new code."""

    def __init__(self, settings: Settings, logs: Path) -> None:
        self._logs = logs
        self._environment = {**environment(settings), "SEXTANT_DATABASE_POOL_SIZE": "3"}
        self._running: list[Forked] = []

    def start(self, code: Path, *command: str) -> tuple[Forked, Path]:
        log = self._logs / f"{len(self._running)}.log"
        with log.open("wb") as out:
            process = Forked(
                ["sextant", *command], env=self._environment, stdout=out, stderr=out, code=code
            )
        self._running.append(process)
        return process, log

    async def up(self, code: Path, *command: str) -> tuple[Forked, str]:
        """Start a process and wait until it is ready; return it and its address."""
        process, log = self.start(code, *command)
        return process, await said_in(log, process, r"listens on (\S+)|takes sessions")

    async def ended(self, code: Path, *command: str) -> tuple[int, str]:
        process, log = self.start(code, *command)
        return await asyncio.to_thread(process.wait), log.read_text()

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


async def stop(process: Forked) -> None:
    process.terminate()
    assert await asyncio.to_thread(process.wait, 60) in (0, -15, 143)


@pytest.mark.slow
async def test_sessions_continue_while_everything_is_replaced(
    services: Services, settings: Settings, database: Database, tomorrow: Path, tmp_path: Path
) -> None:
    _, key = await ApiKeyService(database).create(name="all", scopes=[Scope.ADMIN])
    body = {
        "bank": "demo",
        "endpoint": {
            "kind": "scripted",
            "model": "simulated",
            "options": {"theta": 0.4, "seed": 3, "latency_ms": 600},
        },
        "stopping": {"se": None, "max_items": N_ITEMS, "min_items": 1},
        "selection": {"criterion": "random"},  # independent of which answer comes first
        "seed": 7,
    }
    fleet = Fleet(settings, tmp_path)
    async with AsyncExitStack() as stack:
        stack.callback(fleet.end)

        async def api(code: Path) -> tuple[Forked, httpx2.AsyncClient]:
            process, url = await fleet.up(code, "serve", "--no-worker", "--port", "0")
            headers = {"Authorization": f"Bearer {key}"}
            client = httpx2.AsyncClient(base_url=url, headers=headers, timeout=60)
            return process, await stack.enter_async_context(client)

        async def new_session(client: httpx2.AsyncClient) -> str:
            return str((await posted(client, "/v1/sessions", body, 202))["id"])

        apis = [await api(ROOT) for _ in range(2)]
        workers = [(await fleet.up(ROOT, "worker"))[0] for _ in range(2)]
        ids = [await new_session(apis[n % 2][1]) for n in range(4)]

        code, said = await fleet.ended(tomorrow, "migrate")
        assert code == 0, said
        assert "0123456789ab" in said
        for _, client in apis:  # the old processes still serve
            await got(client, "/readyz")
            ids.append(await new_session(client))
        for number in range(2):
            await stop(workers[number])
            workers[number], _ = await fleet.up(tomorrow, "worker")
            await stop(apis[number][0])
            apis[number] = await api(tomorrow)
            ids.append(await new_session(apis[number][1]))
        running = [(await services.sessions.get(each)).status for each in ids]
        assert "running" in running, running
        code, said = await fleet.ended(ROOT, "worker")
        assert code != 0
        assert "written by a newer Sextant" in said

        asked = []
        for each in ids:
            record = await until(services, each, "completed")
            rows = await services.sessions.responses(each)
            assert sorted(row.arrival or 0 for row in rows) == list(range(1, N_ITEMS + 1))
            asked.append(await items_asked(services, record))
        assert all(each == asked[-1] for each in asked), "the last one ran undisturbed"
