"""What a call held of which nobody ever heard counts as spent for good: it may have been paid.

Revision ID: 8c2d5e60b7f3
Revises: 3f7c1e08b9d5
"""

from alembic import op

revision = "8c2d5e60b7f3"
down_revision = "3f7c1e08b9d5"
branch_labels = None
depends_on = None

# Its row stays for a day, so that who was only halted can still say what the call took.
_RESERVE = """
    CREATE OR REPLACE FUNCTION reserve_spend(
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
            WITH owners AS (
                SELECT 'project' AS budget_of, p.id AS owner_id, p.limits FROM projects p
                WHERE p.id = project
                UNION ALL
                SELECT 'endpoint', e.id, e.limits FROM endpoints e WHERE e.id = endpoint
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
                id, project_id, endpoint_id, day, usd, tokens, lapses_at
            ) VALUES (
                reservation, project, endpoint, today, coalesce(most_usd, 0),
                coalesce(most_tokens, 0), moment + lapse
            ) ON CONFLICT DO NOTHING;
        END IF;
    END $$
"""
_HELD = """
    CREATE FUNCTION held_spend(owner text, of_day date, moment timestamptz) RETURNS TABLE (
        usd float8, usd_lost float8, tokens bigint, tokens_lost bigint
    ) LANGUAGE sql STABLE AS $$
        SELECT coalesce(sum(r.usd) FILTER (WHERE r.lapses_at > moment), 0),
            coalesce(sum(r.usd) FILTER (WHERE r.lapses_at <= moment), 0),
            coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at > moment), 0)::bigint,
            coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at <= moment), 0)::bigint
        FROM reservations r
        WHERE (r.project_id = owner OR r.endpoint_id = owner) AND r.day = of_day
    $$
"""
_FORMER = """
    CREATE OR REPLACE FUNCTION reserve_spend(
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
    op.execute(_HELD)
    op.execute(_RESERVE)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(_FORMER)
    op.execute("DROP FUNCTION held_spend(text, date, timestamptz)")
