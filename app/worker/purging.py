"""Removes what is too old, once an hour."""

import asyncio

import structlog

from app.errors import DatabaseUnavailableError
from app.services.container import Services
from app.storage.database import Database

logger = structlog.get_logger(__name__)

#: Seconds between two removals.
_PURGE_S = 3600.0


async def keep_purging(services: Services) -> None:
    """Look for what is too old until cancelled, once this worker has been there for a lease."""
    pause = services.settings.lease_s
    while True:
        await asyncio.sleep(pause)
        try:
            await purge(services.database)
        except DatabaseUnavailableError:
            logger.warning("purge_postponed")
            pause = services.settings.heartbeat_s
            continue
        except Exception:  # it must not take the worker with it
            logger.exception("purge_failed")
        pause = _PURGE_S


async def purge(database: Database) -> None:
    """Remove what is older than its project, or Sextant, keeps it.

    Each statement is committed by itself. Together they would hold rows of one table while they
    wait for another's, and whoever deletes something meanwhile may hold these and want the others.

    Raises:
        DatabaseUnavailableError: The rest is to be removed another time.
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
