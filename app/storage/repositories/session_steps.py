"""One step of a session as one statement."""

import json
from dataclasses import fields
from typing import Any

from sqlalchemy import text

from app.records.fields import shallow
from app.records.sessions import Advance, Closing

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


# One statement, so that a step costs one round trip and is all or nothing: without the lease the
# first part yields no row and the others, which read from it, write nothing.
ADVANCE = text(f"""
    WITH lease AS (
        UPDATE sessions SET
            status = :status, summary = CAST(:summary AS jsonb), active_s = :active_s,
            arrivals = arrivals + :n_closed, event_seq = event_seq + :n_events,
            waiting_until = NULL, waiting_reason = NULL, revision = revision + 1,
            stop_reason = :stop_reason, stop_detail = :stop_detail,
            precision_reached = :precision_reached, failure = CAST(:failure AS jsonb),
            finished_at = CASE WHEN :ended THEN now() END,
            lease_expires_at = CASE WHEN :ended THEN NULL ELSE lease_expires_at END,
            lapses = CASE WHEN :n_closed > 0 THEN 0 ELSE lapses END
        WHERE id = :id AND lease_epoch = :epoch
          AND status IN ('running', 'waiting', 'awaiting_response')
        RETURNING id, arrivals - :n_closed AS arrivals, event_seq - :n_events AS event_seq
    ), closed AS (
        UPDATE administrations AS a
        SET arrival = lease.arrivals + c.nth, answered_at = now(),
            {", ".join(f"{name} = c.{name}" for name in _CLOSING_TYPES)}
        FROM lease, jsonb_to_recordset(CAST(:closed AS jsonb))
            AS c(nth int, step int, {", ".join(f"{n} {t}" for n, t in _CLOSING_TYPES.items())})
        WHERE a.session_id = lease.id AND a.step = c.step AND a.arrival IS NULL
        RETURNING 1
    ), asked AS (
        INSERT INTO administrations (
            session_id, step, position, information, probability, step_token
        )
        SELECT lease.id, q.step, q.position, q.information, q.probability, q.step_token
        FROM lease, jsonb_to_recordset(CAST(:asked AS jsonb))
            AS q(step int, position int, information float8, probability float8, step_token text)
    ), noted AS (
        INSERT INTO session_events (session_id, seq, type, data)
        SELECT lease.id, lease.event_seq + e.nth, e.type, e.data
        FROM lease, jsonb_to_recordset(CAST(:events AS jsonb)) AS e(nth int, type text, data jsonb)
    )
    SELECT (SELECT count(*) FROM lease) AS held, (SELECT count(*) FROM closed) AS closed
""")  # noqa: S608 (built from the constant table above)


def step_values(step: Advance) -> dict[str, Any]:
    """What `ADVANCE` wants of a step, beside the session's id and the lease's epoch."""
    ending = step.ending
    return {
        "status": ending.status if ending else step.status,
        "summary": as_json(step.summary),
        "active_s": step.active_s,
        "n_closed": len(step.closed),
        "n_events": len(step.events),
        "stop_reason": ending.stop_reason if ending else None,
        "stop_detail": ending.stop_detail if ending else None,
        "precision_reached": ending.precision_reached if ending else None,
        "failure": as_json(ending.failure) if ending and ending.failure else None,
        "ended": ending is not None,
        "closed": as_json(
            [
                {"nth": nth, "step": number, **closing_values(closing)}
                for nth, (number, closing) in enumerate(step.closed.items(), 1)
            ]
        ),
        "asked": as_json([shallow(item) for item in step.asked]),
        "events": as_json(
            [
                {"nth": nth, "type": event.type, "data": event.data}
                for nth, event in enumerate(step.events, 1)
            ]
        ),
    }


def closing_values(closing: Closing | None) -> dict[str, Any]:
    """Columns of a closing."""
    return {f.name: getattr(closing, f.name) for f in fields(Closing)} if closing else {}


def as_json(value: Any) -> str:
    """For a parameter that is cast to `jsonb`."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
