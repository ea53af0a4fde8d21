"""One worker process: takes jobs, keeps leases, rescues what others dropped, outlives Postgres."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import procrastinate
import structlog
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status

from app.adapters import AddressGuard, Transport
from app.errors import DatabaseUnavailableError
from app.services.container import Services
from app.services.session_runner import Networks, SessionRunner
from app.settings import Settings
from app.worker.fleet import Fleet
from app.worker.queue import QUEUE, RUN_SESSION, JobQueue, queue_app

logger = structlog.get_logger(__name__)

#: A second job for a session is not announced, only found by polling.
_POLL_S = 0.5
#: Pause before the queue's worker is started again, seconds: first and longest.
_RESTART_S = (0.2, 2.0)
_STALLED_WORKER_S = 60.0
#: Seconds between two removals of old Idempotency-Keys.
_PURGE_S = 3600.0


def worker_name() -> str:
    """Names this process in leases and logs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


@contextlib.asynccontextmanager
async def running_worker(services: Services) -> AsyncIterator[None]:
    """A worker that runs while the block does; on exit its sessions are given back."""
    task = asyncio.create_task(work(services), name="worker")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def work(services: Services) -> None:
    """Run sessions until cancelled."""
    settings = services.settings
    lease = timedelta(seconds=settings.lease_s)
    async with (
        Transport(guard=_guard(settings, allow_private=False)) as public,
        Transport(guard=_guard(settings, allow_private=True)) as private,
    ):
        runner = SessionRunner(
            database=services.database,
            banks=services.banks,
            endpoints=services.endpoints,
            networks=Networks(public=public, private=private),
            worker_id=worker_name(),
            lease=lease,
        )
        fleet = Fleet(
            database=services.database,
            runner=runner,
            lease=lease,
            heartbeat_s=settings.heartbeat_s,
        )
        queue = JobQueue(services.database)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_take_jobs(services, fleet))
                tasks.create_task(fleet.keep_leases())
                tasks.create_task(_rescue(services, queue))
        finally:
            await fleet.stop()


def _guard(settings: Settings, *, allow_private: bool) -> AddressGuard:
    return AddressGuard(allow_private=allow_private, allowed_networks=settings.allowed_networks)


async def _take_jobs(services: Services, fleet: Fleet) -> None:
    """Keep a procrastinate worker up: it ends, without an error, when Postgres goes away."""
    pause, longest = _RESTART_S
    while True:
        try:
            app = queue_app(services.database)
            app.task(name=RUN_SESSION, queue=QUEUE)(fleet.run)
            async with app.open_async():
                pause = _RESTART_S[0]
                await _sweep(app)
                await app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=services.settings.worker_concurrency,
                    fetch_job_polling_interval=_POLL_S,
                    install_signal_handlers=False,
                    # The jobs only wait for sessions, which go on without them.
                    shutdown_graceful_timeout=0,
                    delete_jobs="always",
                )
        except (ConnectorException, OSError) as error:
            logger.warning("queue_lost", error=str(error))
        logger.info("queue_worker_restarts", in_s=pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)


async def _rescue(services: Services, queue: JobQueue) -> None:
    """Queue again the sessions whose worker is gone; forget old Idempotency-Keys."""
    settings = services.settings
    next_purge = time.monotonic()
    while True:
        await asyncio.sleep(settings.heartbeat_s)
        try:
            async with services.database.unit_of_work() as uow:
                stalled = await uow.sessions.stalled(grace=timedelta(seconds=settings.heartbeat_s))
            for session_id in stalled:
                logger.info("session_rescued", session_id=session_id)
                await queue.enqueue_again(session_id)
            if time.monotonic() >= next_purge:
                async with services.database.unit_of_work() as uow:
                    await uow.idempotency.purge()
                next_purge = time.monotonic() + _PURGE_S
        except DatabaseUnavailableError:
            logger.warning("rescue_postponed")


async def _sweep(app: procrastinate.App) -> None:
    """Remove the jobs of workers that died with them; their sessions are rescued by lease."""
    manager = app.job_manager
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=_STALLED_WORKER_S):
        await manager.finish_job(job, status=Status.FAILED, delete_job=True)
