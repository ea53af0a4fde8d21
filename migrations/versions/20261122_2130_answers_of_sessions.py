"""Kept answers go with the session that asked.

Revision ID: a83d5f2c6e19
Revises: 5b8f0d31a6ce
"""

import sqlalchemy as sa
from alembic import op

revision = "a83d5f2c6e19"
down_revision = "5b8f0d31a6ce"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("kept_answers", sa.Column("session_id", sa.Text(), nullable=True))
    op.create_foreign_key(
        op.f("fk_kept_answers_session_id_sessions"),
        "kept_answers",
        "sessions",
        ["session_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.create_index(op.f("ix_kept_answers_session_id"), "kept_answers", ["session_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("kept_answers", "session_id")
