"""How often in a row the lease of a session, ranking or calibration ran out without a step.

Revision ID: 6e0b8d25f4a9
Revises: 8c15e2b7d940
"""

import sqlalchemy as sa
from alembic import op

revision = "6e0b8d25f4a9"
down_revision = "8c15e2b7d940"
branch_labels = None
depends_on = None

_TABLES = ("sessions", "rankings", "calibrations")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in _TABLES:
        op.add_column(table, sa.Column("lapses", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in _TABLES:
        op.drop_column(table, "lapses")
