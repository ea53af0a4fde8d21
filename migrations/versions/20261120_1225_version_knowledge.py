"""What was learned about a bank version beyond its items' parameters.

Revision ID: 3f9a6c1d7e52
Revises: 3b7de0a1c524
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "3f9a6c1d7e52"
down_revision = "3b7de0a1c524"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "bank_versions",
        sa.Column(
            "knowledge",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("bank_versions", "knowledge")
