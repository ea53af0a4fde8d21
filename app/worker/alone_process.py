"""The program that runs one session or ranking alone; see `app.worker.alone`."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

from app.acting import EVERYBODY, become
from app.observability import configure_logging
from app.services.container import Services, open_services
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import Runners, open_runners
from app.worker.queue import JobQueue

_PR_SET_PDEATHSIG = 1


async def _main(order: dict[str, Any]) -> None:
    become(EVERYBODY)
    settings = Settings(**order["settings"])
    configure_logging(settings)
    database = Database(str(settings.database_url), pool_size=2)
    try:
        async with (
            open_services(settings, database, JobQueue(database)) as services,
            open_runners(services, on_heartbeat=_say_so) as runners,
        ):
            keepers = [
                asyncio.create_task(runner.keep_leases())
                for runner in (runners.sessions, runners.rankings)
            ]
            try:
                await _run(services, runners, order["id"], order["epoch"])
            finally:
                for keeper in keepers:
                    keeper.cancel()
    finally:
        await database.dispose()


async def _run(services: Services, runners: Runners, resource_id: str, epoch: int) -> None:
    _say_so()
    async with services.database.unit_of_work() as uow:
        if resource_id.startswith("ses_"):
            session = await uow.sessions.get(resource_id)
            ours = session.lease_epoch == epoch
            work = runners.sessions.take_on(session)
        else:
            ranking = await uow.rankings.get(resource_id)
            ours = ranking.lease_epoch == epoch
            work = runners.rankings.take_on(ranking)
    if ours:
        with contextlib.suppress(asyncio.CancelledError):  # paused or cancelled meanwhile
            await work
    else:
        work.close()


#: Where signs of life go; whatever is printed must not look like one.
_SIGNS = os.dup(1)


def _say_so() -> None:
    """A sign of life to the parent."""
    os.write(_SIGNS, b".")


if __name__ == "__main__":
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; parent decides
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    given = json.loads(sys.stdin.readline())
    # Who went while all this was loaded is not heard of; its work has been taken up elsewhere.
    if os.getppid() == given["parent"]:
        asyncio.run(_main(given))
