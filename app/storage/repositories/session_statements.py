"""SQL of sessions: which result of a model is its present one, how a step is stored.

Each statement is built only once, as building costs more than sending it.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Boolean,
    Executable,
    Float,
    Select,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, distinct_on

from app.records.fields import shallow
from app.records.sessions import Administration, Advance, Closing, NewSession, SessionRecord
from app.storage.rows.banks import BankRow, BankVersionRow
from app.storage.rows.base import Base
from app.storage.rows.projects import EndpointRow
from app.storage.rows.sessions import OWN_RESULT, AdministrationRow, SessionEventRow, SessionRow
from app.storage.scoping import of_opened

# Replayed answers still belong to their original bank, so any withheld bank in the line counts.
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
#: Model of the endpoint when the session began.
ASKED_MODEL = func.coalesce(SessionRow.provenance["endpoint"]["model"].astext, EndpointRow.model)
_JOINED: dict[str, Any] = {
    "endpoint_name": EndpointRow.name,
    "endpoint_model": ASKED_MODEL,
    "bank_id": BankVersionRow.bank_id,
    "bank_name": BankRow.name,
    "bank_version": BankVersionRow.number,
    "bank_deleted": BankRow.archived_at.is_not(None),
    "bank_visibility": BankRow.visibility,
    "join": BankVersionRow.extras["joins"][SessionRow.project_id].astext,
    "withheld": literal_column(WITHHELD_SQL, Boolean()),
}


def select_record(record: Any, row: Any, joined: Mapping[str, Any]) -> Select[Any]:
    """Select the fields of a record from its row; those in `joined` come from other tables."""
    own = [f.name for f in fields(record) if f.name not in {*joined, "metadata"}]
    return select(
        *(getattr(row, name) for name in own),
        row.details.label("metadata"),
        *(column.label(name) for name, column in joined.items()),
    )


SESSIONS: Select[Any] = (
    select_record(SessionRecord, SessionRow, _JOINED)
    .join(BankVersionRow, BankVersionRow.id == SessionRow.bank_version_id)
    .join(BankRow, BankRow.id == BankVersionRow.bank_id)
    .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
)
#: Number of an endpoint's latest results on a scale from which its present result is chosen.
_LAST = 10
#: Intervals up to this multiple of the narrowest width count as equally precise, and the newest of
#: them is shown: the narrowest is often one that chance has brought near 0 or 1.
_AS_PRECISE = 1.25
# The last results of each endpoint on each version of a bank. The query steps from pair to pair
# along the index `ix_sessions_results`, so its cost grows with the pairs, not with the sessions.
_NEXT = f"""
    SELECT s.endpoint_id, s.id FROM sessions s
    WHERE {{where}} AND s.status = 'completed' AND s.endpoint_id IS NOT NULL AND {OWN_RESULT}
    ORDER BY s.bank_version_id, s.endpoint_id, s.finished_at DESC LIMIT {{n}}
"""  # noqa: S608 (the condition is a constant)
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
    """Select the present result of each endpoint on each scale of a bank.

    It is the newest of the most precise recent results with the settings, way of asking and target
    of the newest result: a gate's few questions do not replace a longer test, a changed model does.
    Unnamed endpoints with the same model and address count as one.
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
            # All items were asked, so the score is known exactly.
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
    """Lock and return ids of resources whose client is silent for longer than its plan allows."""
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


#: Members of rankings are excluded: the silence of their clients is judged by the whole ranking.
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
#: The same, and the time since the session's last event.
WITH_AWAITED_AND_TIME = WITH_AWAITED.add_columns(
    select(func.greatest(func.now() - SessionEventRow.created_at, timedelta()))
    .where(SessionEventRow.session_id == SessionRow.id)
    .order_by(SessionEventRow.seq.desc())
    .limit(1)
    .scalar_subquery()
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
LOCKED_SESSION = SESSION.with_for_update(of=SessionRow)
LOCK = select(SessionRow.id).where(SessionRow.id == bindparam("wanted")).with_for_update()


_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # as SQLAlchemy has it
_CLOSING_TYPES = {
    f.name: AdministrationRow.__table__.c[f.name].type.compile(_DIALECT) for f in fields(Closing)
}

_TABLES = Base.metadata.tables
_GIVEN = (
    *(f.name for f in fields(NewSession)),
    *("project_id", "created_by", "request_id", "summary", "arrivals"),
)
_MADE = (
    insert(_TABLES[SessionRow.__tablename__])
    .values({"event_seq": 1, **{name: bindparam(name) for name in _GIVEN}})
    .returning(SessionRow.id, SessionRow.status)
    .cte("made")
)
#: A new session and its first event.
ADD = insert(_TABLES[SessionEventRow.__tablename__]).from_select(
    ["session_id", "seq", "type", "data"],
    select(
        _MADE.c.id,
        literal(1),
        literal("session.created"),
        func.jsonb_build_object("status", _MADE.c.status),
    ),
)

# One statement writes the steps of many sessions in one round trip, each step completely or not at
# all: a step without its lease has no row in `lease`, and the parts that read from `lease` write
# nothing for it. Rows are locked in order of id, as by the renewal of leases.
ADVANCE = text(f"""
    WITH step AS (
        SELECT s.*, EXISTS (
            SELECT FROM administrations AS a
            WHERE a.session_id = s.id AND a.arrival IS NOT NULL AND a.step IN (
                SELECT c.step FROM jsonb_to_recordset(s.closed) AS c(step int)
            )
        ) AS stale
        FROM jsonb_to_recordset(CAST(:steps AS jsonb)) AS s(
            id text, epoch int, status text, summary jsonb, active_s float8,
            stop_reason text, stop_detail text, precision_reached bool, failure jsonb, ended bool,
            closed jsonb, asked jsonb, events jsonb
        )
    ), held AS (
        SELECT step.*, jsonb_array_length(step.closed) AS n_closed,
            jsonb_array_length(step.events) AS n_events
        FROM step JOIN sessions AS t ON t.id = step.id
        WHERE t.lease_epoch = step.epoch AND NOT step.stale
          AND t.status IN ('running', 'waiting', 'awaiting_response')
        ORDER BY t.id FOR NO KEY UPDATE OF t
    ), lease AS (
        UPDATE sessions AS t SET
            status = h.status, summary = h.summary, active_s = h.active_s,
            arrivals = arrivals + h.n_closed, event_seq = event_seq + h.n_events,
            waiting_until = NULL, waiting_reason = NULL, revision = revision + 1,
            stop_reason = h.stop_reason, stop_detail = h.stop_detail,
            precision_reached = h.precision_reached, failure = h.failure,
            finished_at = CASE WHEN h.ended THEN now() END,
            lease_expires_at = CASE WHEN h.ended THEN NULL ELSE lease_expires_at END,
            lapses = CASE WHEN h.n_closed > 0 THEN 0 ELSE lapses END
        FROM held AS h WHERE t.id = h.id
        RETURNING t.id, t.arrivals - h.n_closed AS arrivals, t.event_seq - h.n_events AS event_seq,
            h.epoch, h.closed, h.asked, h.events
    ), closed AS (
        UPDATE administrations AS a
        SET arrival = lease.arrivals + c.nth, answered_at = now(),
            {", ".join(f"{name} = c.{name}" for name in _CLOSING_TYPES)}
        FROM lease, jsonb_to_recordset(lease.closed)
            AS c(nth int, step int, {", ".join(f"{n} {t}" for n, t in _CLOSING_TYPES.items())})
        WHERE a.session_id = lease.id AND a.step = c.step AND a.arrival IS NULL
        RETURNING a.session_id
    ), asked AS (
        INSERT INTO administrations (
            session_id, step, position, information, probability, step_token
        )
        SELECT lease.id, q.step, q.position, q.information, q.probability, q.step_token
        FROM lease, jsonb_to_recordset(lease.asked)
            AS q(step int, position int, information float8, probability float8, step_token text)
    ), noted AS (
        INSERT INTO session_events (session_id, seq, type, data)
        SELECT lease.id, lease.event_seq + e.nth, e.type, e.data
        FROM lease, jsonb_to_recordset(lease.events) AS e(nth int, type text, data jsonb)
    )
    SELECT step.id, step.epoch, step.stale, lease.id IS NOT NULL AS held,
        (SELECT count(*) FROM closed WHERE closed.session_id = step.id) AS closed
    FROM step LEFT JOIN lease ON lease.id = step.id AND lease.epoch = step.epoch
""").execution_options(  # noqa: S608 (built from the constant table above)
    **of_opened("the sessions, whose lease epochs are named")
)


_OF_ENDING = ("stop_reason", "stop_detail", "precision_reached", "failure")


def step_values(session_id: str, epoch: int, step: Advance) -> dict[str, Any]:
    """Parameters of `ADVANCE` for a session's step under a lease."""
    ending = step.ending
    return {
        "id": session_id,
        "epoch": epoch,
        "status": ending.status if ending else step.status,
        "summary": step.summary,
        "active_s": step.active_s,
        **{name: getattr(ending, name, None) for name in _OF_ENDING},
        "ended": ending is not None,
        "closed": [
            {"nth": nth, "step": number, **shallow(closing)}
            for nth, (number, closing) in enumerate(step.closed.items(), 1)
        ],
        "asked": [shallow(item) for item in step.asked],
        "events": [
            {"nth": nth, "type": event.type, "data": event.data}
            for nth, event in enumerate(step.events, 1)
        ],
    }


def taken_over(session_id: str, item: Administration) -> dict[str, Any]:
    """Row of `administrations` that copies an item of another session into this one."""
    said = {name: value for name, value in shallow(item).items() if name != "step_token"}
    closing = said.pop("closing")
    return {"session_id": session_id, **said, **(shallow(closing) if closing else {})}


def as_json(value: Any) -> str:
    """JSON text for a parameter that is cast to `jsonb`."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
