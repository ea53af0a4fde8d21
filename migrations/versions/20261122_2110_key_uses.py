"""When each API key was last used.

Revision ID: 5b8f0d31a6ce
Revises: 5e0c83a6f1d4
"""

import sqlalchemy as sa
from alembic import op

revision = "5b8f0d31a6ce"
down_revision = "5e0c83a6f1d4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("api_keys", sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("api_keys", "last_used_at")
