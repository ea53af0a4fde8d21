"""Leases that ran out: what is begun over and over and never gets on must end some day."""

from typing import Any

from sqlalchemy import ColumnElement, case, func

#: So often in a row a lease may run out without a step; then the work is done once more, alone.
MAX_LAPSES = 3


def lapsed(row: Any, *, counts: bool) -> dict[str, Any]:
    """Values of a row whose lease, or whose wait in the queue, ran out.

    Only what somebody was running has lapsed: work that waits for a rate limit, or in the queue,
    has not, nor has what was given back.

    Args:
        row: The table's class.
        counts: False where leases may have run out because the database was away.
    """
    was_run: ColumnElement[Any] = (row.status == "running") & row.worker_id.is_not(None)
    values: dict[str, Any] = {
        "lease_expires_at": func.now(),  # over: the next worker may claim it
        "status": "queued",
        "worker_id": None,
    }
    if counts:
        values["lapses"] = case((was_run, row.lapses + 1), else_=row.lapses)
    return values
