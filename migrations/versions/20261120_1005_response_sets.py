"""Response sets: recorded answers, a row for each examinee and trial.

Revision ID: 5d0c3a7e91b4
Revises: 1215555b96ec
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "5d0c3a7e91b4"
down_revision = "1215555b96ec"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "response_sets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("n_examinees", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("n_items", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("n_sheets", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "outcomes",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "imports",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_response_sets")),
        sa.UniqueConstraint("name", name=op.f("uq_response_sets_name")),
    )
    op.create_table(
        "response_items",
        sa.Column("set_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["set_id"],
            ["response_sets.id"],
            name=op.f("fk_response_items_set_id_response_sets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("set_id", "position", name=op.f("pk_response_items")),
        sa.UniqueConstraint("set_id", "key", name=op.f("uq_response_items_set_id_key")),
    )
    op.create_table(
        "answer_sheets",
        sa.Column("set_id", sa.Text(), nullable=False),
        sa.Column("examinee", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("codes", sa.LargeBinary(), nullable=False),
        sa.Column("fractions", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["set_id"],
            ["response_sets.id"],
            name=op.f("fk_answer_sheets_set_id_response_sets"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("set_id", "examinee", "trial", name=op.f("pk_answer_sheets")),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("answer_sheets")
    op.drop_table("response_items")
    op.drop_table("response_sets")
