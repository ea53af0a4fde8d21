"""Sessions with fewer than five marked answers have no result.

What was answered stays, and a replay estimates it again; the numbers that go were never to be told.

Revision ID: 8c15e2b7d940
Revises: b7d05e8f1c24
"""

import sqlalchemy as sa
from alembic import op

revision = "8c15e2b7d940"
down_revision = "b7d05e8f1c24"
branch_labels = None
depends_on = None

_REASON = "Fewer than 5 answers are marked; a result is told from 5 marked answers on."

_SESSIONS = sa.text(
    """
    UPDATE sessions SET summary = summary || jsonb_build_object(
        'accuracy', NULL,
        'profile', NULL,
        'estimate', (summary -> 'estimate') || jsonb_build_object(
            'theta', NULL, 'se', NULL, 'ci', jsonb_build_array(NULL, NULL), 'ci_raw', NULL,
            'at_bound', false, 'reason', CAST(:reason AS text)
        )
    )
    WHERE summary ? 'estimate' AND CAST(summary -> 'progress' ->> 'scored' AS integer) < 5
    """
)
_RANKINGS = sa.text(
    """
    UPDATE rankings SET summary = jsonb_set(summary, '{order}', (
        SELECT jsonb_agg(
            CASE WHEN CAST(entry ->> 'scored' AS integer) >= 5 THEN entry
            ELSE entry || jsonb_build_object(
                'theta', NULL, 'se', NULL, 'group', NULL, 'rank_lo', 1,
                'rank_hi', jsonb_array_length(summary -> 'order'),
                'reason', CAST(:reason AS text)
            ) END
            ORDER BY place
        )
        FROM jsonb_array_elements(summary -> 'order') WITH ORDINALITY AS entries (entry, place)
    ))
    WHERE jsonb_array_length(summary -> 'order') > 0
    """
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for statement in (_SESSIONS, _RANKINGS):
        op.execute(statement.bindparams(reason=_REASON))


def downgrade() -> None:
    """Nothing: older code shows sessions without an estimate as they are."""
