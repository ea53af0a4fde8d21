"""An Idempotency-Key names the row of the audit trail, not a request id, which clients may share.

Revision ID: 4f7a1e9c25d8
Revises: d94e0b7a51c6
"""

from alembic import op

revision = "4f7a1e9c25d8"
down_revision = "d94e0b7a51c6"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.alter_column("idempotency_keys", "request_id", new_column_name="audit_id")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.alter_column("idempotency_keys", "audit_id", new_column_name="request_id")
