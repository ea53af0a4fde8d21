"""Parts of calibrations, which workers run side by side, and events of calibrations.

Revision ID: c41d9e07b5a8
Revises: 5d0b7c41e9a3
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "c41d9e07b5a8"
down_revision = "5d0b7c41e9a3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("calibrations", sa.Column("parent_id", sa.Text(), nullable=True))
    op.add_column("calibrations", sa.Column("part", sa.Integer(), nullable=True))
    op.add_column("calibrations", sa.Column("n_parts", sa.Integer(), nullable=True))
    op.add_column(
        "calibrations",
        sa.Column("event_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
    )
    op.create_foreign_key(
        op.f("fk_calibrations_parent_id_calibrations"),
        "calibrations",
        "calibrations",
        ["parent_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.create_index(op.f("ix_calibrations_parent_id"), "calibrations", ["parent_id"])
    op.create_table(
        "calibration_events",
        sa.Column("calibration_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["calibration_id"],
            ["calibrations.id"],
            name=op.f("fk_calibration_events_calibration_id_calibrations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("calibration_id", "seq", name=op.f("pk_calibration_events")),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("calibration_events")
    op.execute("DELETE FROM calibrations WHERE parent_id IS NOT NULL")
    op.drop_index(op.f("ix_calibrations_parent_id"), table_name="calibrations")
    op.drop_constraint(
        op.f("fk_calibrations_parent_id_calibrations"), "calibrations", type_="foreignkey"
    )
    for column in ("event_seq", "n_parts", "part", "parent_id"):
        op.drop_column("calibrations", column)
