"""Upkeep beside the work: queues the work of dead workers again, and removes old data."""

import asyncio
import math
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import procrastinate
import structlog
from procrastinate.jobs import Status

from app.errors import DatabaseUnavailableError
from app.services.container import Services
from app.storage.database import Database
from app.storage.leased import LeasedRepository
from app.worker.queue import CALIBRATION, INSTALLATION, RANKING, SESSION, JobKind, JobQueue
from app.worker.turns import Turns

logger = structlog.get_logger(__name__)

#: Seconds without a heartbeat after which a worker is dead.
_STALLED_WORKER_S = 60.0


async def rescue(services: Services, queue: JobQueue, turns: Mapping[JobKind, Turns]) -> None:
    """Queue again the work that a lost worker ran or had in line, but not what waits here."""
    settings = services.settings
    grace, lease = timedelta(seconds=settings.heartbeat_s), timedelta(seconds=settings.lease_s)
    #: Leases that ran out while the database was away do not count as a worker's lapses.
    counts_from = -math.inf
    while True:
        await asyncio.sleep(settings.heartbeat_s)
        try:
            async with services.database.unit_of_work() as uow:
                counts = time.monotonic() >= counts_from
                leased: dict[JobKind, LeasedRepository[Any]] = {
                    SESSION: uow.sessions,
                    RANKING: uow.rankings,
                    CALIBRATION: uow.calibrations,
                    INSTALLATION: uow.installations,
                }
                stalled: list[str] = []
                for kind, rows in leased.items():
                    stalled += await rows.stalled(
                        grace=grace, lease=lease, counts=counts, besides=turns[kind].waiting
                    )
            if stalled:
                await queue.enqueue_again(stalled)
                logger.info("rescued", ids=stalled)
            idle = await services.sessions.end_idle() + await services.rankings.end_idle()
            if idle:
                logger.info("idle_sessions_ended", ids=idle)
        except DatabaseUnavailableError:
            logger.warning("rescue_postponed")
            counts_from = time.monotonic() + settings.lease_s + 2 * settings.heartbeat_s
        except Exception:  # no fault may end the worker
            logger.exception("rescue_failed")


async def sweep(app: procrastinate.App) -> None:
    """Remove the jobs of dead workers, whose work is rescued by its lease."""
    manager = app.job_manager
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=_STALLED_WORKER_S):
        await manager.finish_job(job, status=Status.FAILED, delete_job=True)


#: Seconds between two removals.
_PURGE_S = 3600.0


async def keep_purging(services: Services) -> None:
    """Remove old data until cancelled; begin when this worker has run for one lease."""
    pause = services.settings.lease_s
    while True:
        await asyncio.sleep(pause)
        try:
            await purge(services.database)
        except DatabaseUnavailableError:
            logger.warning("purge_postponed")
            pause = services.settings.heartbeat_s
            continue
        except Exception:  # no fault may end the worker
            logger.exception("purge_failed")
        pause = _PURGE_S


async def purge(database: Database) -> None:
    """Remove data that are older than the retention of their project, or of Sextant.

    Each statement is committed by itself. In one transaction they would lock rows of one table
    while they wait for rows of another, which may deadlock with a simultaneous deletion.

    Raises:
        DatabaseUnavailableError: Postgres went away; the rest is removed another time.
    """
    async with database.reading() as uow:
        await uow.idempotency.purge()
        await uow.answers.purge()
        await uow.spend.purge()
        await uow.projects.forget()
        await uow.audit.purge()
        await uow.webhooks.purge()
    async with database.unit_of_work() as uow:
        await uow.removals.unused()
