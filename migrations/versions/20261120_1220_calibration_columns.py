"""Names of the columns that a calibration stores of each item.

Revision ID: 3b7de0a1c524
Revises: 8e41f7b2c960
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "3b7de0a1c524"
down_revision = "8e41f7b2c960"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("calibrations", sa.Column("item_columns", postgresql.ARRAY(sa.Text())))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("calibrations", "item_columns")
