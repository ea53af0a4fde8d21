"""Rankings: their row, members' sessions and events, and the lease of the worker that runs them."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update
from typing_extensions import override

from app.errors import InvalidStateError, NotFoundError
from app.records.banks import OPEN
from app.records.fields import shallow
from app.records.rankings import (
    RankedFigures,
    RankingFigures,
    RankingRecord,
    RankingSettings,
    RankingStep,
)
from app.records.sessions import UNDERWAY as LIVE
from app.records.sessions import SessionEvent
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest
from app.storage.repositories.events import note_events
from app.storage.repositories.session_statements import IDLE_RANKINGS, select_record
from app.storage.repositories.sessions import DROPPED, MOVED, SessionRepository
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.sessions import AdministrationRow, RankingRow, SessionEventRow, SessionRow
from app.storage.scoping import given


class RankingRepository(LeasedRepository[RankingRecord]):
    """Queries and changes of rankings, within one transaction."""

    row = RankingRow
    kind = "Ranking"

    ready = (~RankingRow.settings.has_key("by_hand"),)

    async def add(
        self,
        ranking_id: str,
        *,
        bank_version_id: str,
        settings: RankingSettings,
        seed: int,
        metadata: Mapping[str, str],
    ) -> None:
        """Store a new ranking with its first event; its members are stored afterwards."""
        status = _waits(settings)
        self._db.add(
            RankingRow(
                id=ranking_id,
                bank_version_id=bank_version_id,
                settings=dict(settings),
                seed=seed,
                details=dict(metadata),
                status=status,
            )
        )
        await self._db.flush()
        created = SessionEvent("ranking.created", {"status": status})
        await note_events(self._db, "ranking", ranking_id, [created])

    @override
    async def get(self, ranking_id: str, *, for_update: bool = False) -> RankingRecord:
        """One ranking; `for_update` locks its row until the transaction ends."""
        query = _RANKINGS.where(RankingRow.id == ranking_id)
        if for_update:
            query = query.with_for_update(of=RankingRow)
        row = (await self._db.execute(query)).mappings().one_or_none()
        if row is None:
            raise NotFoundError("ranking", ranking_id)
        return RankingRecord(**row)

    async def hold(self, ranking_id: str) -> RankingRecord:
        """One ranking, locked together with its members until the transaction ends."""
        record = await self.get(ranking_id, for_update=True)
        await self._hold_members(ranking_id)
        return record

    async def idle(self) -> list[str]:
        """Lock and return rankings whose client is silent for longer than it announced."""
        return list((await self._db.scalars(IDLE_RANKINGS)).all())

    async def waiting(self, ranking_id: str) -> tuple[datetime, str] | None:
        """Earliest end of a wait, and its reason, if all members that are being asked wait."""
        is_asked = exists().where(
            AdministrationRow.session_id == SessionRow.id, AdministrationRow.outcome.is_(None)
        )
        found = await self._db.execute(
            select(SessionRow.waiting_until, SessionRow.waiting_reason)
            .where(_live_members(ranking_id), is_asked)
            .order_by(SessionRow.waiting_until)
        )
        waits: list[tuple[datetime, str]] = []
        for until, reason in found:
            if until is None or reason is None:
                return None
            waits.append((until, reason))
        return waits[0] if waits else None

    async def list_page(
        self, request: PageRequest, *, status: str | None = None, bank_id: str | None = None
    ) -> Page[RankingRecord]:
        """One page of rankings that pass all given filters."""
        filters = given((RankingRow.status, status), (BankVersionRow.bank_id, bank_id))
        query = _RANKINGS.where(*filters)
        return await self._page(
            query, request, RankingRow.id, "ranking", lambda row: RankingRecord(**row)
        )

    @override
    async def claim(
        self, ranking_id: str, *, worker_id: str, lease: timedelta
    ) -> RankingRecord | None:
        """Claim this ranking for a worker, unless it has ended or a live worker has it.

        Its members' sessions get the same epoch, so that the previous worker can write no more.
        """
        epoch = await self._take(ranking_id, worker_id=worker_id, lease=lease)
        if epoch is None:
            return None
        await self._hold_members(ranking_id)
        await self._db.execute(
            update(SessionRow)
            .where(_live_members(ranking_id))
            .values(
                status="running",
                lease_epoch=epoch,
                worker_id=worker_id,
                started_at=func.coalesce(SessionRow.started_at, func.now()),
                **MOVED,
            )
        )
        return await self.get(ranking_id)

    async def advance(self, ranking_id: str, epoch: int, step: RankingStep) -> None:
        """Write a step, if `epoch` is still the present lease of the ranking and its members.

        Raises:
            StaleStepError: An answer was closed before.
        """
        values: dict[str, Any] = {"summary": dict(step.summary), "lapses": 0}
        if step.end is not None:
            values |= shallow(step.end)
            values |= {"lease_expires_at": None, "finished_at": func.now()}
        # The ranking's row is locked before its members', as by claims and cancels; with the
        # reverse order, two transactions could deadlock.
        await self._write(ranking_id, epoch, **values)
        await note_events(self._db, "ranking", ranking_id, step.events)
        if step.members:
            await SessionRepository(self._db).advance(step.members, epoch)

    async def reopen(
        self, ranking_id: str, *, settings: RankingSettings, event: SessionEvent
    ) -> None:
        """Continue a completed ranking because a new member joins."""
        await self._set(
            RankingRow,
            ranking_id,
            status=_waits(settings),
            settings=dict(settings),
            stop_reason=None,
            stop_detail=None,
            finished_at=None,
            # Its time in the queue counts from now, not from its creation.
            lease_expires_at=func.now(),
        )
        await note_events(self._db, "ranking", ranking_id, [event])

    async def _hold_members(self, ranking_id: str) -> None:
        """Lock the rows of the members' sessions in the same order as steps do.

        An update alone locks rows in the order in which it finds them, so it could deadlock with a
        step that locks two members in another order.
        """
        rows = select(SessionRow.id).where(_live_members(ranking_id)).order_by(SessionRow.id)
        await self._db.execute(rows.with_for_update(key_share=True))

    async def cancel(self, ranking_id: str, *, detail: str) -> RankingRecord:
        """Cancel a ranking and its members' sessions from outside; its worker loses the lease.

        Raises:
            InvalidStateError: It has ended.
        """
        record = await self.get(ranking_id, for_update=True)
        self._require_underway(record)
        stopped = {"status": "cancelled", "stop_reason": "cancelled", "stop_detail": detail}
        epoch = record.lease_epoch + 1
        summary = _dropped(record.summary)
        await self._set(RankingRow, ranking_id, **self._taken_away(), **stopped, summary=summary)
        await self._hold_members(ranking_id)
        members = await self._db.execute(
            update(SessionRow)
            .where(_live_members(ranking_id))
            .values(
                **stopped,
                **DROPPED,
                lease_epoch=epoch,
                worker_id=None,
                event_seq=SessionRow.event_seq + 1,
                **MOVED,
                finished_at=func.now(),
            )
            .returning(SessionRow.id, SessionRow.event_seq)
        )
        data = {"stop_reason": "cancelled", "stop_detail": detail}
        ended = [
            {"session_id": row.id, "seq": row.event_seq, "type": "session.cancelled", "data": data}
            for row in members
        ]
        if ended:
            await self._db.execute(insert(SessionEventRow), ended)
        await note_events(
            self._db, "ranking", ranking_id, [SessionEvent("ranking.cancelled", data)]
        )
        return await self.get(ranking_id)

    async def delete(self, ranking_id: str) -> None:
        """Remove an ended ranking with its members' sessions.

        Raises:
            InvalidStateError: It has not ended, or a session was made from one of its sessions.
        """
        record = await self.get(ranking_id, for_update=True)
        self._require_ended(record)
        members = select(SessionRow.id).where(SessionRow.ranking_id == ranking_id)
        child = await self._db.scalar(
            select(SessionRow.id).where(SessionRow.parent_id.in_(members)).limit(1)
        )
        if child is not None:
            raise InvalidStateError(
                f"A session of ranking {ranking_id} is the source of {child}; delete that first."
            )
        await self._db.execute(delete(SessionRow).where(SessionRow.ranking_id == ranking_id))
        await self._db.execute(delete(RankingRow).where(RankingRow.id == ranking_id))


_JOINED: dict[str, Any] = {
    "bank_id": BankVersionRow.bank_id,
    "bank_name": BankRow.name,
    "bank_version": BankVersionRow.number,
    "bank_deleted": BankRow.archived_at.is_not(None),
    "withheld": BankRow.visibility != OPEN,
}
_RANKINGS = (
    select_record(RankingRecord, RankingRow, _JOINED)
    .join(BankVersionRow, BankVersionRow.id == RankingRow.bank_version_id)
    .join(BankRow, BankRow.id == BankVersionRow.bank_id)
)


def _dropped(summary: RankingFigures) -> RankingFigures:
    if not summary:
        return summary
    order: list[RankedFigures] = [{**entry, "in_flight": 0} for entry in summary["order"]]
    return {**summary, "order": order, "progress": {**summary["progress"], "in_flight": 0}}


def _waits(settings: RankingSettings) -> str:
    """State in which a ranking waits: for a worker, or for the client that answers by hand."""
    return "running" if "by_hand" in settings else "queued"


def _live_members(ranking_id: str) -> ColumnElement[bool]:
    live = SessionRow.status.in_((*LIVE, "awaiting_response"))
    return (SessionRow.ranking_id == ranking_id) & live
