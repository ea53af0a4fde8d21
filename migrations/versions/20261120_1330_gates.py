"""Gates: sessions held against a threshold.

Revision ID: 8e4c19f2b6d0
Revises: 9c41d7e2b085
"""

import sqlalchemy as sa
from alembic import op

revision = "8e4c19f2b6d0"
down_revision = "9c41d7e2b085"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "gates",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("threshold", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("confidence", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name="fk_gates_session_id_sessions",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_gates"),
    )
    op.create_index("ix_gates_session_id", "gates", ["session_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("gates")
