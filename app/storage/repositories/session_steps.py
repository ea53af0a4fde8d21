"""Sessions begun, and their steps: one statement each, built once."""

import json
from dataclasses import fields
from typing import Any

from sqlalchemy import bindparam, func, insert, literal, select, text

from app.records.fields import shallow
from app.records.sessions import Administration, Advance, NewSession
from app.storage.rows.base import Base
from app.storage.rows.sessions import SessionEventRow, SessionRow
from app.storage.scoping import of_opened

_CLOSING_TYPES = {
    "outcome": "text",
    "score": "float8",
    "extracted": "text",
    "extractor": "text",
    "reason": "text",
    "error_code": "text",
    "answer_text": "text",
    "raw_text": "text",
    "reasoning": "text",
    "finish_reason": "text",
    "tokens_in": "int",
    "tokens_out": "int",
    "usd": "float8",
    "latency_ms": "float8",
    "attempts": "int",
    "theta": "float8",
    "se": "float8",
    "scorer_hash": "text",
    "marking": "jsonb",
    "method": "jsonb",
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

# One statement, so that the steps of many sessions cost one round trip and each is all or nothing:
# without its lease a step has no row in `lease`, and the parts that read from it write nothing of
# it. Rows are locked in the order of their ids, as by whoever renews leases.
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


def step_values(session_id: str, epoch: int, step: Advance) -> dict[str, Any]:
    """What `ADVANCE` wants of a session's step under a lease."""
    ending = step.ending
    return {
        "id": session_id,
        "epoch": epoch,
        "status": ending.status if ending else step.status,
        "summary": step.summary,
        "active_s": step.active_s,
        "stop_reason": ending.stop_reason if ending else None,
        "stop_detail": ending.stop_detail if ending else None,
        "precision_reached": ending.precision_reached if ending else None,
        "failure": ending.failure if ending else None,
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
    """A row of `administrations`: an item of another session as one of this."""
    return {
        "session_id": session_id,
        "step": item.step,
        "position": item.position,
        "asked_at": item.asked_at,
        "answered_at": item.answered_at,
        "information": item.information,
        "probability": item.probability,
        "arrival": item.arrival,
        **(shallow(item.closing) if item.closing else {}),
    }


def as_json(value: Any) -> str:
    """For a parameter that is cast to `jsonb`."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
