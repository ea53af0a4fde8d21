"""Calibrations: from a response set to a bank version.

Revision ID: 8e41f7b2c960
Revises: 5d0c3a7e91b4
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "8e41f7b2c960"
down_revision = "5d0c3a7e91b4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    json = postgresql.JSONB(astext_type=sa.Text())
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("response_set_id", sa.Text(), nullable=False),
        sa.Column("bank_id", sa.Text(), nullable=True),
        sa.Column("bank_version_id", sa.Text(), nullable=True),
        sa.Column("settings", json, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("lease_epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("progress", json, server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("result", json, nullable=True),
        sa.Column("item_keys", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("item_values", sa.LargeBinary(), nullable=True),
        sa.Column("failure", json, nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_calibrations_status"),
        ),
        sa.ForeignKeyConstraint(
            ["response_set_id"],
            ["response_sets.id"],
            name=op.f("fk_calibrations_response_set_id_response_sets"),
        ),
        sa.ForeignKeyConstraint(
            ["bank_id"], ["banks.id"], name=op.f("fk_calibrations_bank_id_banks")
        ),
        sa.ForeignKeyConstraint(
            ["bank_version_id"],
            ["bank_versions.id"],
            name=op.f("fk_calibrations_bank_version_id_bank_versions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
    )
    for columns in (
        ["response_set_id"],
        ["bank_id"],
        ["bank_version_id"],
        ["status", "lease_expires_at"],
    ):
        op.create_index(op.f(f"ix_calibrations_{'_'.join(columns)}"), "calibrations", columns)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("calibrations")
