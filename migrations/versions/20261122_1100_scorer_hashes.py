"""The hash of the scorer that marked, with every answer.

Revision ID: 9c4e17ab5d30
Revises: 4f7a1c93d2e8
"""

import sqlalchemy as sa
from alembic import op

revision = "9c4e17ab5d30"
down_revision = "4f7a1c93d2e8"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("administrations", sa.Column("scorer_hash", sa.Text(), nullable=True))
    # Of scorers that call out it was kept before; of the others nobody can tell any more.
    op.execute(
        "UPDATE administrations SET scorer_hash = marking ->> 'spec_hash' WHERE marking IS NOT NULL"
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("administrations", "scorer_hash")
