"""The audit trail: written with the changes of a transaction, and read.

The first transaction of a request or command that changes something also adds a row to the trail,
so that neither the change nor the row exists without the other.
"""

from typing import Any

from sqlalchemy import Select, Text, any_, bindparam, delete, event, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import ORMExecuteState, Session
from sqlalchemy.sql.elements import TextClause

from app.acting import AuditEntry, present
from app.records.api_keys import AuditEntry as EntryRecord
from app.records.api_keys import AuditFilter
from app.records.fields import convert
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.rows.base import Base, OwnedRow
from app.storage.rows.projects import (
    ApiKeyRow,
    AuditRow,
    IdempotencyRow,
    KeptAnswerRow,
    LoginRow,
    ProjectRow,
)
from app.storage.scoping import Repository, ScopedSession, given

_TOUCHED, _CHANGED = "audit_touched", "audit_changed"
#: Rows of internal mechanisms, which record no actions of people.
_UNSAID = (IdempotencyRow, KeptAnswerRow, LoginRow, AuditRow)
_NAMED = (OwnedRow, ApiKeyRow, ProjectRow)
#: Largest number of ids in one row.
_MOST = 100
#: Up to this number, matching entries are sorted; more frequent names are quickly found in order.
_FEW = 10_000
# If the row exists already, an earlier transaction was committed without our learning of it.
_NOTE = insert(Base.metadata.tables[AuditRow.__tablename__]).on_conflict_do_nothing()


async def note(db: AsyncSession) -> AuditEntry | None:
    """Add the changes of this transaction to the trail, if it is the first of its request.

    Returns:
        The added entry; its `is_noted` must be set once the transaction is committed.
    """
    acting = present()
    what = acting.audit_entry
    if what is None or what.is_noted:
        return None
    await db.flush()
    if not db.info.get(_CHANGED):
        return None
    row = {
        "id": what.audit_id or new_id("aud"),
        "project_id": acting.project_id or None,
        "key_id": acting.key_id,
        "action": what.action(),
        "path": what.path,
        "resources": list(db.info.get(_TOUCHED, ()))[:_MOST],
        "request_id": what.request_id,
        "address": what.address,
    }
    await db.execute(_NOTE, row)
    return what


def note_change(db: AsyncSession, resource_id: str) -> None:
    """Record a change by a statement that does not use ORM classes."""
    if present().audit_entry is not None:
        db.info[_CHANGED] = True
        db.info.setdefault(_TOUCHED, {})[resource_id] = None


@event.listens_for(ScopedSession, "before_flush")
def _see_rows(session: Session, *_: Any) -> None:
    for row in (*session.new, *session.dirty, *session.deleted):
        if not isinstance(row, _UNSAID):
            session.info[_CHANGED] = True
            if isinstance(row, _NAMED):
                resource_id = str(row.__mapper__.primary_key_from_instance(row)[0])
                session.info.setdefault(_TOUCHED, {})[resource_id] = None


@event.listens_for(ScopedSession, "do_orm_execute")
def _see_statement(state: ORMExecuteState) -> None:
    if state.is_select or present().audit_entry is None:
        return
    statement: Any = state.statement
    if isinstance(statement, TextClause):
        is_change = "INSERT INTO" in statement.text or "UPDATE " in statement.text
    else:
        mapper = state.bind_mapper
        kind = mapper.class_ if mapper else None
        is_change = kind is not None and kind not in _UNSAID
        if is_change and kind is not None and issubclass(kind, _NAMED):
            for name, value in statement.compile().params.items():
                if name in {"id", "id_1"} and isinstance(value, str):
                    state.session.info.setdefault(_TOUCHED, {})[value] = None
    if is_change:
        state.session.info[_CHANGED] = True


class AuditRepository(Repository):
    """Queries of the audit trail, within one transaction."""

    async def page(self, request: PageRequest, wanted: AuditFilter) -> Page[EntryRecord]:
        """One page of the entries that pass the filter."""
        query = await self._found(wanted)
        return await self._page(query, request, AuditRow.id, "audit entry", _read)

    async def following(
        self, wanted: AuditFilter, after: str | None, limit: int
    ) -> list[EntryRecord]:
        """The first `limit` entries after `after` that pass the filter, the oldest first."""
        query = (await self._found(wanted)).order_by(AuditRow.id).limit(limit)
        if after is not None:
            query = query.where(AuditRow.id > after)
        return [_read(row) for row in await self._db.scalars(query)]

    async def purge(self) -> None:
        """Remove entries that are older than their project's retention time."""
        await self._db.execute(
            delete(AuditRow).where(
                AuditRow.project_id == ProjectRow.id,
                text("at < now() - (retention ->> 'audit_days')::int * interval '1 day'"),
            )
        )

    async def _found(self, wanted: AuditFilter) -> Select[Any]:
        """The entries that pass the filter, without an order.

        For an unknown name, Postgres expects one match in two hundred entries, and would read the
        trail from its end until it has a page of matches. So matching ids are looked up first.
        """
        filters = given(
            (AuditRow.project_id, wanted.project_id),
            (AuditRow.key_id, wanted.key_id),
            (AuditRow.action, wanted.action),
        )
        query = select(AuditRow).where(*filters)
        if wanted.since is not None:
            query = query.where(AuditRow.at >= wanted.since)
        if wanted.until is not None:
            query = query.where(AuditRow.at < wanted.until)
        if wanted.resource is None:
            return query
        named = func.audit_names(AuditRow.resources, AuditRow.path, type_=ARRAY(Text)).contains(
            [wanted.resource]
        )
        ids = (await self._db.scalars(select(AuditRow.id).where(named).limit(_FEW + 1))).all()
        return query.where(
            named if len(ids) > _FEW else AuditRow.id == any_(bindparam("ids", ids, ARRAY(Text)))
        )


def _read(row: AuditRow) -> EntryRecord:
    return convert(EntryRecord, row)
