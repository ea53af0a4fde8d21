"""With which probability each item of a session was drawn, for estimates that need no model.

Null: the item was asked before this was noted.

Revision ID: 3f7a61c0d2be
Revises: 6e0b8d25f4a9
"""

import sqlalchemy as sa
from alembic import op

revision = "3f7a61c0d2be"
down_revision = "6e0b8d25f4a9"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("administrations", sa.Column("probability", sa.Float(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("administrations", "probability")
