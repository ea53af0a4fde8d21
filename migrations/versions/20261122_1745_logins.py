"""Browsers that are logged in, by the hash of their cookie.

Revision ID: 4b7e19d03ac6
Revises: 8e41f0a97c35
"""

import sqlalchemy as sa
from alembic import op

revision = "4b7e19d03ac6"
down_revision = "8e41f0a97c35"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "logins",
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"],
            ["api_keys.id"],
            name=op.f("fk_logins_key_id_api_keys"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_logins")),
    )
    op.create_index(op.f("ix_logins_key_id"), "logins", ["key_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("logins")
