"""Items tell by which key they were made.

Revision ID: 4b9e2d70c6a1
Revises: 8f31c05a7d92
"""

import sqlalchemy as sa
from alembic import op

revision = "4b9e2d70c6a1"
down_revision = "8f31c05a7d92"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("items", sa.Column("created_by", sa.Text()))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("items", "created_by")
