"""What is stored is counted when it is asked for: no triggers count it as it comes and goes.

Revision ID: a3c51e7f90d4
Revises: 7d4a19c8e2f6
"""

from alembic import op

revision = "a3c51e7f90d4"
down_revision = "7d4a19c8e2f6"
branch_labels = None
depends_on = None

_COUNTING = (
    *("count_answer_sheets", "count_edited_answer_sheets", "count_gone_answer_sheets"),
    *("count_items", "count_edited_items", "count_gone_items"),
    *("count_session", "count_gone_kept_answers", "forget_bytes"),
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Databases whose tables were made by the migration before this one have none of it.
    for function in _COUNTING:
        op.execute(f"DROP FUNCTION IF EXISTS {function}() CASCADE")
    op.execute("DROP TABLE IF EXISTS stored_bytes")


def downgrade() -> None:
    """The tables of before are there, as they are made now."""
