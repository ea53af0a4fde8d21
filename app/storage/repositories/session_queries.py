"""The statements that read sessions: built once, for that costs more than sending them."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Boolean, Select, bindparam, literal_column, select

from app.records.sessions import SessionRecord
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.endpoints import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow

# Answers that were replayed on another bank stay those to the bank that they were given on.
WITHHELD_SQL = """
    CASE WHEN sessions.parent_id IS NULL THEN banks.visibility <> 'open' ELSE (
        WITH RECURSIVE line (parent_id, version_id) AS (
            SELECT sessions.parent_id, sessions.bank_version_id
            UNION ALL
            SELECT s.parent_id, s.bank_version_id FROM sessions s JOIN line ON s.id = line.parent_id
        )
        SELECT bool_or(b.visibility <> 'open') FROM line
        JOIN bank_versions v ON v.id = line.version_id JOIN banks b ON b.id = v.bank_id
    ) END
"""
_JOINED: dict[str, Any] = {
    "endpoint_name": EndpointRow.name,
    "endpoint_model": EndpointRow.model,
    "bank_id": BankVersionRow.bank_id,
    "bank_name": BankRow.name,
    "bank_version": BankVersionRow.number,
    "bank_visibility": BankRow.visibility,
    "withheld": literal_column(WITHHELD_SQL, Boolean()),
}
_OWN = [f.name for f in fields(SessionRecord) if f.name not in {*_JOINED, "metadata"}]
SESSIONS: Select[Any] = (
    select(
        *(getattr(SessionRow, name) for name in _OWN),
        SessionRow.details.label("metadata"),
        *(column.label(name) for name, column in _JOINED.items()),
    )
    .join(BankVersionRow, BankVersionRow.id == SessionRow.bank_version_id)
    .join(BankRow, BankRow.id == BankVersionRow.bank_id)
    .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
)
SESSION = SESSIONS.where(SessionRow.id == bindparam("wanted"))
WITH_AWAITED = (
    SESSION.add_columns(AdministrationRow)
    .outerjoin(
        AdministrationRow,
        (AdministrationRow.session_id == SessionRow.id) & AdministrationRow.arrival.is_(None),
    )
    .order_by(AdministrationRow.step)
    .limit(1)
)
LOCKED_SESSION = SESSION.with_for_update(of=SessionRow)
