"""Reference abilities of the examinees that a calibration was made from.

Revision ID: 9b2d47e0c6a1
Revises: 8e4c19f2b6d0
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "9b2d47e0c6a1"
down_revision = "8e4c19f2b6d0"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "calibrations", sa.Column("examinee_names", postgresql.ARRAY(sa.Text()), nullable=True)
    )
    op.add_column("calibrations", sa.Column("examinee_values", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("calibrations", "examinee_values")
    op.drop_column("calibrations", "examinee_names")
