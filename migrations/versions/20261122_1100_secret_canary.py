"""A known text under the secret key, by which a wrong key is told.

Revision ID: b7d05e8f1c24
Revises: 9c4e17ab5d30
"""

import sqlalchemy as sa
from alembic import op

revision = "b7d05e8f1c24"
down_revision = "9c4e17ab5d30"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "secret_canary",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cipher", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secret_canary")),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("secret_canary")
