"""The statements that read sessions: built once, for that costs more than sending them."""

from dataclasses import fields
from typing import Any

from sqlalchemy import Boolean, Select, Text, bindparam, column, func, literal_column, select, text

from app.records.sessions import SessionRecord
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.endpoints import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow
from app.storage.scoping import of_opened

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
#: As the session began with it.
ASKED_MODEL = func.coalesce(SessionRow.provenance["endpoint"]["model"].astext, EndpointRow.model)
_JOINED: dict[str, Any] = {
    "endpoint_name": EndpointRow.name,
    "endpoint_model": ASKED_MODEL,
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
# The newest result of each endpoint on each version of a bank. It goes from one pair to the next by
# the index `ix_sessions_results`, so it costs as much as there are pairs, not as sessions.
_NEXT = """
    SELECT s.endpoint_id, s.id FROM sessions s
    WHERE {where} AND s.status = 'completed' AND s.endpoint_id IS NOT NULL
        AND (s.relation IS NULL OR s.relation = 'extend')
    ORDER BY s.bank_version_id, s.endpoint_id, s.finished_at DESC LIMIT 1
"""
NEWEST_RESULTS = text(f"""
    WITH RECURSIVE pair AS (
        SELECT v.id AS version_id, s.endpoint_id AS last_id, s.id FROM bank_versions v
        CROSS JOIN LATERAL ({_NEXT.format(where="s.bank_version_id = v.id")}) s
        WHERE v.bank_id = :of_bank
        UNION ALL
        SELECT pair.version_id, s.endpoint_id, s.id FROM pair CROSS JOIN LATERAL (
            {_NEXT.format(where="s.bank_version_id = version_id AND s.endpoint_id > last_id")}
        ) s
    ) SELECT id FROM pair
""").columns(column("id", Text()))  # noqa: S608 (built from the constant above)
IDLE = (
    text("""
    SELECT s.id FROM sessions s WHERE s.finished_at IS NULL AND s.status = 'awaiting_response'
        AND s.design ? 'idle_timeout' AND (
            SELECT e.created_at FROM session_events e WHERE e.session_id = s.id
            ORDER BY e.seq DESC LIMIT 1
        ) < clock_timestamp() - interval '1 s' * CAST(s.design ->> 'idle_timeout' AS float8)
    ORDER BY s.id FOR NO KEY UPDATE SKIP LOCKED
""")
    .columns(column("id", Text()))
    .execution_options(**of_opened("all that wait"))
)
SESSION = SESSIONS.where(SessionRow.id == bindparam("wanted"))
WITH_AWAITED = (
    SESSION.add_columns(AdministrationRow)
    .outerjoin(
        AdministrationRow,
        (AdministrationRow.session_id == SessionRow.id) & AdministrationRow.arrival.is_(None),
    )
    .order_by(AdministrationRow.step)
)
LOCKED_WITH_AWAITED = WITH_AWAITED.with_for_update(of=SessionRow)
LOCKED_SESSION = SESSION.with_for_update(of=SessionRow)
