"""Webhooks, and the triggers that queue a delivery in the transaction that stores an end.

A session's row says what ends its test, too, so that a list of sessions parses no design.

Revision ID: d1f3b6a70c52
Revises: c7d0a61f2b94
"""

import re
from typing import Any

from alembic import op

revision = "d1f3b6a70c52"
down_revision = "c7d0a61f2b94"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE webhooks (
    id text NOT NULL,
    project_id text NOT NULL,
    created_by text,
    url text NOT NULL,
    events text[] NOT NULL,
    secret_cipher bytea NOT NULL,
    calls_private boolean NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    disabled_at timestamptz,
    CONSTRAINT pk_webhooks PRIMARY KEY (id),
    CONSTRAINT fk_webhooks_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX ix_webhooks_project_id ON webhooks (project_id, id);
CREATE TABLE webhook_deliveries (
    id text NOT NULL,
    webhook_id text NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    attempts int DEFAULT 0 NOT NULL,
    due_at timestamptz DEFAULT now(),
    delivered_at timestamptz,
    status_code int,
    error text,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id),
    CONSTRAINT fk_webhook_deliveries_webhook_id_webhooks
        FOREIGN KEY (webhook_id) REFERENCES webhooks(id) ON DELETE CASCADE
);
CREATE INDEX ix_webhook_deliveries_webhook_id ON webhook_deliveries (webhook_id, id);
CREATE INDEX ix_webhook_deliveries_due ON webhook_deliveries (webhook_id, due_at)
    WHERE due_at IS NOT NULL;
"""

#: `new_delivery_id` is `app.storage.identifiers.new_id`. What a body may hold is chosen here, field
#: by field: no sentence, for it may quote an item, an answer or an endpoint.
_FUNCTIONS = """
CREATE FUNCTION new_delivery_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT 'whd_' || string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + digit, 1), ''
        ORDER BY place)
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms) AS moment,
        LATERAL (
            SELECT place, CASE WHEN place < 10 THEN ((ms >> (5 * (9 - place))) & 31)::int
                ELSE floor(random() * 32)::int END AS digit
            FROM generate_series(0, 25) AS place
        ) AS digits
$$;
-- Webhooks are locked before they are pointed at: one that is deleted meanwhile is left out, and
-- whoever ends a session does not fail for it.
CREATE FUNCTION queue_deliveries(project text, event text, content jsonb) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO webhook_deliveries (id, webhook_id, type, data)
    SELECT new_delivery_id(), w.id, event, content FROM webhooks w
    WHERE w.project_id = project AND w.disabled_at IS NULL AND event = ANY (w.events)
    FOR KEY SHARE
$$;
CREATE FUNCTION queue_of_session() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    SELECT id, project_id, endpoint_id, ranking_id, stop_reason, failure INTO s
    FROM sessions WHERE id = NEW.session_id;
    PERFORM queue_deliveries(s.project_id, NEW.type, jsonb_build_object(
        'id', s.id,
        'endpoint_id', s.endpoint_id,
        'ranking_id', s.ranking_id,
        'stop_reason', s.stop_reason,
        'theta', NEW.data #> '{estimate,theta}',
        'se', NEW.data #> '{estimate,se}',
        'score', NEW.data #> '{accuracy,value}',
        'score_lo', NEW.data #> '{accuracy,lo}',
        'score_hi', NEW.data #> '{accuracy,hi}'));
    PERFORM queue_deliveries(g.project_id, 'gate.decided',
        jsonb_build_object('id', g.id, 'session_id', s.id))
    FROM gates g WHERE g.session_id = s.id;
    IF NEW.type = 'session.failed' AND s.failure ->> 'code' LIKE 'endpoint\\_%' AND NOT EXISTS (
        SELECT FROM webhooks w JOIN webhook_deliveries d ON d.webhook_id = w.id
        WHERE w.project_id = s.project_id AND d.type = 'endpoint.failed'
            AND d.data ->> 'id' = s.endpoint_id AND d.created_at > now() - interval '1 hour'
    ) THEN
        PERFORM queue_deliveries(s.project_id, 'endpoint.failed', jsonb_build_object(
            'id', s.endpoint_id, 'session_id', s.id, 'code', s.failure -> 'code'));
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION queue_of_ranking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_deliveries(r.project_id, NEW.type,
        jsonb_build_object('id', r.id, 'stop_reason', r.stop_reason))
    FROM rankings r WHERE r.id = NEW.ranking_id;
    RETURN NULL;
END $$;
CREATE FUNCTION queue_of_calibration() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queue_deliveries(c.project_id, NEW.type, jsonb_build_object(
        'id', c.id, 'converged', NEW.data -> 'converged', 'code', NEW.data -> 'code'))
    FROM calibrations c WHERE c.id = NEW.calibration_id;
    RETURN NULL;
END $$;
-- The lock: a session that ends just now has ended for one of the two, this or `queue_of_session`.
CREATE FUNCTION queue_of_gate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended boolean;
BEGIN
    SELECT finished_at IS NOT NULL INTO ended FROM sessions WHERE id = NEW.session_id FOR SHARE;
    IF ended THEN
        PERFORM queue_deliveries(NEW.project_id, 'gate.decided',
            jsonb_build_object('id', NEW.id, 'session_id', NEW.session_id));
    END IF;
    RETURN NULL;
END $$;
"""

_ENDED = """
CREATE TRIGGER queue_deliveries AFTER INSERT ON {kind}_events FOR EACH ROW
    WHEN (NEW.type IN ('{kind}.completed', '{kind}.failed', '{kind}.cancelled'))
    EXECUTE FUNCTION queue_of_{kind}();
"""
_KINDS = ("session", "ranking", "calibration")
_TRIGGERS = "".join(_ENDED.format(kind=kind) for kind in _KINDS) + (
    "CREATE TRIGGER queue_deliveries AFTER INSERT ON gates"
    " FOR EACH ROW EXECUTE FUNCTION queue_of_gate();"
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Straight to the driver: the scripts hold many statements, and % signs that are no parameters.
    driver: Any = op.get_bind().connection.driver_connection
    for script in (_TABLES, _FUNCTIONS, _TRIGGERS):
        driver.execute(script)
    op.execute("ALTER TABLE sessions ADD COLUMN stops_when text DEFAULT '' NOT NULL")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for function in re.findall(r"CREATE FUNCTION (\w+)", _FUNCTIONS):
        op.execute(f"DROP FUNCTION {function} CASCADE")
    op.execute("DROP TABLE webhook_deliveries, webhooks")
    op.execute("ALTER TABLE sessions DROP COLUMN stops_when")
