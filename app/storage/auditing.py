"""Record the changes of a transaction in the audit trail: the only place where that happens.

The first transaction of a request or command that changes something also adds a row to the trail,
so that neither the change nor the row exists without the other.
"""

from typing import Any

from sqlalchemy import event
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import ORMExecuteState, Session
from sqlalchemy.sql.elements import TextClause

from app.acting import AuditEntry, audit_entry, present
from app.storage.identifiers import new_id
from app.storage.rows.base import Base, OwnedRow
from app.storage.rows.endpoints import ApiKeyRow, IdempotencyRow, KeptAnswerRow, LoginRow
from app.storage.rows.projects import AuditRow, ProjectRow
from app.storage.scoping import ScopedSession

_TOUCHED, _CHANGED = "audit_touched", "audit_changed"
#: Rows of internal mechanisms, which record no actions of people.
_UNSAID = (IdempotencyRow, KeptAnswerRow, LoginRow, AuditRow)
_NAMED = (OwnedRow, ApiKeyRow, ProjectRow)
#: Largest number of ids in one row.
_MOST = 100
# If the row exists already, an earlier transaction was committed without our learning of it.
_NOTE = insert(Base.metadata.tables[AuditRow.__tablename__]).on_conflict_do_nothing()


async def note(db: AsyncSession) -> AuditEntry | None:
    """Add the changes of this transaction to the trail, if it is the first of its request.

    Returns:
        The added entry; its `is_noted` must be set once the transaction is committed.
    """
    what = audit_entry()
    if what is None or what.is_noted:
        return None
    await db.flush()
    if not db.info.get(_CHANGED):
        return None
    acting = present()
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
    if audit_entry() is not None:
        db.info[_CHANGED] = True
        _touch(db.sync_session, resource_id)


@event.listens_for(ScopedSession, "before_flush")
def _see_rows(session: Session, *_: Any) -> None:
    for row in (*session.new, *session.dirty, *session.deleted):
        if not isinstance(row, _UNSAID):
            session.info[_CHANGED] = True
            if isinstance(row, _NAMED):
                _touch(session, str(row.__mapper__.primary_key_from_instance(row)[0]))


@event.listens_for(ScopedSession, "do_orm_execute")
def _see_statement(state: ORMExecuteState) -> None:
    if state.is_select or audit_entry() is None:
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
                    _touch(state.session, value)
    if is_change:
        state.session.info[_CHANGED] = True


def _touch(session: Session, resource_id: str) -> None:
    session.info.setdefault(_TOUCHED, {})[resource_id] = None
