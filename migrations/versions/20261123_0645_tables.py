"""All tables, and the schema of the queue.

Revision ID: d1f3b6a70c52
Revises:
"""

import re
from pathlib import Path
from typing import Any

from alembic import op
from procrastinate.schema import SchemaManager

revision = "d1f3b6a70c52"
down_revision = None
branch_labels = None
depends_on = None

# The queue's own migrations are applied up to here, not its newest whole schema: a later version
# of the queue then needs one migration more here, for old and new databases alike.
_LAST_OF_QUEUE = "03.04.00_50"
#: The project that is there from the beginning.
_DEFAULT = "INSERT INTO projects (id, name) VALUES ('prj_00000000000000000000000000', 'default')"

#: Names under which an entry of the audit trail is looked up.
_AUDIT_NAMES = """
CREATE FUNCTION audit_names(resources text[], path text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ARRAY(
    SELECT DISTINCT name FROM unnest(
        resources || path || string_to_array(path, '/')
            || string_to_array(translate(path, ':', '/'), '/')
    ) AS name WHERE length(name) <= 200
)
$$;
"""
_TABLES = """
CREATE TABLE audit (
    id text NOT NULL,
    at timestamptz DEFAULT now() NOT NULL,
    project_id text,
    key_id text,
    action text NOT NULL,
    path text NOT NULL,
    resources text[] DEFAULT '{}' NOT NULL,
    request_id text,
    address text NOT NULL,
    CONSTRAINT pk_audit PRIMARY KEY (id)
);
CREATE INDEX ix_audit_action_id ON audit (action, id);
CREATE INDEX ix_audit_key_id_id ON audit (key_id, id);
CREATE INDEX ix_audit_names ON audit USING gin (audit_names(resources, path));
CREATE INDEX ix_audit_project_id_id ON audit (project_id, id);
CREATE TABLE idempotency_keys (
    principal text NOT NULL,
    key text NOT NULL,
    request_hash text NOT NULL,
    response_status int,
    response_headers jsonb,
    response_body bytea,
    created_at timestamptz DEFAULT now() NOT NULL,
    audit_id text,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (principal, key)
);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE TABLE projects (
    id text NOT NULL,
    name text NOT NULL,
    description text DEFAULT '' NOT NULL,
    limits jsonb DEFAULT '{}' NOT NULL,
    retention jsonb DEFAULT '{}' NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    updated_at timestamptz DEFAULT now() NOT NULL,
    created_by text,
    CONSTRAINT pk_projects PRIMARY KEY (id),
    CONSTRAINT uq_projects_name UNIQUE (name)
);
CREATE TABLE api_keys (
    id text NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    secret_hash text NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    project_id text,
    created_by text,
    last_used_at timestamptz,
    limits jsonb DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT uq_api_keys_secret_hash UNIQUE (secret_hash),
    CONSTRAINT fk_api_keys_project_id_projects
        FOREIGN KEY (project_id) REFERENCES projects(id) ON DELETE CASCADE
);
CREATE INDEX ix_api_keys_project_id ON api_keys (project_id);
CREATE TABLE banks (
    id text NOT NULL,
    name text NOT NULL,
    description text DEFAULT '' NOT NULL,
    licence text,
    source text,
    visibility text DEFAULT 'open' NOT NULL,
    default_scorer jsonb NOT NULL,
    prompt jsonb DEFAULT '{}' NOT NULL,
    unparsed_policy text DEFAULT 'missing' NOT NULL,
    metadata jsonb DEFAULT '{}' NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    updated_at timestamptz DEFAULT now() NOT NULL,
    archived_at timestamptz,
    pretest_items int DEFAULT 0 NOT NULL,
    project_id text NOT NULL,
    created_by text,
    shared boolean DEFAULT false NOT NULL,
    CONSTRAINT pk_banks PRIMARY KEY (id),
    CONSTRAINT fk_banks_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX ix_banks_shared ON banks (shared) WHERE shared;
CREATE UNIQUE INDEX uq_banks_name_live ON banks (project_id, name) WHERE archived_at IS NULL;
CREATE TABLE bank_versions (
    id text NOT NULL,
    bank_id text NOT NULL,
    number int NOT NULL,
    response_model text NOT NULL,
    scale text NOT NULL,
    parameters_hash text NOT NULL,
    provisional boolean NOT NULL,
    notes text DEFAULT '' NOT NULL,
    lint jsonb DEFAULT '{}' NOT NULL,
    extras jsonb DEFAULT '{}' NOT NULL,
    n_items int NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    knowledge jsonb DEFAULT '{}' NOT NULL,
    created_by text,
    CONSTRAINT pk_bank_versions PRIMARY KEY (id),
    CONSTRAINT uq_bank_versions_bank_id_number UNIQUE (bank_id, number),
    CONSTRAINT fk_bank_versions_bank_id_banks
        FOREIGN KEY (bank_id) REFERENCES banks(id) ON DELETE CASCADE
);
CREATE TABLE endpoints (
    id text NOT NULL,
    name text,
    kind text NOT NULL,
    base_url text NOT NULL,
    model text NOT NULL,
    api_key_cipher bytea,
    headers_cipher bytea,
    header_names text[] DEFAULT '{}' NOT NULL,
    sampling jsonb DEFAULT '{}' NOT NULL,
    reasoning jsonb DEFAULT '{}' NOT NULL,
    limits jsonb DEFAULT '{}' NOT NULL,
    price jsonb DEFAULT '{}' NOT NULL,
    retry jsonb DEFAULT '{}' NOT NULL,
    options jsonb DEFAULT '{}' NOT NULL,
    timeout_s float8 NOT NULL,
    metadata jsonb DEFAULT '{}' NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    updated_at timestamptz DEFAULT now() NOT NULL,
    archived_at timestamptz,
    next_request_at timestamptz,
    next_token_at timestamptz,
    project_id text NOT NULL,
    created_by text,
    CONSTRAINT pk_endpoints PRIMARY KEY (id),
    CONSTRAINT fk_endpoints_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE UNIQUE INDEX uq_endpoints_name_live
    ON endpoints (project_id, name, (kind = 'self_reported'))
    WHERE name IS NOT NULL AND archived_at IS NULL;
CREATE TABLE installations (
    id text NOT NULL,
    entry text NOT NULL,
    status text NOT NULL,
    lease_epoch int DEFAULT 0 NOT NULL,
    lapses int DEFAULT 0 NOT NULL,
    lease_expires_at timestamptz,
    worker_id text,
    progress jsonb DEFAULT '{}' NOT NULL,
    result jsonb,
    failure jsonb,
    created_at timestamptz DEFAULT now() NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    project_id text NOT NULL,
    created_by text,
    request_id text,
    CONSTRAINT ck_installations_ck_installations_status
        CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT pk_installations PRIMARY KEY (id),
    CONSTRAINT fk_installations_project_id_projects
        FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX ix_installations_project_id ON installations (project_id, id);
CREATE INDEX ix_installations_status_lease_expires_at ON installations (status, lease_expires_at);
CREATE TABLE items (
    id text NOT NULL,
    bank_id text NOT NULL,
    key text NOT NULL,
    content jsonb NOT NULL,
    scorer jsonb,
    tags text[] DEFAULT '{}' NOT NULL,
    group_key text,
    expected_tokens_in int,
    expected_tokens_out int,
    content_hash text NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    pretest_sessions int DEFAULT 0 NOT NULL,
    created_by text,
    CONSTRAINT pk_items PRIMARY KEY (id),
    CONSTRAINT uq_items_bank_id_key UNIQUE (bank_id, key),
    CONSTRAINT fk_items_bank_id_banks FOREIGN KEY (bank_id) REFERENCES banks(id) ON DELETE CASCADE
);
CREATE INDEX ix_items_bank_id_content_hash ON items (bank_id, content_hash);
CREATE TABLE logins (
    token_hash text NOT NULL,
    key_id text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT pk_logins PRIMARY KEY (token_hash),
    CONSTRAINT fk_logins_key_id_api_keys
        FOREIGN KEY (key_id) REFERENCES api_keys(id) ON DELETE CASCADE
);
CREATE INDEX ix_logins_key_id ON logins (key_id);
CREATE TABLE rankings (
    id text NOT NULL,
    bank_version_id text NOT NULL,
    settings jsonb NOT NULL,
    seed bigint NOT NULL,
    metadata jsonb DEFAULT '{}' NOT NULL,
    status text NOT NULL,
    lease_epoch int DEFAULT 0 NOT NULL,
    lease_expires_at timestamptz,
    worker_id text,
    summary jsonb DEFAULT '{}' NOT NULL,
    stop_reason text,
    stop_detail text,
    failure jsonb,
    event_seq int DEFAULT 0 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    lapses int DEFAULT 0 NOT NULL,
    project_id text NOT NULL,
    created_by text,
    request_id text,
    CONSTRAINT ck_rankings_status
        CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT pk_rankings PRIMARY KEY (id),
    CONSTRAINT fk_rankings_bank_version_id_bank_versions
        FOREIGN KEY (bank_version_id) REFERENCES bank_versions(id),
    CONSTRAINT fk_rankings_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX ix_rankings_bank_version_id ON rankings (bank_version_id);
CREATE INDEX ix_rankings_project_id ON rankings (project_id, id);
CREATE INDEX ix_rankings_status_lease_expires_at ON rankings (status, lease_expires_at);
CREATE TABLE ranking_events (
    ranking_id text NOT NULL,
    seq int NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_ranking_events PRIMARY KEY (ranking_id, seq),
    CONSTRAINT fk_ranking_events_ranking_id_rankings
        FOREIGN KEY (ranking_id) REFERENCES rankings(id) ON DELETE CASCADE
);
CREATE TABLE reservations (
    id text NOT NULL,
    project_id text NOT NULL,
    endpoint_id text NOT NULL,
    day date NOT NULL,
    usd float8 NOT NULL,
    tokens bigint NOT NULL,
    lapses_at timestamptz NOT NULL,
    key_id text,
    CONSTRAINT pk_reservations PRIMARY KEY (id)
);
CREATE INDEX ix_reservations_endpoint_id ON reservations (endpoint_id);
CREATE INDEX ix_reservations_key_id ON reservations (key_id);
CREATE INDEX ix_reservations_project_id ON reservations (project_id);
CREATE TABLE response_sets (
    id text NOT NULL,
    name text NOT NULL,
    description text DEFAULT '' NOT NULL,
    metadata jsonb DEFAULT '{}' NOT NULL,
    n_examinees int DEFAULT 0 NOT NULL,
    n_items int DEFAULT 0 NOT NULL,
    n_sheets int DEFAULT 0 NOT NULL,
    outcomes jsonb DEFAULT '{}' NOT NULL,
    imports jsonb DEFAULT '[]' NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    updated_at timestamptz DEFAULT now() NOT NULL,
    project_id text NOT NULL,
    created_by text,
    CONSTRAINT pk_response_sets PRIMARY KEY (id),
    CONSTRAINT uq_response_sets_name UNIQUE (project_id, name),
    CONSTRAINT fk_response_sets_project_id_projects
        FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE TABLE answer_sheets (
    set_id text NOT NULL,
    examinee text NOT NULL,
    trial int NOT NULL,
    position int NOT NULL,
    codes bytea NOT NULL,
    fractions bytea,
    CONSTRAINT pk_answer_sheets PRIMARY KEY (set_id, examinee, trial),
    CONSTRAINT fk_answer_sheets_set_id_response_sets
        FOREIGN KEY (set_id) REFERENCES response_sets(id) ON DELETE CASCADE
);
CREATE TABLE calibrations (
    id text NOT NULL,
    response_set_id text NOT NULL,
    bank_id text,
    bank_version_id text,
    settings jsonb NOT NULL,
    status text NOT NULL,
    lease_epoch int DEFAULT 0 NOT NULL,
    lease_expires_at timestamptz,
    worker_id text,
    progress jsonb DEFAULT '{}' NOT NULL,
    result jsonb,
    item_keys text[],
    item_values bytea,
    failure jsonb,
    created_at timestamptz DEFAULT now() NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    item_columns text[],
    parent_id text,
    part int,
    n_parts int,
    event_seq int DEFAULT 0 NOT NULL,
    examinee_names text[],
    examinee_values bytea,
    lapses int DEFAULT 0 NOT NULL,
    project_id text NOT NULL,
    created_by text,
    publication jsonb,
    publication_failure jsonb,
    request_id text,
    CONSTRAINT ck_calibrations_status
        CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT pk_calibrations PRIMARY KEY (id),
    CONSTRAINT fk_calibrations_bank_id_banks FOREIGN KEY (bank_id) REFERENCES banks(id),
    CONSTRAINT fk_calibrations_bank_version_id_bank_versions
        FOREIGN KEY (bank_version_id) REFERENCES bank_versions(id),
    CONSTRAINT fk_calibrations_parent_id_calibrations
        FOREIGN KEY (parent_id) REFERENCES calibrations(id) ON DELETE CASCADE,
    CONSTRAINT fk_calibrations_project_id_projects
        FOREIGN KEY (project_id) REFERENCES projects(id),
    CONSTRAINT fk_calibrations_response_set_id_response_sets
        FOREIGN KEY (response_set_id) REFERENCES response_sets(id)
);
CREATE INDEX ix_calibrations_bank_id ON calibrations (bank_id);
CREATE INDEX ix_calibrations_bank_version_id ON calibrations (bank_version_id);
CREATE INDEX ix_calibrations_parent_id ON calibrations (parent_id);
CREATE INDEX ix_calibrations_project_id ON calibrations (project_id, id);
CREATE INDEX ix_calibrations_response_set_id ON calibrations (response_set_id);
CREATE INDEX ix_calibrations_status_lease_expires_at ON calibrations (status, lease_expires_at);
CREATE TABLE calibration_events (
    calibration_id text NOT NULL,
    seq int NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_calibration_events PRIMARY KEY (calibration_id, seq),
    CONSTRAINT fk_calibration_events_calibration_id_calibrations
        FOREIGN KEY (calibration_id) REFERENCES calibrations(id) ON DELETE CASCADE
);
CREATE TABLE response_items (
    set_id text NOT NULL,
    position int NOT NULL,
    key text NOT NULL,
    CONSTRAINT pk_response_items PRIMARY KEY (set_id, position),
    CONSTRAINT uq_response_items_set_id_key UNIQUE (set_id, key),
    CONSTRAINT fk_response_items_set_id_response_sets
        FOREIGN KEY (set_id) REFERENCES response_sets(id) ON DELETE CASCADE
);
CREATE TABLE secret_canary (
    id int NOT NULL,
    cipher bytea NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_secret_canary PRIMARY KEY (id)
);
CREATE TABLE sessions (
    id text NOT NULL,
    mode text NOT NULL,
    status text NOT NULL,
    endpoint_id text,
    bank_version_id text NOT NULL,
    design jsonb NOT NULL,
    seed bigint NOT NULL,
    parent_id text,
    relation text,
    metadata jsonb DEFAULT '{}' NOT NULL,
    provenance jsonb DEFAULT '{}' NOT NULL,
    lease_epoch int DEFAULT 0 NOT NULL,
    lease_expires_at timestamptz,
    worker_id text,
    waiting_until timestamptz,
    waiting_reason text,
    summary jsonb DEFAULT '{}' NOT NULL,
    stop_reason text,
    stop_detail text,
    precision_reached boolean,
    failure jsonb,
    arrivals int DEFAULT 0 NOT NULL,
    event_seq int DEFAULT 0 NOT NULL,
    active_s float8 DEFAULT 0 NOT NULL,
    revision int DEFAULT 1 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    ranking_id text,
    ranking_member int,
    lapses int DEFAULT 0 NOT NULL,
    project_id text NOT NULL,
    created_by text,
    request_id text,
    stops_when text DEFAULT '' NOT NULL,
    CONSTRAINT ck_sessions_status
        CHECK (status IN ('queued', 'running', 'waiting', 'paused', 'awaiting_response',
            'completed', 'failed', 'cancelled')),
    CONSTRAINT pk_sessions PRIMARY KEY (id),
    CONSTRAINT fk_sessions_bank_version_id_bank_versions
        FOREIGN KEY (bank_version_id) REFERENCES bank_versions(id),
    CONSTRAINT fk_sessions_endpoint_id_endpoints
        FOREIGN KEY (endpoint_id) REFERENCES endpoints(id),
    CONSTRAINT fk_sessions_parent_id_sessions FOREIGN KEY (parent_id) REFERENCES sessions(id),
    CONSTRAINT fk_sessions_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id),
    CONSTRAINT fk_sessions_ranking_id_rankings FOREIGN KEY (ranking_id) REFERENCES rankings(id)
);
CREATE INDEX ix_sessions_bank_version_id ON sessions (bank_version_id);
CREATE INDEX ix_sessions_created_at_id ON sessions (created_at, id);
CREATE INDEX ix_sessions_endpoint_id ON sessions (endpoint_id);
CREATE INDEX ix_sessions_open ON sessions (project_id, created_by, id)
    WHERE finished_at IS NULL;
CREATE INDEX ix_sessions_parent_id ON sessions (parent_id);
CREATE INDEX ix_sessions_project_id ON sessions (project_id, id);
CREATE INDEX ix_sessions_ranking_id ON sessions (ranking_id);
CREATE INDEX ix_sessions_results ON sessions (bank_version_id, endpoint_id, finished_at DESC)
    WHERE status = 'completed' AND endpoint_id IS NOT NULL
        AND (relation IS NULL OR relation = 'extend');
CREATE INDEX ix_sessions_status_lease_expires_at ON sessions (status, lease_expires_at);
CREATE TABLE administrations (
    session_id text NOT NULL,
    step int NOT NULL,
    position int NOT NULL,
    step_token text,
    asked_at timestamptz DEFAULT now() NOT NULL,
    information float8,
    arrival int,
    outcome text,
    score float8,
    extracted text,
    extractor text,
    reason text,
    error_code text,
    answer_text text,
    raw_text text,
    reasoning text,
    finish_reason text,
    tokens_in int,
    tokens_out int,
    usd float8,
    latency_ms float8,
    attempts int,
    theta float8,
    se float8,
    answered_at timestamptz,
    marking jsonb,
    scorer_hash text,
    probability float8,
    method jsonb,
    CONSTRAINT ck_administrations_closed CHECK ((arrival IS NULL) = (outcome IS NULL)),
    CONSTRAINT pk_administrations PRIMARY KEY (session_id, step),
    CONSTRAINT uq_administrations_session_id_position UNIQUE (session_id, position),
    CONSTRAINT fk_administrations_session_id_sessions
        FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE TABLE collected_sessions (
    set_id text NOT NULL,
    session_id text NOT NULL,
    CONSTRAINT pk_collected_sessions PRIMARY KEY (set_id, session_id),
    CONSTRAINT fk_collected_sessions_session_id_sessions
        FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE,
    CONSTRAINT fk_collected_sessions_set_id_response_sets
        FOREIGN KEY (set_id) REFERENCES response_sets(id) ON DELETE CASCADE
);
CREATE INDEX ix_collected_sessions_session_id ON collected_sessions (session_id);
CREATE TABLE gates (
    id text NOT NULL,
    session_id text NOT NULL,
    metric text NOT NULL,
    threshold float8 NOT NULL,
    direction text NOT NULL,
    confidence float8 NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    tag text,
    project_id text NOT NULL,
    created_by text,
    baseline jsonb,
    baseline_name text,
    CONSTRAINT pk_gates PRIMARY KEY (id),
    CONSTRAINT fk_gates_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id),
    CONSTRAINT fk_gates_session_id_sessions
        FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX ix_gates_session_id ON gates (session_id);
CREATE TABLE baselines (
    project_id text NOT NULL,
    name text NOT NULL,
    created_by text,
    baseline jsonb NOT NULL,
    set_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_baselines PRIMARY KEY (project_id, name),
    CONSTRAINT fk_baselines_project_id_projects FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE TABLE kept_answers (
    key text NOT NULL,
    answer jsonb NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    session_id text,
    project_id text NOT NULL,
    CONSTRAINT pk_kept_answers PRIMARY KEY (key),
    CONSTRAINT fk_kept_answers_project_id_projects
        FOREIGN KEY (project_id) REFERENCES projects(id) ON DELETE CASCADE,
    CONSTRAINT fk_kept_answers_session_id_sessions
        FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX ix_kept_answers_created_at ON kept_answers (created_at);
CREATE INDEX ix_kept_answers_project_id ON kept_answers (project_id);
CREATE INDEX ix_kept_answers_session_id ON kept_answers (session_id);
CREATE TABLE session_events (
    session_id text NOT NULL,
    seq int NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT pk_session_events PRIMARY KEY (session_id, seq),
    CONSTRAINT fk_session_events_session_id_sessions
        FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE TABLE spend (
    owner_id text NOT NULL,
    day date NOT NULL,
    usd float8 NOT NULL,
    tokens bigint NOT NULL,
    CONSTRAINT pk_spend PRIMARY KEY (owner_id, day)
);
CREATE TABLE version_items (
    version_id text NOT NULL,
    position int NOT NULL,
    item_id text NOT NULL,
    a float8 NOT NULL,
    intercept float8 NOT NULL,
    c float8 NOT NULL,
    d float8 NOT NULL,
    loadings float8[],
    status text NOT NULL,
    flags jsonb DEFAULT '[]' NOT NULL,
    k float8,
    CONSTRAINT ck_version_items_status CHECK (status IN ('active', 'quarantined', 'pretest')),
    CONSTRAINT pk_version_items PRIMARY KEY (version_id, position),
    CONSTRAINT fk_version_items_item_id_items
        FOREIGN KEY (item_id) REFERENCES items(id) ON DELETE CASCADE,
    CONSTRAINT fk_version_items_version_id_bank_versions
        FOREIGN KEY (version_id) REFERENCES bank_versions(id) ON DELETE CASCADE
);
CREATE INDEX ix_version_items_item_id ON version_items (item_id);
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
_FUNCTIONS = """
CREATE FUNCTION held_spend(owner text, of_day date, moment timestamptz)
RETURNS TABLE (usd float8, usd_lost float8, tokens bigint, tokens_lost bigint)
LANGUAGE sql STABLE AS $$
SELECT coalesce(sum(r.usd) FILTER (WHERE r.lapses_at > moment), 0),
    coalesce(sum(r.usd) FILTER (WHERE r.lapses_at <= moment), 0),
    coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at > moment), 0)::bigint,
    coalesce(sum(r.tokens) FILTER (WHERE r.lapses_at <= moment), 0)::bigint
FROM reservations r
WHERE (r.project_id = owner OR r.endpoint_id = owner OR r.key_id = owner) AND r.day = of_day
$$;
CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM projects WHERE id = OLD.project_id
            AND OLD.at < now() - (retention ->> 'audit_days')::int * interval '1 day'
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit trail is added to, and kept for as long as its project says';
END $$;
CREATE FUNCTION reserve_spend(
    reservation text, project text, endpoint text, most_usd float8, most_tokens bigint,
    lapse interval, used jsonb, calling_key text DEFAULT NULL
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
            UNION ALL
            SELECT 'key', k.id, k.limits FROM api_keys k
            WHERE k.id = calling_key AND k.project_id = project
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
            id, project_id, endpoint_id, day, usd, tokens, lapses_at, key_id
        ) VALUES (
            reservation, project, endpoint, today, coalesce(most_usd, 0),
            coalesce(most_tokens, 0), moment + lapse,
            (SELECT k.id FROM api_keys k WHERE k.id = calling_key AND k.project_id = project)
        ) ON CONFLICT DO NOTHING;
    END IF;
END $$;
CREATE FUNCTION settle_spend(project text, used jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(project, 0));
    WITH gone AS (
        DELETE FROM reservations r
        USING jsonb_to_recordset(used) AS u (id text, usd float8, tokens bigint)
        WHERE r.id = u.id
        RETURNING r.project_id, r.endpoint_id, r.day, r.key_id,
            coalesce(u.usd, r.usd) AS usd, coalesce(u.tokens, r.tokens) AS tokens
    ), shares AS (
        SELECT project_id AS owner_id, day, usd, tokens FROM gone
        UNION ALL SELECT endpoint_id, day, usd, tokens FROM gone
        UNION ALL SELECT key_id, day, usd, tokens FROM gone WHERE key_id IS NOT NULL
    )
    INSERT INTO spend AS s (owner_id, day, usd, tokens)
    SELECT owner_id, day, sum(usd), sum(tokens) FROM shares GROUP BY owner_id, day
    ON CONFLICT (owner_id, day) DO UPDATE
        SET usd = s.usd + excluded.usd, tokens = s.tokens + excluded.tokens;
END $$;
CREATE TRIGGER keep_all BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();
CREATE TRIGGER keep_rows BEFORE DELETE OR UPDATE ON audit
    FOR EACH ROW EXECUTE FUNCTION keep_audit();
-- `new_delivery_id` is `app.storage.identifiers.new_id`. What a body may hold is chosen here, field
-- by field: no sentence, for it may quote an item, an answer or an endpoint.
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
CREATE TRIGGER queue_deliveries AFTER INSERT ON session_events FOR EACH ROW
    WHEN (NEW.type IN ('session.completed', 'session.failed', 'session.cancelled'))
    EXECUTE FUNCTION queue_of_session();
CREATE TRIGGER queue_deliveries AFTER INSERT ON ranking_events FOR EACH ROW
    WHEN (NEW.type IN ('ranking.completed', 'ranking.failed', 'ranking.cancelled'))
    EXECUTE FUNCTION queue_of_ranking();
CREATE TRIGGER queue_deliveries AFTER INSERT ON calibration_events FOR EACH ROW
    WHEN (NEW.type IN ('calibration.completed', 'calibration.failed', 'calibration.cancelled'))
    EXECUTE FUNCTION queue_of_calibration();
CREATE TRIGGER queue_deliveries AFTER INSERT ON gates
    FOR EACH ROW EXECUTE FUNCTION queue_of_gate();
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Straight to the driver: the scripts hold many statements, and % signs that are no parameters.
    driver: Any = op.get_bind().connection.driver_connection
    for script in (_AUDIT_NAMES, _TABLES, _DEFAULT, _FUNCTIONS):
        driver.execute(script)
    driver.execute("CREATE SCHEMA procrastinate; SET LOCAL search_path TO procrastinate")
    for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql")):
        if path.name[: len(_LAST_OF_QUEUE)] <= _LAST_OF_QUEUE:
            driver.execute(path.read_text(encoding="utf-8"))
    driver.execute("SET LOCAL search_path TO DEFAULT")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP SCHEMA procrastinate CASCADE")
    tables = re.findall(r"CREATE TABLE (\w+)", _TABLES)
    op.execute(f"DROP TABLE {', '.join(tables)}")
    functions = re.findall(r"CREATE FUNCTION (\w+)", _AUDIT_NAMES + _FUNCTIONS)
    op.execute(f"DROP FUNCTION {', '.join(functions)}")
