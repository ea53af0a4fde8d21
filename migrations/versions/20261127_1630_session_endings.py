"""A session's row says what ends its test, so that a list of sessions parses no design.

Revision ID: d1f3b6a70c52
Revises: c6d20f8a41b7
"""

from alembic import op

revision = "d1f3b6a70c52"
down_revision = "c6d20f8a41b7"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE sessions ADD COLUMN stops_when text DEFAULT '' NOT NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("ALTER TABLE sessions DROP COLUMN stops_when")
