"""Kept answers belong to the project whose calls they spare: they go when its texts do.

Those that are there do not say whose they are, so they go now.

Revision ID: 7c14f2e9a0b6
Revises: a83d5f2c6e19
"""

import sqlalchemy as sa
from alembic import op

revision = "7c14f2e9a0b6"
down_revision = "a83d5f2c6e19"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DELETE FROM kept_answers")
    op.add_column("kept_answers", sa.Column("project_id", sa.Text(), nullable=False))
    op.create_foreign_key(
        op.f("fk_kept_answers_project_id_projects"),
        "kept_answers",
        "projects",
        ["project_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.create_index(op.f("ix_kept_answers_project_id"), "kept_answers", ["project_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("kept_answers", "project_id")
