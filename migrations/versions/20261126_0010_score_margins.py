"""Designs ask for a margin of the score, half of its interval's width, and name their presets anew.

Results of ended tests stay as they are; of them the name of the reason to stop alone changes.

Revision ID: 5e83b0d94a17
Revises: a3c51e7f90d4
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "5e83b0d94a17"
down_revision = "a3c51e7f90d4"
branch_labels = None
depends_on = None

_MARGIN, _WIDTH = "score_margin", "prediction_width"
_AT_ONCE = 500
#: Columns that keep a design, and under which key of theirs.
_DESIGNS = (("sessions", "design", None), ("rankings", "settings", "asking"))


def upgrade() -> None:
    def renamed(design: dict[str, Any]) -> dict[str, Any]:
        preset = design.get("preset")
        named = {"preset": "ability"} if preset == "default" else {}
        return {**_with(design, _WIDTH, _MARGIN, 0.5), **named}

    _convert(renamed, _WIDTH, _MARGIN)


def downgrade() -> None:
    """Back; a design says everything in full, so that any preset would do."""

    def renamed(design: dict[str, Any]) -> dict[str, Any]:
        preset = design.get("preset")
        named = {"preset": "default"} if preset in ("score", "ability") else {}
        return {**_with(design, _MARGIN, _WIDTH, 2.0), **named}

    _convert(renamed, _MARGIN, _WIDTH)


def _with(design: dict[str, Any], old: str, new: str, factor: float) -> dict[str, Any]:
    def stopping(rule: dict[str, Any]) -> dict[str, Any]:
        made = {key: value for key, value in rule.items() if key != old}
        if old in rule:
            made[new] = None if rule[old] is None else factor * rule[old]
        for name in ("any_of", "all_of"):
            if made.get(name):
                made[name] = [stopping(inner) for inner in made[name]]
        return made

    if not design.get("stopping"):
        return design
    return {**design, "stopping": stopping(design["stopping"])}


def _convert(renamed: Callable[[dict[str, Any]], dict[str, Any]], old: str, new: str) -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    connection = op.get_bind()
    for table, column, under in _DESIGNS:
        kept = sa.column(column, JSONB)
        key, reason = sa.column("id", sa.Text()), sa.column("stop_reason", sa.Text())
        rows = sa.table(table, key, kept, reason)
        found = connection.execute(
            sa.select(key, kept).select_from(rows), execution_options={"yield_per": _AT_ONCE}
        )
        change = (
            sa.update(rows)
            .where(key == sa.bindparam("of"))
            .values(
                {
                    column: sa.bindparam("made", type_=JSONB),
                    "stop_reason": sa.case((reason == old, new), else_=reason),
                }
            )
        )
        for part in found.partitions():
            made = [
                {
                    "of": row_id,
                    "made": renamed(stored)
                    if under is None
                    else {**stored, under: renamed(stored.get(under) or {})},
                }
                for row_id, stored in part
            ]
            connection.execute(change, made)
