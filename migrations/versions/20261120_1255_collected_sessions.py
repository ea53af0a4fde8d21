"""Sessions whose answers a response set has taken over.

Revision ID: 7d21f4b8c09e
Revises: 3c5e8d10a7f2
"""

import sqlalchemy as sa
from alembic import op

revision = "7d21f4b8c09e"
down_revision = "3c5e8d10a7f2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "collected_sessions",
        sa.Column("set_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["set_id"],
            ["response_sets.id"],
            name=op.f("fk_collected_sessions_set_id_response_sets"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_collected_sessions_session_id_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("set_id", "session_id", name=op.f("pk_collected_sessions")),
    )
    op.create_index(op.f("ix_collected_sessions_session_id"), "collected_sessions", ["session_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("collected_sessions")
