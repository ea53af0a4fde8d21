"""Keys have limits of their own: what calls take and what is stored is counted for them, too.

Revision ID: 2c7f90e1b58d
Revises: 4b9e2d70c6a1
"""

import sqlalchemy as sa
from alembic import op

revision = "2c7f90e1b58d"
down_revision = "4b9e2d70c6a1"
branch_labels = None
depends_on = None

# A key counts in its own project alone: the lock of the project is that of all who count for it.
# Processes that do not say who calls yet go on to reserve for the project and the endpoint.
_RESERVE = """
    CREATE FUNCTION reserve_spend(
        reservation text, project text, endpoint text, most_usd float8, most_tokens bigint,
        lapse interval, used jsonb{argument}
    ) RETURNS TABLE (
        budget_of text, unit text, day date, cap float8, spent float8, reserved float8
    ) LANGUAGE plpgsql AS $$
    #variable_conflict use_column
    DECLARE
        today date;
        moment timestamptz;
    BEGIN
        PERFORM settle_spend(project, used);
        moment := clock_timestamp();
        today := (moment AT TIME ZONE 'UTC')::date;
        RETURN QUERY
            WITH owners AS (
                SELECT 'project' AS budget_of, p.id AS owner_id, p.limits FROM projects p
                WHERE p.id = project
                UNION ALL
                SELECT 'endpoint', e.id, e.limits FROM endpoints e WHERE e.id = endpoint {owner}
            ), budgets AS (
                SELECT o.budget_of, o.limits,
                    coalesce(s.usd, 0) + h.usd_lost AS usd_spent, h.usd,
                    coalesce(s.tokens, 0) + h.tokens_lost AS tokens_spent, h.tokens
                FROM owners o LEFT JOIN spend s ON s.owner_id = o.owner_id AND s.day = today
                CROSS JOIN LATERAL held_spend(o.owner_id, today, moment) h
            ), caps AS (
                SELECT b.budget_of, 'usd' AS unit, (b.limits ->> 'usd_per_day')::float8 AS cap,
                    b.usd_spent AS spent, b.usd AS reserved, most_usd AS most
                FROM budgets b
                UNION ALL
                SELECT b.budget_of, 'tokens', (b.limits ->> 'tokens_per_day')::float8,
                    b.tokens_spent, b.tokens::float8, most_tokens
                FROM budgets b
            )
            SELECT c.budget_of, c.unit, today, c.cap, c.spent, c.reserved FROM caps c
            WHERE c.cap IS NOT NULL
                AND (c.most IS NULL OR c.spent + c.reserved + c.most > c.cap * (1 + 1e-12))
            ORDER BY c.most IS NULL DESC, c.cap - c.spent - c.most, c.budget_of LIMIT 1;
        IF NOT FOUND THEN
            INSERT INTO reservations (
                id, project_id, endpoint_id, day, usd, tokens, lapses_at {column}
            ) VALUES (
                reservation, project, endpoint, today, coalesce(most_usd, 0),
                coalesce(most_tokens, 0), moment + lapse {value}
            ) ON CONFLICT DO NOTHING;
        END IF;
    END $$
"""
_BY_KEY = {
    "argument": ", calling_key text DEFAULT NULL",
    "owner": """
                UNION ALL
                SELECT 'key', k.id, k.limits FROM api_keys k
                WHERE k.id = calling_key AND k.project_id = project""",
    "column": ", key_id",
    "value": """,
                (SELECT k.id FROM api_keys k WHERE k.id = calling_key AND k.project_id = project)
            """,
}
_HELD = """
    CREATE OR REPLACE FUNCTION held_spend(owner text, of_day date, moment timestamptz)
    RETURNS TABLE (usd float8, usd_lost float8, tokens bigint, tokens_lost bigint)
    LANGUAGE sql STABLE AS $$
        SELECT coalesce(sum(r.usd) FILTER (WHERE r.lapses_at > moment), 0),
            coalesce(sum(r.usd) FILTER (WHERE r.lapses_at <= moment), 0),
            coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at > moment), 0)::bigint,
            coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at <= moment), 0)::bigint
        FROM reservations r
        WHERE (r.project_id = owner OR r.endpoint_id = owner {owner}) AND r.day = of_day
    $$
"""
_SETTLE = """
    CREATE OR REPLACE FUNCTION settle_spend(project text, used jsonb) RETURNS void
    LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(project, 0));
        WITH gone AS (
            DELETE FROM reservations r
            USING jsonb_to_recordset(used) AS u (id text, usd float8, tokens bigint)
            WHERE r.id = u.id
            RETURNING r.project_id, r.endpoint_id, r.day {column},
                coalesce(u.usd, r.usd) AS usd, coalesce(u.tokens, r.tokens) AS tokens
        ), shares AS (
            SELECT project_id AS owner_id, day, usd, tokens FROM gone
            UNION ALL SELECT endpoint_id, day, usd, tokens FROM gone
            {share}
        )
        INSERT INTO spend AS s (owner_id, day, usd, tokens)
        SELECT owner_id, day, sum(usd), sum(tokens) FROM shares GROUP BY owner_id, day
        ON CONFLICT (owner_id, day) DO UPDATE
            SET usd = s.usd + excluded.usd, tokens = s.tokens + excluded.tokens;
    END $$
"""
_SHARE = "UNION ALL SELECT key_id, day, usd, tokens FROM gone WHERE key_id IS NOT NULL"

_COUNT_SESSION = """
    CREATE OR REPLACE FUNCTION count_session() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, {by} bytes)
        SELECT NEW.id, NEW.project_id, {session_by} coalesce(sum(
            coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
        ), 0) + (SELECT coalesce(sum(pg_column_size(k.answer)), 0) FROM kept_answers k
            WHERE k.session_id = NEW.id)
        FROM administrations a WHERE a.session_id = NEW.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = excluded.bytes;
        RETURN NULL;
    END $$
"""
_COUNT = """
    CREATE OR REPLACE FUNCTION count_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, {by} bytes)
        SELECT o.id, o.project_id, {owner_by} sum({size})
        FROM came c JOIN {table} t USING ({key}) JOIN {owners} o ON o.id = t.{owner}
        GROUP BY o.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = s.bytes + excluded.bytes;
        RETURN NULL;
    END $$
"""
_SHEET = (
    "pg_column_size(t.examinee) + pg_column_size(t.codes)"
    " + coalesce(pg_column_size(t.fractions), 0)"
)
_COUNTED = (
    ("items", "id", "bank_id", "banks", "pg_column_size(t.content)"),
    ("answer_sheets", "set_id, examinee, trial", "set_id", "response_sets", _SHEET),
)
_MAKERS = """
    UPDATE stored_bytes b SET created_by = o.created_by
    FROM {owners} o WHERE o.id = b.resource_id AND o.created_by IS NOT NULL
"""
_DROP_RESERVE = "DROP FUNCTION reserve_spend(text, text, text, float8, bigint, interval, jsonb{})"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "api_keys",
        sa.Column("limits", sa.dialects.postgresql.JSONB(), server_default="{}", nullable=False),
    )
    op.add_column("reservations", sa.Column("key_id", sa.Text()))
    op.create_index(op.f("ix_reservations_key_id"), "reservations", ["key_id"])
    op.execute(_SETTLE.format(column=", r.key_id", share=_SHARE))
    op.execute(_HELD.format(owner="OR r.key_id = owner"))
    op.execute(_DROP_RESERVE.format(""))
    op.execute(_RESERVE.format(**_BY_KEY))
    op.add_column("stored_bytes", sa.Column("created_by", sa.Text()))
    _count({"by": "created_by,", "session_by": "NEW.created_by,", "owner_by": "o.created_by,"})
    # Since the column came nobody else counts: what is there is named before they go on.
    for owners in ("sessions", "banks", "response_sets"):
        op.execute(_MAKERS.format(owners=owners))
    _index("project_id", "created_by")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    _count({"by": "", "session_by": "", "owner_by": ""})
    _index("project_id")
    op.drop_column("stored_bytes", "created_by")
    op.execute(_DROP_RESERVE.format(", text"))
    op.execute(_RESERVE.format(**dict.fromkeys(_BY_KEY, "")))
    op.execute(_HELD.format(owner=""))
    op.execute(_SETTLE.format(column="", share=""))
    op.drop_column("reservations", "key_id")
    op.drop_column("api_keys", "limits")


def _count(makers: dict[str, str]) -> None:
    op.execute(_COUNT_SESSION.format(**makers))
    for table, key, owner, owners, size in _COUNTED:
        names = {"table": table, "key": key, "owner": owner, "owners": owners, "size": size}
        op.execute(_COUNT.format(**names, **makers))


def _index(*columns: str) -> None:
    op.drop_index("ix_stored_bytes_sum", "stored_bytes")
    op.create_index(
        "ix_stored_bytes_sum", "stored_bytes", list(columns), postgresql_include=["bytes"]
    )
