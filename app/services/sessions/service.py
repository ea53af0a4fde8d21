"""Sessions: create, watch and steer."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import (
    LeaseLapsedError,
)
from app.records.fields import shallow
from app.records.sessions import UNDERWAY, Administration, SessionEvent, SessionRecord
from app.services.banks.versions import VersionService
from app.services.sessions.drafts import SessionDrafts, SessionQueue, SessionSpec
from app.storage.database import Database
from app.storage.paging import Page, PageRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer(Administration):
    """One item of a session, by its name in the bank.

    Attributes:
        withheld: It is one of a withheld bank.
    """

    item_key: str
    is_pretest: bool
    withheld: bool


class SessionService:
    """Use cases around sessions. Running live ones is `SessionRunner`'s.

    Args:
        database: Where they are stored.
        versions: What is asked.
        queue: Brings live sessions to the workers.
        drafts: Makes new ones.
    """

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        queue: SessionQueue,
        drafts: SessionDrafts,
    ) -> None:
        self._database = database
        self._versions = versions
        self._queue = queue
        self._drafts = drafts

    async def create(self, spec: SessionSpec) -> SessionRecord:
        """Create a session; a live one is queued in the same transaction.

        Raises:
            InvalidInputError: A design that makes no sense for this bank or endpoint.
            NotFoundError: No such endpoint or bank version.
        """
        return await self._drafts.start(await self._drafts.draft(spec))

    async def get(self, session_id: str) -> SessionRecord:
        """One session.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.reading() as uow:
            return await uow.sessions.get(session_id)

    async def list_page(
        self,
        request: PageRequest,
        *,
        status: str | None = None,
        endpoint_id: str | None = None,
        bank_id: str | None = None,
    ) -> Page[SessionRecord]:
        """One page of sessions."""
        async with self._database.reading() as uow:
            return await uow.sessions.list_page(
                request, status=status, endpoint_id=endpoint_id, bank_id=bank_id
            )

    async def delete(self, session_id: str) -> None:
        """Remove an ended session.

        Raises:
            InvalidStateError: It has not ended.
        """
        async with self._database.unit_of_work() as uow:
            await uow.sessions.delete(session_id)

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 500
    ) -> list[SessionEvent]:
        """Events after number `after`, in order."""
        async with self._database.reading() as uow:
            return await uow.sessions.events(session_id, after=after, limit=limit)

    async def responses(
        self, session_id: str, *, after_step: int = 0, limit: int | None = None
    ) -> list[AskedAnswer]:
        """Items asked after step `after_step`, in order of asking.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.reading() as uow:
            record = await uow.sessions.get(session_id)
            items = await uow.sessions.administrations(session_id, after=after_step, limit=limit)
        version = await self._versions.load(record.bank_version_id)
        return [
            AskedAnswer(
                **shallow(item),
                item_key=version.key_at(item.position),
                is_pretest=version.is_pretest(item.position),
                withheld=record.withheld,
            )
            for item in items
        ]

    async def cancel(self, session_id: str) -> SessionRecord:
        """End a session where it stands; calls in flight are dropped.

        Raises:
            InvalidStateError: It has ended.
        """
        return await self._transition(
            session_id,
            allowed=(*UNDERWAY, "paused", "awaiting_response"),
            status="cancelled",
            event="session.cancelled",
            stop_reason="cancelled",
            stop_detail="Cancelled on request; the answers so far are kept.",
        )

    async def pause(self, session_id: str) -> SessionRecord:
        """Stop asking until resumed. Pausing a paused session changes nothing.

        Raises:
            InvalidStateError: It is not queued, running or waiting.
        """
        record = await self.get(session_id)
        if record.status == "paused":
            return record
        return await self._transition(
            session_id, allowed=UNDERWAY, status="paused", event="session.paused"
        )

    async def resume(self, session_id: str) -> SessionRecord:
        """Go on with a paused session, or one that failed because its lease ran out too often.

        Resuming a live one changes nothing.

        Raises:
            InvalidStateError: It has ended or waits for a manual answer.
        """
        record = await self.get(session_id)
        if record.status in UNDERWAY:
            return record
        lapsed = (record.failure or {}).get("code") == LeaseLapsedError.code
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.transition(
                session_id,
                allowed=("failed",) if lapsed else ("paused",),
                status="queued",
                event=SessionEvent("session.resumed", {}),
            )
            await self._queue.enqueue(uow, session_id)
        return record

    async def _transition(
        self,
        session_id: str,
        *,
        allowed: Sequence[str],
        status: str,
        event: str,
        stop_reason: str | None = None,
        stop_detail: str | None = None,
    ) -> SessionRecord:
        async with self._database.unit_of_work() as uow:
            return await uow.sessions.transition(
                session_id,
                allowed=allowed,
                status=status,
                event=SessionEvent(event, {}),
                stop_reason=stop_reason,
                stop_detail=stop_detail,
            )
