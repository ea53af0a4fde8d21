"""Dispersions of items with continuous scores.

Revision ID: 9c41d7e2b085
Revises: c41d9e07b5a8
"""

import sqlalchemy as sa
from alembic import op

revision = "9c41d7e2b085"
down_revision = "c41d9e07b5a8"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("version_items", sa.Column("k", sa.DOUBLE_PRECISION()))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("version_items", "k")
