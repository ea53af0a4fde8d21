"""Test sessions: their row, items and events, and the lease of the worker that runs them."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, cast, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import JSONPATH
from typing_extensions import override

from app.acting import maker, owner, request_id
from app.errors import InvalidStateError, LeaseLostError, NotFoundError, StaleStepError
from app.items import JsonValue
from app.records.banks import OPEN
from app.records.fields import convert, shallow
from app.records.figures import SessionFigures
from app.records.leased import ENDED
from app.records.sessions import (
    UNDERWAY,
    Administration,
    Advance,
    Closing,
    NewSession,
    SessionEvent,
    SessionFilter,
    SessionRecord,
)
from app.storage.auditing import note_change
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest
from app.storage.repositories import session_statements as sql
from app.storage.repositories.events import note_events
from app.storage.repositories.projects import require_room
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.projects import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow
from app.storage.scoping import given, of_opened

#: Columns to set when a session's lease is claimed, released or taken away: no worker waits then.
MOVED: Mapping[str, Any] = {
    "waiting_until": None,
    "waiting_reason": None,
    "revision": SessionRow.revision + 1,
}
#: Columns to set as calls in flight are dropped when somebody cancels or pauses a session.
DROPPED: Mapping[str, Any] = {
    "summary": func.jsonb_set(
        func.jsonb_set(SessionRow.summary, text("'{progress,in_flight}'"), text("'0'")),
        text("'{pretest,in_flight}'"),
        text("'0'"),
        text("false"),
    )
}


class SessionRepository(LeasedRepository[SessionRecord]):
    """Queries and changes of sessions, within one transaction."""

    row = SessionRow
    kind = "Session"
    claimable = UNDERWAY
    held = ("running", "waiting")

    # A member of a ranking is run together with the ranking, under the ranking's lease.
    ready = (SessionRow.ranking_id.is_(None),)
    moved = MOVED

    async def add(
        self,
        new: NewSession,
        *,
        summary: SessionFigures,
        administrations: Sequence[Administration] = (),
    ) -> None:
        """Store a new session.

        Items taken over from another session are either all closed, with the same steps and
        arrivals, or all awaited.
        """
        await require_room(self._db)
        if new.parent_id is not None:
            await self._hold_parent(new.parent_id)
        values = shallow(new)
        values["arrivals"] = sum(item.closing is not None for item in administrations)
        values |= {"project_id": owner(), "created_by": maker(), "request_id": request_id()}
        values["summary"] = summary
        await self._db.execute(sql.ADD, values)
        note_change(self._db, new.id)
        if administrations:
            rows = [sql.taken_over(new.id, item) for item in administrations]
            await self._db.execute(insert(AdministrationRow), rows)

    async def _hold_parent(self, session_id: str) -> None:
        """Lock the session from which another is made, before the endpoint of both.

        Removal of the session locks the two in the same order.
        """
        row = select(SessionRow.id).where(SessionRow.id == session_id)
        if await self._db.scalar(row.with_for_update(read=True, key_share=True)) is None:
            raise NotFoundError("session", session_id)

    @override
    async def get(self, session_id: str, *, for_update: bool = False) -> SessionRecord:
        """One session; `for_update` locks its row until the transaction ends."""
        query = sql.LOCKED_SESSION if for_update else sql.SESSION
        row = (await self._db.execute(query, {"wanted": session_id})).mappings().one_or_none()
        if row is None:
            raise NotFoundError("session", session_id)
        return SessionRecord(**row)

    async def with_awaited(self, session_id: str) -> tuple[SessionRecord, list[Administration]]:
        """One session, and its items with awaited answers, in order of asking."""
        rows = await self._db.execute(sql.WITH_AWAITED, {"wanted": session_id})
        return _awaiting(session_id, rows.all())

    async def locked_with_awaited(
        self, session_id: str
    ) -> tuple[SessionRecord, list[Administration], timedelta]:
        """The same of a session that is now locked, and the time since its last event.

        The time is from the transaction of the event to this one, begin to begin.
        """
        # Two statements: one that waits for a lock reads again only the locked row.
        await self._db.execute(sql.LOCK, {"wanted": session_id})
        found = await self._db.execute(sql.WITH_AWAITED_AND_TIME, {"wanted": session_id})
        rows = found.all()
        return *_awaiting(session_id, [row[:-1] for row in rows]), rows[0][-1]

    async def awaited_in(self, ranking_id: str) -> list[tuple[SessionRecord, Administration]]:
        """Sessions of a ranking with their items that await answers, in order of asking."""
        rows = await self._db.execute(sql.AWAITED_IN_RANKING, {"wanted": ranking_id})
        return [(_record(row), _administration(row[-1])) for row in rows]

    async def renew_token(self, session_id: str, step: int, token: str) -> None:
        """Give an awaited item a new token; the old token is no longer accepted for an answer."""
        await self._db.execute(
            update(AdministrationRow)
            .where(AdministrationRow.session_id == session_id, AdministrationRow.step == step)
            .values(step_token=token, asked_at=func.now())
        )

    async def idle(self) -> list[str]:
        """Lock and return sessions whose client is silent for longer than it announced."""
        return list((await self._db.scalars(sql.IDLE)).all())

    async def list_page(self, request: PageRequest, wanted: SessionFilter) -> Page[SessionRecord]:
        """One page of sessions that pass all given filters."""
        filters = given(
            (SessionRow.status, wanted.status),
            (SessionRow.endpoint_id, wanted.endpoint_id),
            (BankVersionRow.bank_id, wanted.bank_id),
            (EndpointRow.name, wanted.examinee),
            (sql.ASKED_MODEL, wanted.model),
        )
        query = sql.SESSIONS.where(*filters)
        if wanted.metadata:
            query = query.where(SessionRow.details.contains(dict(wanted.metadata)))
        if wanted.since is not None:
            query = query.where(SessionRow.created_at >= wanted.since)
        if wanted.before is not None:
            query = query.where(SessionRow.created_at < wanted.before)
        return await self._page(
            query, request, SessionRow.id, "session", lambda row: SessionRecord(**row)
        )

    async def roots(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Of each session, the first in its line of derived sessions."""
        query = text("""
            WITH RECURSIVE line AS (
                SELECT id AS session_id, id AS root_id, parent_id FROM sessions WHERE id = ANY(:ids)
                UNION ALL
                SELECT line.session_id, above.id, above.parent_id
                FROM line JOIN sessions AS above ON above.id = line.parent_id
            )
            SELECT session_id, root_id FROM line WHERE parent_id IS NULL
        """).execution_options(**of_opened("the sessions"))
        rows = await self._db.execute(query, {"ids": list(session_ids)})
        return {row.session_id: row.root_id for row in rows}

    async def of_ranking(self, ranking_id: str) -> list[SessionRecord]:
        """The sessions of a ranking, in the order in which its members were given."""
        query = sql.SESSIONS.where(SessionRow.ranking_id == ranking_id)
        rows = await self._db.execute(query.order_by(SessionRow.ranking_member))
        return [SessionRecord(**row) for row in rows.mappings()]

    async def present_results(self, bank_id: str) -> list[SessionRecord]:
        """The most precise recent result of each endpoint on each scale of a bank.

        Sessions that only estimate from old answers, or score them again, do not count as results.
        """
        rows = await self._db.execute(sql.present_results(bank_id))
        return [SessionRecord(**row) for row in rows.mappings()]

    async def advance(self, steps: Mapping[str, Advance], epoch: int) -> None:
        """Write one step of each session (id -> step), if `epoch` is still their present lease.

        Raises:
            LeaseLostError: A session's lease was ended by another worker, a cancel or a pause.
            StaleStepError: An answer was closed before.
        """
        found = await self.advance_each([(one, epoch, step) for one, step in steps.items()])
        for error in found:
            if error is not None:
                raise error
        for one in steps:
            note_change(self._db, one)

    async def advance_each(
        self, steps: Sequence[tuple[str, int, Advance]]
    ) -> list[LeaseLostError | StaleStepError | None]:
        """Write steps of different sessions, each given as id, epoch of the lease, and step.

        This is a single statement, so it needs no transaction around it.

        Returns:
            The errors that `advance` would raise, by session; all other steps are written.
        """
        values = sql.as_json([sql.step_values(*step) for step in steps])
        rows = await self._db.execute(sql.ADVANCE, {"steps": values})
        found = {(row.id, row.epoch): row for row in rows}
        return [_refusal(found[one, epoch], epoch, step) for one, epoch, step in steps]

    async def note_waiting(
        self,
        session_id: str,
        epoch: int,
        *,
        until: datetime,
        reason: str,
        data: Mapping[str, JsonValue] | None,
    ) -> None:
        """Store that the worker waits, and why; with `data`, this is also an event."""
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
            """).execution_options(**of_opened("the session, whose lease epoch is named")),
            {
                "id": session_id,
                "epoch": epoch,
                "until": until,
                "reason": reason,
                "data": sql.as_json(data),
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
        """Move a session to another state from outside; its worker loses the lease.

        Raises:
            InvalidStateError: Its state is not among `allowed`.
        """
        record = await self.get(session_id, for_update=True)
        _require_own(record)
        if record.status not in allowed:
            *others, last = allowed
            needs = f"{', '.join(others)} or {last}" if others else last
            raise InvalidStateError(
                f"Session {session_id} is {record.status}; this needs it to be {needs}."
            )
        finished = {"finished_at": func.now() if status in ENDED else None}
        await self._set(
            SessionRow,
            session_id,
            **{**self._taken_away(), **MOVED, **DROPPED, **finished},
            status=status,
            stop_reason=stop_reason,
            stop_detail=stop_detail,
            failure=None,
            lapses=0,
        )
        await note_events(self._db, "session", session_id, [event])
        return await self.get(session_id)

    async def scores_withheld(self, endpoint_id: str) -> bool:
        """Whether an endpoint scores the answers of some session on a withheld bank."""
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
            InvalidStateError: It has not ended, or other sessions were made from it.
        """
        record = await self.get(session_id, for_update=True)
        _require_own(record)
        self._require_ended(record)
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
            .execution_options(**of_opened("the session"))
            .where(AdministrationRow.session_id == session_id, AdministrationRow.step > after)
            .order_by(AdministrationRow.step)
            .limit(limit)
        )
        rows = (await self._db.execute(query)).all()
        found: list[Administration] = []
        for start in range(0, len(rows), _AT_ONCE):
            found += map(_administration, rows[start : start + _AT_ONCE])
            await asyncio.sleep(0)  # a session may have thousands of items: let other tasks run
        return found


def _refusal(row: Any, epoch: int, step: Advance) -> LeaseLostError | StaleStepError | None:
    """Why a step was not written, read from the row that `ADVANCE` returned for it."""
    if row.stale or (row.held and row.closed != len(step.closed)):
        return StaleStepError(f"An answer of session {row.id} was recorded before.")
    if not row.held:
        return LeaseLostError(f"Session {row.id} is no longer run under lease {epoch}.")
    return None


def _require_own(record: SessionRecord) -> None:
    if record.ranking_id is not None:
        raise InvalidStateError(
            f"Session {record.id} belongs to ranking {record.ranking_id}; cancel or delete that."
        )


def _awaiting(
    session_id: str, rows: Sequence[Sequence[Any]]
) -> tuple[SessionRecord, list[Administration]]:
    if not rows:
        raise NotFoundError("session", session_id)
    return _record(rows[0]), [_administration(row[-1]) for row in rows if row[-1] is not None]


def _record(row: Sequence[Any]) -> SessionRecord:
    """The session in a row that ends with an item."""
    return SessionRecord(**dict(zip(sql.SESSION.selected_columns.keys(), row[:-1], strict=True)))


#: Number of rows converted to items before other tasks run.
_AT_ONCE = 200


def _administration(row: Row[Any] | AdministrationRow) -> Administration:
    closing = None if row.outcome is None else convert(Closing, row)
    return convert(Administration, row, closing=closing)
