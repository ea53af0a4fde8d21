"""Answers of endpoints that are kept for calls to come, where a session asks for that.

Revision ID: 8e41f0a97c35
Revises: 5d2c8b71e4fa
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "8e41f0a97c35"
down_revision = "5d2c8b71e4fa"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "kept_answers",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("answer", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_kept_answers")),
    )
    op.create_index(op.f("ix_kept_answers_created_at"), "kept_answers", ["created_at"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("kept_answers")
