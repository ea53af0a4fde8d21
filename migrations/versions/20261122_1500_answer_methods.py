"""How an answer was obtained: likelihoods of options, repeats.

Null: it was written and read once.

Revision ID: 5d2c8b71e4fa
Revises: 5d20b7e9c4a1
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "5d2c8b71e4fa"
down_revision = "5d20b7e9c4a1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("administrations", sa.Column("method", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("administrations", "method")
