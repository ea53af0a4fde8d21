"""The statements that read sessions: built once, for that costs more than sending them."""

from dataclasses import fields
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Executable,
    Float,
    Select,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on
from sqlalchemy.orm import InstrumentedAttribute

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
_JOINED: dict[str, InstrumentedAttribute[Any] | ColumnElement[Any]] = {
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
#: Results of an endpoint on a scale among which one is chosen; older ones are of the past.
_LAST = 10
#: An interval of so many times the narrowest width is about as precise: of these the newest is
#: told, for the narrowest of several alike would be one that luck has brought near 0 or 1.
_AS_PRECISE = 1.25
# The last results of each endpoint on each version of a bank. It goes from one pair to the next by
# the index `ix_sessions_results`, so it costs as much as there are pairs, not as sessions.
_NEXT = """
    SELECT s.endpoint_id, s.id FROM sessions s
    WHERE {where} AND s.status = 'completed' AND s.endpoint_id IS NOT NULL
        AND (s.relation IS NULL OR s.relation = 'extend')
    ORDER BY s.bank_version_id, s.endpoint_id, s.finished_at DESC LIMIT {n}
"""
_LAST_RESULTS = text(f"""
    WITH RECURSIVE pair AS (
        SELECT v.id AS version_id, s.endpoint_id AS last_id FROM bank_versions v
        CROSS JOIN LATERAL ({_NEXT.format(where="s.bank_version_id = v.id", n=1)}) s
        WHERE v.bank_id = :of_bank
        UNION ALL
        SELECT pair.version_id, s.endpoint_id FROM pair CROSS JOIN LATERAL (
            {_NEXT.format(where="s.bank_version_id = version_id AND s.endpoint_id > last_id", n=1)}
        ) s
    ) SELECT s.id FROM pair CROSS JOIN LATERAL (
        {_NEXT.format(where="s.bank_version_id = version_id AND s.endpoint_id = last_id", n=_LAST)}
    ) s
""").columns(column("id", Text()))  # noqa: S608 (built from the constants above)


def present_results(bank_id: str) -> Select[Any]:
    """Of each endpoint on each scale of a bank the newest of its most precise last results.

    Only results by the endpoint's present settings, asked and aimed as the newest was, count: a
    gate's or a ranking's few questions replace no longer test, and a changed model does.
    Endpoints without a name are one when they call the same model at the same address.
    """
    asked, score = SessionRow.provenance["endpoint"], SessionRow.summary["score"]
    address = func.concat_ws(" ", asked["base_url"].astext, asked["model"].astext)
    of_whom = (
        SessionRow.provenance["scale"].astext,
        EndpointRow.kind,
        func.coalesce(EndpointRow.name, address),
    )
    settings = func.jsonb_build_array(
        asked.op("-")(cast(["id", "name", "revision", "price"], ARRAY(Text))),
        SessionRow.provenance["asking"],
        score["target"],
    )
    newest: dict[str, Any] = {
        "partition_by": of_whom,
        "order_by": (SessionRow.finished_at.desc(), SessionRow.id.desc()),
    }
    known = score["interval"]
    width = known["hi"].astext.cast(Float) - known["lo"].astext.cast(Float)
    found = (
        select(
            SessionRow.id,
            func.dense_rank().over(order_by=of_whom).label("whose"),
            func.row_number().over(**newest).label("nth"),
            settings.label("settings"),
            func.first_value(settings).over(**newest).label("present"),
            # All was asked: the score is known.
            func.coalesce(width, case((score["value"].astext.is_not(None), 0.0))).label("width"),
        )
        .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
        .where(SessionRow.id.in_(_LAST_RESULTS.bindparams(of_bank=bank_id)))
        .subquery()
    )
    narrowest = func.min(found.c.width).over(partition_by=found.c.whose)
    now = (
        select(found, narrowest.label("narrowest"))
        .where(found.c.nth <= _LAST, found.c.settings == found.c.present)
        .subquery()
    )
    chosen = (
        select(now.c.id)
        .where(now.c.narrowest.is_(None) | (now.c.width <= _AS_PRECISE * now.c.narrowest))
        .ext(distinct_on(now.c.whose))
        .order_by(now.c.whose, now.c.nth)
    )
    return SESSIONS.where(SessionRow.id.in_(chosen)).order_by(SessionRow.finished_at.desc())


def _idle(noun: str, waits: str, plan: str) -> Executable:
    """What waits for a client that is silent for longer than its plan allows, locked."""
    return (
        text(f"""
            SELECT o.id FROM {noun}s o WHERE o.finished_at IS NULL AND {waits}
                AND {plan} ? 'idle_timeout' AND (
                    SELECT e.created_at FROM {noun}_events e WHERE e.{noun}_id = o.id
                    ORDER BY e.seq DESC LIMIT 1
                ) < clock_timestamp() - interval '1 s' * CAST({plan} ->> 'idle_timeout' AS float8)
            ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED
        """)  # noqa: S608 (constants)
        .columns(column("id", Text()))
        .execution_options(**of_opened("all that wait"))
    )


#: A member of a ranking may be silent for as long as the ranking is not.
IDLE = _idle("session", "o.status = 'awaiting_response' AND o.ranking_id IS NULL", "o.design")
IDLE_RANKINGS = _idle("ranking", "o.status = 'running'", "(o.settings -> 'asking')")
SESSION = SESSIONS.where(SessionRow.id == bindparam("wanted"))
WITH_AWAITED = (
    SESSION.add_columns(AdministrationRow)
    .outerjoin(
        AdministrationRow,
        (AdministrationRow.session_id == SessionRow.id) & AdministrationRow.arrival.is_(None),
    )
    .order_by(AdministrationRow.step)
)
AWAITED_IN_RANKING = (
    SESSIONS.add_columns(AdministrationRow)
    .join(AdministrationRow, AdministrationRow.session_id == SessionRow.id)
    .where(
        SessionRow.ranking_id == bindparam("wanted"),
        SessionRow.status == "awaiting_response",
        AdministrationRow.arrival.is_(None),
    )
    .order_by(AdministrationRow.asked_at, SessionRow.ranking_member, AdministrationRow.step)
)
LOCKED_WITH_AWAITED = WITH_AWAITED.with_for_update(of=SessionRow)
LOCKED_SESSION = SESSION.with_for_update(of=SessionRow)
