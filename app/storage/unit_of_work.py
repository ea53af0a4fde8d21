"""One transaction and its repositories."""

from types import TracebackType
from typing import Any, Self, cast

import psycopg
from sqlalchemy import select
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from typing_extensions import override

from app.errors import DatabaseUnavailableError
from app.storage import auditing
from app.storage.repositories.answers import AnswerRepository
from app.storage.repositories.api_keys import ApiKeyRepository
from app.storage.repositories.audit import AuditRepository
from app.storage.repositories.banks import BankRepository
from app.storage.repositories.baselines import BaselineRepository
from app.storage.repositories.calibrations import CalibrationRepository
from app.storage.repositories.collected import CollectedRepository
from app.storage.repositories.endpoints import EndpointRepository
from app.storage.repositories.events import EventRepository
from app.storage.repositories.gates import GateRepository
from app.storage.repositories.idempotency import IdempotencyRepository
from app.storage.repositories.installations import InstallationRepository
from app.storage.repositories.item_uses import ItemUseRepository
from app.storage.repositories.items import ItemRepository
from app.storage.repositories.logins import LoginRepository
from app.storage.repositories.projects import ProjectRepository
from app.storage.repositories.rankings import RankingRepository
from app.storage.repositories.removals import RemovalRepository
from app.storage.repositories.response_sets import ResponseSetRepository
from app.storage.repositories.secrets import SecretRepository
from app.storage.repositories.sessions import SessionRepository
from app.storage.repositories.spend import SpendRepository
from app.storage.repositories.versions import VersionRepository
from app.storage.repositories.webhooks import WebhookRepository
from app.storage.scoping import of_opened


class UnitOfWork:
    """One transaction: commits on clean exit, rolls back on any error.

    No call to another machine belongs inside: it holds a connection and its locks. Whoever locks
    rows of several kinds does so in one order, and of one kind by id, so that no two wait for each
    other: project (`app.storage.scoping` sees to that), bank, ranking, session, endpoint,
    calibration, response set, webhook.

    Raises:
        AlreadyExistsError: A name or key is taken.
        ConflictError: A reference to something that is not there.
        DatabaseUnavailableError: Postgres is away, too busy, or its tables are missing.
        InvalidInputError: A value that Postgres cannot hold, such as a text with a NUL.
    """

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._transaction = sessions.begin()

    async def __aenter__(self) -> Self:
        self._db = await self._transaction.__aenter__()
        try:
            # Takes a connection and begins: what is enqueued on it below is never lost.
            await self._db.connection()
        except BaseException as exc:
            await self._transaction.__aexit__(type(exc), exc, exc.__traceback__)
            if isinstance(exc, PoolTimeoutError):
                raise DatabaseUnavailableError("All database connections are busy.") from exc
            raise
        self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                await auditing.note(self._db)
            except BaseException as exc:
                await self._transaction.__aexit__(type(exc), exc, exc.__traceback__)
                raise
        await self._transaction.__aexit__(kind, error, trace)
        if kind is None:
            auditing.noted(self._db)

    def _open(self) -> None:
        self.api_keys = ApiKeyRepository(self._db)
        self.logins = LoginRepository(self._db)
        self.audit = AuditRepository(self._db)
        self.projects = ProjectRepository(self._db)
        self.idempotency = IdempotencyRepository(self._db)
        self.secrets = SecretRepository(self._db)
        self.endpoints = EndpointRepository(self._db)
        self.banks = BankRepository(self._db)
        self.items = ItemRepository(self._db)
        self.versions = VersionRepository(self._db)
        self.sessions = SessionRepository(self._db)
        self.gates = GateRepository(self._db)
        self.baselines = BaselineRepository(self._db)
        self.rankings = RankingRepository(self._db)
        self.response_sets = ResponseSetRepository(self._db)
        self.collected = CollectedRepository(self._db)
        self.calibrations = CalibrationRepository(self._db)
        self.item_uses = ItemUseRepository(self._db)
        self.answers = AnswerRepository(self._db)
        self.events = EventRepository(self._db)
        self.spend = SpendRepository(self._db)
        self.installations = InstallationRepository(self._db)
        self.webhooks = WebhookRepository(self._db)
        self.removals = RemovalRepository(self._db)

    async def ping(self) -> None:
        """Ask the server for an answer.

        Raises:
            DatabaseUnavailableError: It gives none.
        """
        await self._db.execute(select(1).execution_options(**of_opened("no row")))

    async def driver_connection(self) -> psycopg.AsyncConnection[Any]:
        """The driver's connection of this transaction, for libraries that bring their own SQL.

        What is written through it is committed or rolled back with everything else.
        """
        connection = await self._db.connection()
        raw = await connection.get_raw_connection()
        return cast(psycopg.AsyncConnection[Any], raw.driver_connection)


class Reading(UnitOfWork):
    """No transaction: each statement is one of its own; the connection is taken with the first.

    Raises:
        DatabaseUnavailableError: As `UnitOfWork`.
        InvalidInputError: As `UnitOfWork`.
    """

    def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
        self._db = sessions()

    @override
    async def __aenter__(self) -> Self:
        self._open()
        return self

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await auditing.note(self._db)
                auditing.noted(self._db)
        finally:
            await self._db.__aexit__(kind, error, trace)
        if isinstance(error, PoolTimeoutError):
            raise DatabaseUnavailableError("All database connections are busy.") from error
