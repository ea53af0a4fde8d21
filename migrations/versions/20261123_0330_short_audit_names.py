"""The index of the trail leaves out names that are too long for it, and the change is carried out.

Revision ID: 6d0c94f1be27
Revises: 5b8e0d41c9a6
"""

from alembic import op

revision = "6d0c94f1be27"
down_revision = "5b8e0d41c9a6"
branch_labels = None
depends_on = None

# As in the revision that made it, where it has come since. What the index holds of longer names is
# never asked for.
_NAMES = """
    CREATE OR REPLACE FUNCTION audit_names(resources text[], path text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT ARRAY(
            SELECT DISTINCT name FROM unnest(
                resources || path || string_to_array(path, '/')
                    || string_to_array(translate(path, ':', '/'), '/')
            ) AS name WHERE length(name) <= 200
        )
    $$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NAMES)


def downgrade() -> None:
    pass
