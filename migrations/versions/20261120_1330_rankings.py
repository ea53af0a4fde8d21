"""Rankings: several endpoints on one bank version.

Revision ID: a4c96e0f7b15
Revises: 9b2d47e0c6a1
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "a4c96e0f7b15"
down_revision = "9b2d47e0c6a1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    json = postgresql.JSONB(astext_type=sa.Text())
    now = sa.text("now()")
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "rankings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("bank_version_id", sa.Text(), nullable=False),
        sa.Column("settings", json, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("metadata", json, server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("lease_epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_at", moment, nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("summary", json, server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("stop_detail", sa.Text(), nullable=True),
        sa.Column("failure", json, nullable=True),
        sa.Column("event_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", moment, server_default=now, nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("finished_at", moment, nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_rankings_status"),
        ),
        sa.ForeignKeyConstraint(
            ["bank_version_id"],
            ["bank_versions.id"],
            name=op.f("fk_rankings_bank_version_id_bank_versions"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rankings")),
    )
    op.create_index(op.f("ix_rankings_bank_version_id"), "rankings", ["bank_version_id"])
    op.create_index(
        op.f("ix_rankings_status_lease_expires_at"), "rankings", ["status", "lease_expires_at"]
    )
    op.create_table(
        "ranking_events",
        sa.Column("ranking_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", json, nullable=False),
        sa.Column("created_at", moment, server_default=now, nullable=False),
        sa.ForeignKeyConstraint(
            ["ranking_id"],
            ["rankings.id"],
            name=op.f("fk_ranking_events_ranking_id_rankings"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("ranking_id", "seq", name=op.f("pk_ranking_events")),
    )
    op.add_column("sessions", sa.Column("ranking_id", sa.Text(), nullable=True))
    op.add_column("sessions", sa.Column("ranking_member", sa.Integer(), nullable=True))
    op.create_foreign_key(
        op.f("fk_sessions_ranking_id_rankings"), "sessions", "rankings", ["ranking_id"], ["id"]
    )
    op.create_index(op.f("ix_sessions_ranking_id"), "sessions", ["ranking_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_sessions_ranking_id"), table_name="sessions")
    op.drop_constraint(op.f("fk_sessions_ranking_id_rankings"), "sessions", type_="foreignkey")
    op.drop_column("sessions", "ranking_member")
    op.drop_column("sessions", "ranking_id")
    op.drop_table("ranking_events")
    op.drop_table("rankings")
