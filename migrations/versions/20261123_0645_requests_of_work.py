"""Work tells by which request it was made, for the log lines of whoever runs it.

Revision ID: 7d4a19c8e2f6
Revises: 2c7f90e1b58d
"""

import sqlalchemy as sa
from alembic import op

revision = "7d4a19c8e2f6"
down_revision = "2c7f90e1b58d"
branch_labels = None
depends_on = None

_TABLES = ("sessions", "rankings", "calibrations", "installations")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in _TABLES:
        op.add_column(table, sa.Column("request_id", sa.Text()))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in _TABLES:
        op.drop_column(table, "request_id")
