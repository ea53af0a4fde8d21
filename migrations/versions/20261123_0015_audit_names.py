"""An index by which the trail of one resource is looked up.

Revision ID: 3f7c1e08b9d5
Revises: 4f7a1e9c25d8
"""

import sqlalchemy as sa
from alembic import op

revision = "3f7c1e08b9d5"
down_revision = "4f7a1e9c25d8"
branch_labels = None
depends_on = None

# `/v1/sessions/ses_1:cancel` names `ses_1:cancel` and `ses_1`, and itself. Nobody can ask for
# longer ones, and an index takes none of more than 2.7 kB: their rows could not be written.
_NAMES = """
    CREATE FUNCTION audit_names(resources text[], path text) RETURNS text[]
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
    # Not concurrently: other processes that start wait in a transaction for the migrations' lock,
    # and would be waited for. A million entries take about twenty seconds.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_NAMES)
    op.create_index(
        "ix_audit_names", "audit", [sa.text("audit_names(resources, path)")], postgresql_using="gin"
    )
    # By the expression's own statistics Postgres knows the names that are in every other path.
    op.execute("ANALYZE audit")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_audit_names", table_name="audit")
    op.execute("DROP FUNCTION audit_names(text[], text)")
