"""One worker process: takes jobs, keeps leases, rescues lost work, has old data removed."""

import asyncio
import contextlib
import math
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import procrastinate
import psycopg
import structlog
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status

from app.acting import EVERYBODY, acting_for
from app.adapters.guard import AddressGuard
from app.adapters.transport import Transport
from app.errors import DatabaseUnavailableError
from app.observability import traces_sent
from app.services.calibrations.runner import CalibrationRunner
from app.services.catalog.runner import InstallationRunner
from app.services.container import Services
from app.services.leased import LeasedRunner, Leasing
from app.services.rankings.runner import RankingRunner
from app.services.sessions.runner import Networks, SessionRunner
from app.storage.database import Database
from app.worker.queue import (
    CALIBRATION,
    INSTALLATION,
    RANKING,
    SESSION,
    JobKind,
    JobQueue,
    Turns,
    queue_app,
)
from app.worker.webhooks import WebhookSender

logger = structlog.get_logger(__name__)

#: Seconds between polls, by which alone a second job for a session is found.
_POLL_S = 0.5
#: First and longest pause before the queue's worker is started again, seconds.
_RESTART_S = (0.2, 2.0)
#: Work of each kind that one worker process runs at a time. A ranking asks all its endpoints at
#: once, a calibration takes all cores and memory it can, and an installation waits for downloads.
_AT_A_TIME = {RANKING: 8, CALIBRATION: 1, INSTALLATION: 2}
#: Seconds without a heartbeat after which a worker is dead.
_STALLED_WORKER_S = 60.0
#: Seconds between two removals of old data.
_PURGE_S = 3600.0


@contextlib.asynccontextmanager
async def running_worker(services: Services) -> AsyncIterator[None]:
    """Run a worker for as long as the block runs, then release its leases."""
    task = asyncio.create_task(work(services), name="worker")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def _open_runners(
    services: Services,
) -> AsyncIterator[tuple[dict[JobKind, LeasedRunner[Any]], WebhookSender]]:
    """The runners of this process; at the end their work is stopped and its leases released."""
    settings = services.settings
    leasing = Leasing(
        database=services.database,
        worker_id=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}",
        lease=timedelta(seconds=settings.lease_s),
        heartbeat_s=settings.heartbeat_s,
    )
    versions, calibrations = services.versions, services.calibrations
    public, private = (
        Transport(
            guard=AddressGuard(allow_private=allowed, allowed_networks=settings.allowed_networks)
        )
        for allowed in (False, True)
    )
    async with public, private:
        networks = Networks(public=public, private=private)
        sessions = SessionRunner(
            leasing,
            versions=versions,
            joins=services.joins,
            endpoints=services.endpoints,
            networks=networks,
        )
        queue = JobQueue(services.database)
        # In the order in which `UnitOfWork` has rows of several kinds locked.
        runners: dict[JobKind, LeasedRunner[Any]] = {
            RANKING: RankingRunner(leasing, versions=versions, sessions=sessions),
            SESSION: sessions,
            CALIBRATION: CalibrationRunner(leasing, calibrations=calibrations, queue=queue),
            INSTALLATION: InstallationRunner(leasing, catalog=services.catalog),
        }
        try:
            yield runners, WebhookSender(services, networks)
        finally:
            await asyncio.gather(*(runner.stop() for runner in runners.values()))


async def work(services: Services) -> None:
    """Run sessions, rankings, calibrations and installations until cancelled."""
    at_a_time = {SESSION: services.settings.worker_concurrency, **_AT_A_TIME}
    # Taking work looks at all projects; doing it, only at the project that owns it.
    with acting_for(EVERYBODY), traces_sent(services.settings.traces_endpoint):
        async with _open_runners(services) as (runners, webhooks), asyncio.TaskGroup() as tasks:
            turns = {
                kind: Turns(at_a_time[kind], run=runner.run, owner_of=runner.owner_of)
                for kind, runner in runners.items()
            }
            for kind, runner in runners.items():
                tasks.create_task(_take_jobs(services, kind, turns[kind]))
                tasks.create_task(runner.keep_leases())
            tasks.create_task(rescue(services, runners, turns))
            tasks.create_task(webhooks.run())
            tasks.create_task(keep_purging(services))


async def _take_jobs(services: Services, kind: JobKind, turns: Turns) -> None:
    """Restart procrastinate's worker, which ends without an error when Postgres goes away."""
    pause, longest = _RESTART_S
    while True:
        try:
            app = queue_app(services.database)
            app.task(name=kind.task, queue=kind.queue)(turns.run)
            async with _opened(app):
                pause = _RESTART_S[0]
                await sweep(app)
                _stop_if_cancelled()
                await app.run_worker_async(
                    queues=[kind.queue],
                    # One calibration takes all cores and memory.
                    concurrency=turns.places if turns.alone > 1 else 1,
                    fetch_job_polling_interval=_POLL_S,
                    install_signal_handlers=False,
                    # The jobs only wait for work that goes on without them.
                    shutdown_graceful_timeout=0,
                    delete_jobs="always",
                )
        # Procrastinate's pool passes on psycopg's own error when it cannot be opened in time.
        except (ConnectorException, psycopg.OperationalError, OSError) as error:
            logger.warning("queue_lost", error=str(error))
        except Exception:  # after any fault, sessions must still be run
            logger.exception("queue_failed")
        _stop_if_cancelled()
        logger.info("queue_worker_restarts", in_s=pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


@contextlib.asynccontextmanager
async def _opened(app: procrastinate.App) -> AsyncIterator[None]:
    """The queue's connections, closed even where opening them was interrupted or cancelled.

    Tasks of half-open connections may swallow a cancellation, and the process would never end.
    """
    try:
        await app.open_async()
        _stop_if_cancelled()
        yield
    finally:
        await app.close_async()


def _stop_if_cancelled() -> None:
    """Stop the present task if its cancellation was lost.

    An error raised during a cancellation hides it, as when procrastinate cannot sign off. A task
    cancelled at the moment when its wait is done goes on, as in the `asyncio.wait_for` by which a
    pool waits for its connections.
    """
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError


async def rescue(
    services: Services, runners: Mapping[JobKind, LeasedRunner[Any]], turns: Mapping[JobKind, Turns]
) -> None:
    """Queue again the work that a lost worker ran or had in line, but not what waits here."""
    settings, queue = services.settings, JobQueue(services.database)
    grace, lease = timedelta(seconds=settings.heartbeat_s), timedelta(seconds=settings.lease_s)
    #: Leases that ran out while the database was away do not count as a worker's lapses.
    counts_from = -math.inf
    while True:
        await asyncio.sleep(settings.heartbeat_s)
        try:
            async with services.database.unit_of_work() as uow:
                counts = time.monotonic() >= counts_from
                stalled: list[str] = []
                for kind, runner in runners.items():
                    stalled += await runner.rows(uow).stalled(
                        grace=grace, lease=lease, counts=counts, besides=turns[kind].waiting
                    )
            if stalled:
                async with services.database.unit_of_work() as uow:
                    for resource_id in stalled:
                        await queue.enqueue(uow, resource_id)
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
        await uow.removals.past_retention()
        await uow.audit.purge()
        await uow.webhooks.purge()
    async with database.unit_of_work() as uow:
        await uow.removals.unused()
