"""One worker process: takes jobs, keeps leases, rescues lost work, and outlives Postgres."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import procrastinate
import psycopg
import structlog
from procrastinate.exceptions import ConnectorException

from app.acting import EVERYBODY, acting_for, doing
from app.adapters.guard import AddressGuard
from app.adapters.transport import Transport
from app.services.calibrations.runner import CalibrationRunner
from app.services.catalog.runner import InstallationRunner
from app.services.container import Services
from app.services.leased import LeasedRunner, Leasing
from app.services.rankings.runner import RankingRunner
from app.services.sessions.runner import Networks, SessionRunner
from app.settings import Settings
from app.tracing import traces_sent
from app.worker.queue import (
    CALIBRATION,
    INSTALLATION,
    RANKING,
    SESSION,
    JobKind,
    JobQueue,
    queue_app,
)
from app.worker.turns import Owner, Turns
from app.worker.upkeep import keep_purging, rescue, sweep
from app.worker.webhooks import WebhookSender

logger = structlog.get_logger(__name__)

#: Seconds between polls, by which alone a second job for a session is found.
_POLL_S = 0.5
#: First and longest pause before the queue's worker is started again, seconds.
_RESTART_S = (0.2, 2.0)
#: Rankings that one worker process runs at a time; each asks all its endpoints at once.
_RANKINGS = 8
#: Calibrations that one worker process runs at a time; each takes all cores and memory it can.
_CALIBRATIONS = 1
#: Installations that one worker process runs at a time; they mostly wait for downloads.
_INSTALLATIONS = 2


def worker_name() -> str:
    """Name of this process in leases and logs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Runners:
    """The runners of one process, one for each kind of work."""

    sessions: SessionRunner
    rankings: RankingRunner
    calibrations: CalibrationRunner
    installations: InstallationRunner
    webhooks: WebhookSender


@contextlib.asynccontextmanager
async def open_runners(services: Services) -> AsyncIterator[Runners]:
    """The runners of this process; at the end their work is stopped and its leases released."""
    settings = services.settings
    leasing = Leasing(
        database=services.database,
        worker_id=worker_name(),
        lease=timedelta(seconds=settings.lease_s),
        heartbeat_s=settings.heartbeat_s,
    )
    async with (
        Transport(guard=_guard(settings, allow_private=False)) as public,
        Transport(guard=_guard(settings, allow_private=True)) as private,
    ):
        networks = Networks(public=public, private=private)
        sessions = SessionRunner(
            leasing, versions=services.versions, endpoints=services.endpoints, networks=networks
        )
        runners = Runners(
            sessions=sessions,
            rankings=RankingRunner(leasing, versions=services.versions, sessions=sessions),
            calibrations=CalibrationRunner(
                leasing,
                calibrations=services.calibrations,
                queue=JobQueue(services.database),
            ),
            installations=InstallationRunner(leasing, catalog=services.catalog),
            webhooks=WebhookSender(services, networks),
        )
        try:
            yield runners
        finally:
            await asyncio.gather(
                runners.sessions.stop(),
                runners.rankings.stop(),
                runners.calibrations.stop(),
                runners.installations.stop(),
            )


async def work(services: Services) -> None:
    """Run sessions, rankings, calibrations and installations until cancelled."""
    # Taking work looks at all projects; doing it, only at the project that owns it.
    traced = traces_sent(services.settings.traces_endpoint)
    with acting_for(EVERYBODY), doing(None), traced:
        await _work(services)


async def _work(services: Services) -> None:
    async with open_runners(services) as runners, asyncio.TaskGroup() as tasks:
        turns = {
            SESSION: _turns(runners.sessions, services.settings.worker_concurrency),
            RANKING: _turns(runners.rankings, _RANKINGS),
            CALIBRATION: _turns(runners.calibrations, _CALIBRATIONS),
            INSTALLATION: _turns(runners.installations, _INSTALLATIONS),
        }
        for kind, of_kind in turns.items():
            tasks.create_task(_take_jobs(services, kind, of_kind))
        tasks.create_task(runners.sessions.keep_leases())
        tasks.create_task(runners.rankings.keep_leases())
        tasks.create_task(runners.calibrations.keep_leases())
        tasks.create_task(runners.installations.keep_leases())
        tasks.create_task(rescue(services, JobQueue(services.database), turns))
        tasks.create_task(runners.webhooks.run())
        tasks.create_task(keep_purging(services))


def _guard(settings: Settings, *, allow_private: bool) -> AddressGuard:
    return AddressGuard(allow_private=allow_private, allowed_networks=settings.allowed_networks)


def _turns(runner: LeasedRunner[Any], alone: int) -> Turns:
    async def owner_of(resource_id: str) -> Owner | None:
        found = await runner.owner_of(resource_id)
        return None if found is None else Owner(*found)

    return Turns(alone, run=runner.run, owner_of=owner_of)


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
