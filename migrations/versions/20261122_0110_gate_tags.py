"""The tag whose predicted score a gate is on.

Revision ID: 4f7a1c93d2e8
Revises: a4c96e0f7b15
"""

import sqlalchemy as sa
from alembic import op

revision = "4f7a1c93d2e8"
down_revision = "a4c96e0f7b15"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("gates", sa.Column("tag", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("gates", "tag")
