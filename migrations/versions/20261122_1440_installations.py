"""Installations of banks from the catalogue.

Revision ID: 5d20b7e9c4a1
Revises: 3f7a61c0d2be
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "5d20b7e9c4a1"
down_revision = "3f7a61c0d2be"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    json = postgresql.JSONB(none_as_null=True)
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "installations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("entry", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("lease_epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lapses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_at", moment, nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("progress", json, server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("result", json, nullable=True),
        sa.Column("failure", json, nullable=True),
        sa.Column("created_at", moment, server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')",
            name="ck_installations_status",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_installations"),
    )
    op.create_index(
        "ix_installations_status_lease_expires_at", "installations", ["status", "lease_expires_at"]
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("installations")
