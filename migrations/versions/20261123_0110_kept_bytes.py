"""Answers that are kept for repeated calls count as what their session stores.

Revision ID: 5b8e0d41c9a6
Revises: d1b6f3927ae4
"""

from alembic import op

revision = "5b8e0d41c9a6"
down_revision = "d1b6f3927ae4"
branch_labels = None
depends_on = None

_COUNT = """
    CREATE OR REPLACE FUNCTION count_session() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, bytes)
        SELECT NEW.id, NEW.project_id, coalesce(sum(
            coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
        ), 0) {kept}
        FROM administrations a WHERE a.session_id = NEW.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = excluded.bytes;
        RETURN NULL;
    END $$
"""
_KEPT = """
    + (SELECT coalesce(sum(pg_column_size(k.answer)), 0) FROM kept_answers k
        WHERE k.session_id = NEW.id)
"""
_GONE = """
    CREATE FUNCTION count_gone_kept_answers() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE stored_bytes s SET bytes = s.bytes - d.less FROM (
            SELECT w.session_id AS id, sum(pg_column_size(w.answer)) AS less FROM went w GROUP BY 1
        ) AS d WHERE d.id = s.resource_id;
        RETURN NULL;
    END $$
"""
_TRIGGER = (
    "CREATE TRIGGER count_gone AFTER DELETE ON kept_answers REFERENCING OLD TABLE AS went "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_gone_kept_answers()"
)
_PRESENT = """
    UPDATE stored_bytes s SET bytes = s.bytes {sign} found.bytes FROM (
        SELECT session_id AS id, sum(pg_column_size(answer)) AS bytes FROM kept_answers GROUP BY 1
    ) AS found WHERE found.id = s.resource_id
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # The trigger keeps others from deleting until what is there is counted.
    for statement in (_GONE, _TRIGGER, _PRESENT.format(sign="+"), _COUNT.format(kept=_KEPT)):
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TRIGGER count_gone ON kept_answers")
    op.execute("DROP FUNCTION count_gone_kept_answers()")
    op.execute(_PRESENT.format(sign="-"))
    op.execute(_COUNT.format(kept=""))
