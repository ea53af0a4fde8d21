"""One transaction and its repositories."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import pq
from sqlalchemy import select
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from app.acting import AuditEntry
from app.errors import DatabaseUnavailableError
from app.storage import auditing
from app.storage.auditing import AuditRepository
from app.storage.repositories.api_keys import ApiKeyRepository, LoginRepository
from app.storage.repositories.banks import BankRepository, InstallationRepository
from app.storage.repositories.calibrations import CalibrationRepository
from app.storage.repositories.endpoints import AnswerRepository, EndpointRepository
from app.storage.repositories.events import EventRepository
from app.storage.repositories.gates import BaselineRepository, GateRepository
from app.storage.repositories.idempotency import IdempotencyRepository
from app.storage.repositories.items import ItemRepository, ItemUseRepository
from app.storage.repositories.projects import ProjectRepository
from app.storage.repositories.rankings import RankingRepository
from app.storage.repositories.removals import RemovalRepository
from app.storage.repositories.response_sets import CollectedRepository, ResponseSetRepository
from app.storage.repositories.secrets import SecretRepository
from app.storage.repositories.sessions import SessionRepository
from app.storage.repositories.spend import SpendRepository
from app.storage.repositories.versions import VersionRepository
from app.storage.repositories.webhooks import WebhookRepository
from app.storage.scoping import of_opened

R = TypeVar("R")


def _made_when_used(repository: Callable[[AsyncSession], R]) -> cached_property[R]:
    return cached_property(lambda work: repository(work._db))  # noqa: SLF001 - the work is its own


class UnitOfWork:
    """One transaction: commits on clean exit, rolls back on any error.

    Under `Database.reading`, each statement is a transaction of its own.

    Do not call other machines inside, since it holds a connection and locks. To avoid deadlocks,
    lock rows of one kind in order of id, and rows of several kinds in this order: project (done by
    `app.storage.scoping`), bank, ranking, session, endpoint, calibration, response set, webhook.
    All code that locks rows keeps this order.

    Raises:
        AlreadyExistsError: A name or key is taken.
        ConflictError: A reference to something that does not exist.
        DatabaseUnavailableError: Postgres is unreachable, too busy, or its tables are missing.
        InvalidInputError: A value that Postgres cannot hold, such as a text with a NUL.
    """

    api_keys = _made_when_used(ApiKeyRepository)
    logins = _made_when_used(LoginRepository)
    audit = _made_when_used(AuditRepository)
    projects = _made_when_used(ProjectRepository)
    idempotency = _made_when_used(IdempotencyRepository)
    secrets = _made_when_used(SecretRepository)
    endpoints = _made_when_used(EndpointRepository)
    banks = _made_when_used(BankRepository)
    items = _made_when_used(ItemRepository)
    versions = _made_when_used(VersionRepository)
    sessions = _made_when_used(SessionRepository)
    gates = _made_when_used(GateRepository)
    baselines = _made_when_used(BaselineRepository)
    rankings = _made_when_used(RankingRepository)
    response_sets = _made_when_used(ResponseSetRepository)
    collected = _made_when_used(CollectedRepository)
    calibrations = _made_when_used(CalibrationRepository)
    item_uses = _made_when_used(ItemUseRepository)
    answers = _made_when_used(AnswerRepository)
    events = _made_when_used(EventRepository)
    spend = _made_when_used(SpendRepository)
    installations = _made_when_used(InstallationRepository)
    webhooks = _made_when_used(WebhookRepository)
    removals = _made_when_used(RemovalRepository)

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._transaction = sessions.begin()

    async def __aenter__(self) -> Self:
        self._db = await self._transaction.__aenter__()
        try:
            # Takes a connection and begins, so that jobs enqueued on it later are never lost.
            await self._db.connection()
        except BaseException as exc:
            await self._transaction.__aexit__(type(exc), exc, exc.__traceback__)
            if isinstance(exc, PoolTimeoutError):
                raise DatabaseUnavailableError(
                    "All database connections are busy: try again in a moment."
                ) from exc
            raise
        return self

    async def __aexit__(self, *failure: Any) -> None:
        entry: AuditEntry | None = None
        if failure[0] is None:
            try:
                entry = await auditing.note(self._db)
            except BaseException as exc:
                await self._transaction.__aexit__(type(exc), exc, exc.__traceback__)
                raise
        await self._transaction.__aexit__(*failure)
        if entry is not None:
            entry.is_noted = True

    async def ping(self) -> None:
        """Check that the server answers.

        Raises:
            DatabaseUnavailableError: It does not answer.
        """
        await self._db.execute(select(1).execution_options(**of_opened("no row")))

    async def driver_connection(self) -> psycopg.AsyncConnection[Any]:
        """The driver's connection of this transaction, for libraries with SQL of their own.

        Their writes are committed or rolled back together with all others.
        """
        connection = await self._db.connection()
        raw = await connection.get_raw_connection()
        driver = cast(psycopg.AsyncConnection[Any], raw.driver_connection)
        if not driver.autocommit and driver.info.transaction_status == pq.TransactionStatus.IDLE:
            # The driver begins with its first statement: a savepoint before it would be committed.
            await self.ping()
        return driver
