"""Who answers by hand may have the name of an endpoint: their names are told apart.

Revision ID: 91c4f2be7d08
Revises: 5e83b0d94a17
"""

from alembic import op

revision = "91c4f2be7d08"
down_revision = "5e83b0d94a17"
branch_labels = None
depends_on = None

_INDEX = """
CREATE UNIQUE INDEX uq_endpoints_name_live ON endpoints ({})
    WHERE name IS NOT NULL AND archived_at IS NULL
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP INDEX uq_endpoints_name_live")
    op.execute(_INDEX.format("project_id, name, (kind = 'self_reported')"))


def downgrade() -> None:
    """Back; who answers by hand loses the name, for an endpoint may have it."""
    op.execute("UPDATE endpoints SET name = NULL WHERE kind = 'self_reported'")
    op.execute("DROP INDEX uq_endpoints_name_live")
    op.execute(_INDEX.format("project_id, name"))
