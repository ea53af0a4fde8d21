"""Items in pretest: how many a session is given, and how often each was.

Revision ID: 3c5e8d10a7f2
Revises: 3f9a6c1d7e52
"""

import sqlalchemy as sa
from alembic import op

revision = "3c5e8d10a7f2"
down_revision = "3f9a6c1d7e52"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    zero = sa.text("0")
    op.add_column(
        "banks", sa.Column("pretest_items", sa.Integer(), server_default=zero, nullable=False)
    )
    op.add_column(
        "items", sa.Column("pretest_sessions", sa.Integer(), server_default=zero, nullable=False)
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("items", "pretest_sessions")
    op.drop_column("banks", "pretest_items")
