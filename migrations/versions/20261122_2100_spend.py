"""What is spent a day, and what calls under way may still take.

Revision ID: 5e0c83a6f1d4
Revises: e91b6c40d7f3
"""

import sqlalchemy as sa
from alembic import op

revision = "5e0c83a6f1d4"
down_revision = "e91b6c40d7f3"
branch_labels = None
depends_on = None

# Each statement of a volatile function sees what was committed before it: after the lock that is
# all that others of the project have reserved and settled.
_SETTLE = """
    CREATE FUNCTION settle_spend(project text, used jsonb) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(project, 0));
        WITH gone AS (
            DELETE FROM reservations r
            USING jsonb_to_recordset(used) AS u (id text, usd float8, tokens bigint)
            WHERE r.id = u.id
            RETURNING r.project_id, r.endpoint_id, r.day,
                coalesce(u.usd, r.usd) AS usd, coalesce(u.tokens, r.tokens) AS tokens
        ), shares AS (
            SELECT project_id AS owner_id, day, usd, tokens FROM gone
            UNION ALL SELECT endpoint_id, day, usd, tokens FROM gone
        )
        INSERT INTO spend AS s (owner_id, day, usd, tokens)
        SELECT owner_id, day, sum(usd), sum(tokens) FROM shares GROUP BY owner_id, day
        ON CONFLICT (owner_id, day) DO UPDATE
            SET usd = s.usd + excluded.usd, tokens = s.tokens + excluded.tokens;
    END $$
"""
_RESERVE = """
    CREATE FUNCTION reserve_spend(
        reservation text, project text, endpoint text, most_usd float8, most_tokens bigint,
        lapse interval, used jsonb
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
            WITH budgets AS (
                SELECT 'project' AS budget_of, p.id AS owner_id, p.limits,
                    (SELECT sum(r.usd) FROM reservations r WHERE r.project_id = p.id
                        AND r.day = today AND r.lapses_at > moment) AS usd,
                    (SELECT sum(r.tokens) FROM reservations r WHERE r.project_id = p.id
                        AND r.day = today AND r.lapses_at > moment) AS tokens
                FROM projects p WHERE p.id = project
                UNION ALL
                SELECT 'endpoint', e.id, e.limits,
                    (SELECT sum(r.usd) FROM reservations r WHERE r.endpoint_id = e.id
                        AND r.day = today AND r.lapses_at > moment),
                    (SELECT sum(r.tokens) FROM reservations r WHERE r.endpoint_id = e.id
                        AND r.day = today AND r.lapses_at > moment)
                FROM endpoints e WHERE e.id = endpoint
            ), caps AS (
                SELECT b.budget_of, 'usd' AS unit, (b.limits ->> 'usd_per_day')::float8 AS cap,
                    coalesce(s.usd, 0) AS spent, coalesce(b.usd, 0) AS reserved, most_usd AS most
                FROM budgets b LEFT JOIN spend s ON s.owner_id = b.owner_id AND s.day = today
                UNION ALL
                SELECT b.budget_of, 'tokens', (b.limits ->> 'tokens_per_day')::float8,
                    coalesce(s.tokens, 0), coalesce(b.tokens, 0)::float8, most_tokens
                FROM budgets b LEFT JOIN spend s ON s.owner_id = b.owner_id AND s.day = today
            )
            SELECT c.budget_of, c.unit, today, c.cap, c.spent, c.reserved FROM caps c
            WHERE c.cap IS NOT NULL
                AND (c.most IS NULL OR c.spent + c.reserved + c.most > c.cap * (1 + 1e-12))
            ORDER BY c.most IS NULL DESC, c.cap - c.spent - c.most, c.budget_of LIMIT 1;
        IF NOT FOUND THEN
            INSERT INTO reservations (
                id, project_id, endpoint_id, day, usd, tokens, lapses_at
            ) VALUES (
                reservation, project, endpoint, today, coalesce(most_usd, 0),
                coalesce(most_tokens, 0), moment + lapse
            ) ON CONFLICT DO NOTHING;
        END IF;
    END $$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "spend",
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner_id", "day", name=op.f("pk_spend")),
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("lapses_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_project_id"), "reservations", ["project_id"])
    op.create_index(op.f("ix_reservations_endpoint_id"), "reservations", ["endpoint_id"])
    op.execute(_SETTLE)
    op.execute(_RESERVE)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP FUNCTION reserve_spend(text, text, text, float8, bigint, interval, jsonb)")
    op.execute("DROP FUNCTION settle_spend(text, jsonb)")
    op.drop_table("reservations")
    op.drop_table("spend")
