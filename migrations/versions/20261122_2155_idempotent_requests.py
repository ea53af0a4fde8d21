"""Which request an Idempotency-Key is of: the audit trail knows by that whether it was carried out.

Revision ID: b7d20c95e1a4
Revises: 7c14f2e9a0b6
"""

import sqlalchemy as sa
from alembic import op

revision = "b7d20c95e1a4"
down_revision = "7c14f2e9a0b6"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("idempotency_keys", sa.Column("request_id", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("idempotency_keys", "request_id")
