"""One word and one shape for scores and intervals, in what is stored as in what is told.

`accuracy` is `score`; `ci`, and `lo` and `hi` beside a value, are `interval: {lo, hi, level}`.

Revision ID: e8b41c07d96a
Revises: d1f3b6a70c52
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "e8b41c07d96a"
down_revision = "d1f3b6a70c52"
branch_labels = None
depends_on = None

#: Columns that hold figures, and which of their rows do.
_STORED = (
    ("sessions", "summary", "true"),
    ("session_events", "data", "data ?| array['estimate', 'accuracy']"),
    ("rankings", "summary", "true"),
    ("ranking_events", "data", "data ? 'order'"),
    ("baselines", "baseline", "true"),
    ("gates", "baseline", "baseline IS NOT NULL"),
)
#: Rows in memory.
_AT_ONCE = 1000
#: What holds figures inside figures; elsewhere keys may be anybody's.
_INSIDE = {"estimate", "accuracy", "profile", "abilities", "tasks", "repeats", "order", "summary"}
#: The triggers that tell webhooks of an end.
_TOLD = """
DO $$ BEGIN EXECUTE replace(replace(replace(
    pg_get_functiondef('queue_of_session'::regproc), '{accuracy,value}', '{score,value}'),
    $a$'score_lo', NEW.data #> '{accuracy,lo}',$a$, ''),
    $a$'score_hi', NEW.data #> '{accuracy,hi}'$a$,
    $a$'score_interval', NEW.data #> '{score,interval}'$a$);
END $$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    connection = op.get_bind()
    # Written meanwhile by whoever is older, a row would stay as it was.
    op.execute(f"LOCK TABLE {', '.join(table for table, *_ in _STORED)} IN EXCLUSIVE MODE")
    for table, column, which in _STORED:
        read = sa.text(f"SELECT ctid::text, {column} FROM {table} WHERE {which}")  # noqa: S608
        write = sa.text(
            f"UPDATE {table} SET {column} = cast(:new AS jsonb)"  # noqa: S608
            " WHERE ctid = cast(:at AS tid)"
        )
        stored = connection.execute(read, execution_options={"yield_per": _AT_ONCE})
        for rows in stored.partitions():
            new = [{"at": at, "new": json.dumps(_renamed(old))} for at, old in rows]
            connection.execute(write, new)
    driver: Any = connection.connection.driver_connection
    driver.execute(_TOLD)


def downgrade() -> None:
    if op.get_bind().scalar(sa.text("SELECT EXISTS (SELECT FROM sessions)")):
        raise RuntimeError("Stored results stay as they are: restore a backup from before.")


def _renamed(told: Any) -> Any:
    if isinstance(told, list):
        return [_renamed(one) for one in told]
    if not isinstance(told, dict):
        return told
    new: dict[str, Any] = {}
    for name, value in told.items():
        if name in ("ci", "ci_raw", "raw"):
            new["interval" if name == "ci" else "interval_raw"] = _interval(*value or (None, None))
        elif name not in ("lo", "hi"):
            is_figures = name in _INSIDE
            new["score" if name == "accuracy" else name] = _renamed(value) if is_figures else value
    if "lo" in told:
        new["interval"] = _interval(told["lo"], told["hi"])
    return new


def _interval(lo: float | None, hi: float | None) -> dict[str, float | None] | None:
    return None if lo is None and hi is None else {"lo": lo, "hi": hi, "level": 0.95}
