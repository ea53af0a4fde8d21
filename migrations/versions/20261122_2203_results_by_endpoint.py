"""Indexes that keep leaderboards, and the trail of one action, quick beside millions of answers.

Revision ID: d94e0b7a51c6
Revises: e20b6c9d41f7
"""

import sqlalchemy as sa
from alembic import op

revision = "d94e0b7a51c6"
down_revision = "e20b6c9d41f7"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not concurrently: other processes that start wait in a transaction for the migrations' lock,
    # and would be waited for. A quarter of a million sessions take about a second.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(
        "ix_sessions_results",
        "sessions",
        ["bank_version_id", "endpoint_id", sa.text("finished_at DESC")],
        postgresql_where=sa.text(
            "status = 'completed' AND endpoint_id IS NOT NULL"
            " AND (relation IS NULL OR relation = 'extend')"
        ),
    )
    op.create_index("ix_audit_action_id", "audit", ["action", "id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_audit_action_id", table_name="audit")
    op.drop_index("ix_sessions_results", table_name="sessions")
