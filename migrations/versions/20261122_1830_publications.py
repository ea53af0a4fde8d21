"""Calibrations that become a bank version as soon as they are completed.

Revision ID: a41c7d90e6b2
Revises: 4b7d90c2e6a1
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "a41c7d90e6b2"
down_revision = "4b7d90c2e6a1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    json = postgresql.JSONB(none_as_null=True)
    op.add_column("calibrations", sa.Column("publication", json, nullable=True))
    op.add_column("calibrations", sa.Column("publication_failure", json, nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("calibrations", "publication_failure")
    op.drop_column("calibrations", "publication")
