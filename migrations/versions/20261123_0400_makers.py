"""Versions of banks, and projects, tell by which key they were made.

Revision ID: 8f31c05a7d92
Revises: 6d0c94f1be27
"""

import sqlalchemy as sa
from alembic import op

revision = "8f31c05a7d92"
down_revision = "6d0c94f1be27"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("bank_versions", "projects"):
        op.add_column(table, sa.Column("created_by", sa.Text()))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("bank_versions", "projects"):
        op.drop_column(table, "created_by")
