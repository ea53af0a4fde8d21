"""What scorers that call out leave with an answer.

Revision ID: 5d0b7c41e9a3
Revises: 7d21f4b8c09e
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "5d0b7c41e9a3"
down_revision = "7d21f4b8c09e"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "administrations",
        sa.Column("marking", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("administrations", "marking")
