"""Test sessions: their row, their items and events, and the lease of who runs them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Row,
    Select,
    bindparam,
    cast,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONPATH, distinct_on
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import InvalidStateError, LeaseLostError, NotFoundError, StaleStepError
from app.records.banks import OPEN
from app.records.fields import made_of
from app.records.sessions import (
    ENDED,
    UNDERWAY,
    Administration,
    Advance,
    Closing,
    NewSession,
    SessionEvent,
    SessionRecord,
)
from app.storage.lapses import lapsed
from app.storage.paging import Page, PageRequest
from app.storage.repositories.session_steps import ADVANCE, as_json, closing_values, step_values
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.endpoints import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionEventRow, SessionRow


class SessionRepository:
    """Questions and changes about sessions, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(self, new: NewSession, *, summary: dict[str, Any]) -> None:
        """Store a new session with the figures before its first item, and its first event."""
        values = {f.name: getattr(new, f.name) for f in fields(new)}
        values["details"] = values.pop("metadata")
        self._db.add(SessionRow(**values, summary=summary, event_seq=1))
        await self._db.flush()
        await self._db.execute(
            insert(SessionEventRow).values(
                session_id=new.id, seq=1, type="session.created", data={"status": new.status}
            )
        )

    async def get(self, session_id: str, *, for_update: bool = False) -> SessionRecord:
        """One session.

        Args:
            session_id: Its id.
            for_update: Lock its row until the transaction ends.

        Raises:
            NotFoundError: No such session.
        """
        query = _LOCKED_SESSION if for_update else _SESSION
        row = (await self._db.execute(query, {"wanted": session_id})).mappings().one_or_none()
        if row is None:
            raise NotFoundError("session", session_id)
        return SessionRecord(**row)

    async def list_page(
        self,
        request: PageRequest,
        *,
        status: str | None = None,
        endpoint_id: str | None = None,
        bank_id: str | None = None,
    ) -> Page[SessionRecord]:
        """One page of sessions that pass every filter given.

        Raises:
            NotFoundError: No session has the id `request.after`.
        """
        query = _SESSIONS
        filters: list[tuple[ColumnElement[Any] | Any, str | None]] = [
            (SessionRow.status, status),
            (SessionRow.endpoint_id, endpoint_id),
            (BankVersionRow.bank_id, bank_id),
        ]
        for column, wanted in filters:
            if wanted is not None:
                query = query.where(column == wanted)
        if request.after is not None:
            if await self._db.get(SessionRow, request.after) is None:
                raise NotFoundError("session", request.after)
            query = query.where(
                SessionRow.id < request.after
                if request.descending
                else SessionRow.id > request.after
            )
        order = SessionRow.id.desc() if request.descending else SessionRow.id.asc()
        rows = await self._db.execute(query.order_by(order).limit(request.limit + 1))
        records = [SessionRecord(**row) for row in rows.mappings()]
        return Page(items=tuple(records[: request.limit]), has_more=len(records) > request.limit)

    async def latest_results(self, bank_id: str) -> list[SessionRecord]:
        """The newest completed session of each endpoint on each scale of a bank.

        Endpoints without a name are one when they call the same model at the same address.
        Sessions that only estimate or mark old answers again are no results of their own.
        """
        scale = SessionRow.provenance["scale"].astext
        who = func.coalesce(
            EndpointRow.name, func.concat_ws(" ", EndpointRow.base_url, EndpointRow.model)
        )
        query = (
            _SESSIONS.where(
                BankVersionRow.bank_id == bank_id,
                SessionRow.status == "completed",
                SessionRow.endpoint_id.is_not(None),
                SessionRow.relation.is_(None) | (SessionRow.relation == "extend"),
            )
            .ext(distinct_on(scale, EndpointRow.kind, who))
            .order_by(scale, EndpointRow.kind, who, SessionRow.finished_at.desc())
        )
        return [SessionRecord(**row) for row in (await self._db.execute(query)).mappings()]

    async def claim(
        self, session_id: str, *, worker_id: str, lease: timedelta
    ) -> SessionRecord | None:
        """Become the one who runs this session, unless it has ended or a live worker has it.

        A member of a ranking is run with the ranking, under its lease.
        """
        claimed = await self._db.execute(
            update(SessionRow)
            .where(
                SessionRow.id == session_id,
                SessionRow.ranking_id.is_(None),
                SessionRow.status.in_(UNDERWAY),
                func.coalesce(SessionRow.lease_expires_at, func.now()) <= func.now(),
            )
            .values(
                status="running",
                lease_epoch=SessionRow.lease_epoch + 1,
                lease_expires_at=func.now() + lease,
                worker_id=worker_id,
                waiting_until=None,
                waiting_reason=None,
                started_at=func.coalesce(SessionRow.started_at, func.now()),
                revision=SessionRow.revision + 1,
            )
            .returning(SessionRow.id)
        )
        if claimed.one_or_none() is None:
            return None
        return await self.get(session_id)

    async def renew(self, leases: Mapping[str, int], *, lease: timedelta) -> set[str]:
        """Prolong the leases (session id -> epoch) that are still ours; returns which those are."""
        rows = await self._db.execute(
            text("""
                UPDATE sessions SET lease_expires_at = now() + :lease
                FROM unnest(CAST(:ids AS text[]), CAST(:epochs AS int[])) AS mine(id, epoch)
                WHERE sessions.id = mine.id AND sessions.lease_epoch = mine.epoch
                  AND sessions.status IN ('running', 'waiting')
                RETURNING sessions.id
            """),
            {"ids": list(leases), "epochs": list(leases.values()), "lease": lease},
        )
        return set(rows.scalars())

    async def release(self, leases: Mapping[str, int]) -> None:
        """Give up leases (session id -> epoch) so that another worker goes on at once."""
        await self._db.execute(
            text("""
                UPDATE sessions SET status = 'queued', lease_expires_at = NULL, worker_id = NULL,
                    waiting_until = NULL, waiting_reason = NULL, revision = revision + 1
                FROM unnest(CAST(:ids AS text[]), CAST(:epochs AS int[])) AS mine(id, epoch)
                WHERE sessions.id = mine.id AND sessions.lease_epoch = mine.epoch
                  AND sessions.status IN ('running', 'waiting')
            """),
            {"ids": list(leases), "epochs": list(leases.values())},
        )

    async def stalled(
        self, *, grace: timedelta, counts: bool = True, limit: int = 100
    ) -> list[str]:
        """Live sessions that nobody runs: their lease, or their wait in the queue, ran out.

        Each is marked as queued from now, so that it is reported once per grace period; `counts`
        as for `lapsed`.
        """
        due = (
            select(SessionRow.id)
            .where(
                SessionRow.ranking_id.is_(None),
                SessionRow.status.in_(UNDERWAY),
                func.coalesce(SessionRow.lease_expires_at, SessionRow.created_at) + grace
                < func.now(),
            )
            .order_by(SessionRow.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        ids = list((await self._db.execute(due)).scalars())
        if ids:
            values = lapsed(SessionRow, counts=counts)
            values |= {"waiting_until": None, "waiting_reason": None}
            await self._db.execute(
                update(SessionRow).where(SessionRow.id.in_(ids)).values(**values)
            )
        return ids

    async def advance(self, session_id: str, epoch: int, step: Advance) -> None:
        """Write one step, if the lease `epoch` is still the session's present one.

        Raises:
            LeaseLostError: Another worker, or a cancel or pause, has taken the session over.
            StaleStepError: An answer was closed before.
        """
        row = (
            await self._db.execute(ADVANCE, {"id": session_id, "epoch": epoch, **step_values(step)})
        ).one()
        if row.held == 0:
            raise LeaseLostError(f"Session {session_id} is no longer run under lease {epoch}.")
        if row.closed != len(step.closed):
            raise StaleStepError(f"An answer of session {session_id} was recorded before.")

    async def note_waiting(
        self,
        session_id: str,
        epoch: int,
        *,
        until: datetime,
        reason: str,
        data: dict[str, Any] | None,
    ) -> None:
        """Show that something makes us wait. Silent when the lease is gone.

        Args:
            session_id: The session.
            epoch: Of our lease.
            until: When we look again.
            reason: What makes us wait.
            data: Of the event; None for a wait of which there was one.
        """
        await self._db.execute(
            text("""
                WITH lease AS (
                    UPDATE sessions SET status = 'waiting', waiting_until = :until,
                        waiting_reason = :reason,
                        event_seq = event_seq + CAST(:noted AS int),
                        revision = revision + CAST(:noted AS int)
                    WHERE id = :id AND lease_epoch = :epoch AND status IN ('running', 'waiting')
                    RETURNING id, event_seq
                )
                INSERT INTO session_events (session_id, seq, type, data)
                SELECT id, event_seq, 'session.waiting', CAST(:data AS jsonb) FROM lease
                WHERE :noted = 1
            """),
            {
                "id": session_id,
                "epoch": epoch,
                "until": until,
                "reason": reason,
                "data": as_json(data),
                "noted": int(data is not None),
            },
        )

    async def transition(
        self,
        session_id: str,
        *,
        allowed: Sequence[str],
        status: str,
        event: SessionEvent,
        stop_reason: str | None = None,
        stop_detail: str | None = None,
    ) -> SessionRecord:
        """Move a session to another state from outside; whoever runs it loses the lease.

        Raises:
            NotFoundError: No such session.
            InvalidStateError: Its state is not among `allowed`.
        """
        record = await self.get(session_id, for_update=True)
        _require_own(record)
        if record.status not in allowed:
            raise InvalidStateError(
                f"Session {session_id} is {record.status}; this needs it to be "
                f"{' or '.join(allowed)}."
            )
        await self._db.execute(
            update(SessionRow)
            .where(SessionRow.id == session_id)
            .values(
                status=status,
                lease_epoch=SessionRow.lease_epoch + 1,
                lease_expires_at=None,
                worker_id=None,
                waiting_until=None,
                waiting_reason=None,
                stop_reason=stop_reason,
                stop_detail=stop_detail,
                failure=None,
                lapses=0,
                event_seq=SessionRow.event_seq + 1,
                revision=SessionRow.revision + 1,
                finished_at=func.now() if status in ENDED else None,
            )
        )
        await self._db.execute(
            insert(SessionEventRow).values(
                session_id=session_id, seq=record.event_seq + 1, type=event.type, data=event.data
            )
        )
        return await self.get(session_id)

    async def marks_withheld(self, endpoint_id: str) -> bool:
        """Whether an endpoint marks the answers of some session on a withheld bank."""
        named = func.jsonb_path_exists(
            SessionRow.provenance,
            cast("$.scorer_endpoints.*.id ? (@ == $wanted)", JSONPATH),
            func.jsonb_build_object("wanted", endpoint_id),
        )
        query = (
            select(SessionRow.id)
            .join(BankVersionRow, BankVersionRow.id == SessionRow.bank_version_id)
            .join(BankRow, BankRow.id == BankVersionRow.bank_id)
            .where(BankRow.visibility != OPEN, named)
        )
        return await self._db.scalar(query.limit(1)) is not None

    async def delete(self, session_id: str) -> None:
        """Remove an ended session with everything that belongs to it.

        Raises:
            NotFoundError: No such session.
            InvalidStateError: It has not ended, or others were made from it.
        """
        record = await self.get(session_id, for_update=True)
        _require_own(record)
        if record.status not in ENDED:
            raise InvalidStateError(
                f"Session {session_id} is {record.status}; cancel it before deleting it."
            )
        child = await self._db.scalar(
            select(SessionRow.id).where(SessionRow.parent_id == session_id).limit(1)
        )
        if child is not None:
            raise InvalidStateError(
                f"Session {session_id} is the source of {child}; delete that one first."
            )
        row = await self._db.get_one(SessionRow, session_id)
        await self._db.delete(row)

    async def administrations(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[Administration]:
        """Items of a session with step above `after`, in order of asking."""
        query = (
            select(*AdministrationRow.__table__.columns)
            .where(AdministrationRow.session_id == session_id, AdministrationRow.step > after)
            .order_by(AdministrationRow.step)
            .limit(limit)
        )
        rows = (await self._db.execute(query)).all()
        found: list[Administration] = []
        for start in range(0, len(rows), _AT_ONCE):
            found += map(_administration, rows[start : start + _AT_ONCE])
            await asyncio.sleep(0)  # a session may have thousands: between them others run
        return found

    async def copy_administrations(
        self, target_id: str, administrations: Sequence[Administration]
    ) -> None:
        """Give a new session the closed items of another, same steps, same arrivals."""
        rows = [
            {
                "session_id": target_id,
                "step": item.step,
                "position": item.position,
                "asked_at": item.asked_at,
                "answered_at": item.answered_at,
                "information": item.information,
                "probability": item.probability,
                "arrival": item.arrival,
                **closing_values(item.closing),
            }
            for item in administrations
            if item.closing is not None
        ]
        if rows:
            await self._db.execute(insert(AdministrationRow), rows)
        await self._db.execute(
            update(SessionRow).where(SessionRow.id == target_id).values(arrivals=len(rows))
        )

    async def copy_asked(self, target_id: str, administrations: Sequence[Administration]) -> None:
        """Give a new session the items of another as asked, to be closed anew."""
        rows = [
            {
                "session_id": target_id,
                "step": item.step,
                "position": item.position,
                "asked_at": item.asked_at,
                "information": item.information,
                "probability": item.probability,
            }
            for item in administrations
        ]
        if rows:
            await self._db.execute(insert(AdministrationRow), rows)

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 500
    ) -> list[SessionEvent]:
        """Events with seq above `after`, in order."""
        query = (
            select(SessionEventRow)
            .where(SessionEventRow.session_id == session_id, SessionEventRow.seq > after)
            .order_by(SessionEventRow.seq)
            .limit(limit)
        )
        return [
            SessionEvent(row.type, row.data, row.seq, row.created_at)
            for row in (await self._db.execute(query)).scalars()
        ]


def _require_own(record: SessionRecord) -> None:
    if record.ranking_id is not None:
        raise InvalidStateError(
            f"Session {record.id} belongs to ranking {record.ranking_id}; cancel or delete that."
        )


# Answers that were replayed on another bank stay those to the bank that they were given on.
_WITHHELD = literal_column(
    """
    CASE WHEN sessions.parent_id IS NULL THEN banks.visibility <> 'open' ELSE (
        WITH RECURSIVE line (parent_id, version_id) AS (
            SELECT sessions.parent_id, sessions.bank_version_id
            UNION ALL
            SELECT s.parent_id, s.bank_version_id FROM sessions s JOIN line ON s.id = line.parent_id
        )
        SELECT bool_or(b.visibility <> 'open') FROM line
        JOIN bank_versions v ON v.id = line.version_id JOIN banks b ON b.id = v.bank_id
    ) END
    """,
    Boolean(),
)
_JOINED: dict[str, Any] = {
    "endpoint_name": EndpointRow.name,
    "endpoint_model": EndpointRow.model,
    "bank_id": BankVersionRow.bank_id,
    "bank_name": BankRow.name,
    "bank_version": BankVersionRow.number,
    "bank_visibility": BankRow.visibility,
    "withheld": _WITHHELD,
}
#: Answers that are made of rows in one go.
_AT_ONCE = 200
_OWN = [f.name for f in fields(SessionRecord) if f.name not in {*_JOINED, "metadata"}]
# Built once: putting a statement together costs more than sending it.
_SESSIONS: Select[Any] = (
    select(
        *(getattr(SessionRow, name) for name in _OWN),
        SessionRow.details.label("metadata"),
        *(column.label(name) for name, column in _JOINED.items()),
    )
    .join(BankVersionRow, BankVersionRow.id == SessionRow.bank_version_id)
    .join(BankRow, BankRow.id == BankVersionRow.bank_id)
    .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
)
_SESSION = _SESSIONS.where(SessionRow.id == bindparam("wanted"))
_LOCKED_SESSION = _SESSION.with_for_update(of=SessionRow)


def _administration(row: Row[Any]) -> Administration:
    closing = None
    if row.outcome is not None:
        closing = made_of(Closing, row)
    return made_of(Administration, row, closing=closing)
