"""An index of the sessions that have not ended, by whose they are: their number decides turns.

Revision ID: e91b6c40d7f3
Revises: c2f58b1d7a90
"""

import sqlalchemy as sa
from alembic import op

revision = "e91b6c40d7f3"
down_revision = "c2f58b1d7a90"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(
        "ix_sessions_open",
        "sessions",
        ["project_id", "created_by", "id"],
        postgresql_where=sa.text("finished_at IS NULL"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_sessions_open", table_name="sessions")
