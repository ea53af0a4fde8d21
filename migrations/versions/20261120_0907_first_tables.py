"""First tables, and the schema of the queue.

Revision ID: 1215555b96ec
Revises:
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op
from procrastinate.schema import SchemaManager
from sqlalchemy.dialects import postgresql

revision = "1215555b96ec"
down_revision = None
branch_labels = None
depends_on = None

# The queue's own migrations are applied up to here, not its newest whole schema: a later version
# of the queue then needs one migration more here, for old and new databases alike.
_LAST_OF_QUEUE = "03.04.00_50"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_api_keys_secret_hash")),
    )
    op.create_table(
        "banks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("licence", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("visibility", sa.Text(), server_default="open", nullable=False),
        sa.Column("default_scorer", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "prompt",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("unparsed_policy", sa.Text(), server_default="missing", nullable=False),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_banks")),
    )
    op.create_index(
        "uq_banks_name_live",
        "banks",
        ["name"],
        unique=True,
        postgresql_where=sa.text("archived_at IS NULL"),
    )
    op.create_table(
        "endpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("api_key_cipher", sa.LargeBinary(), nullable=True),
        sa.Column("headers_cipher", sa.LargeBinary(), nullable=True),
        sa.Column(
            "header_names",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
        ),
        sa.Column(
            "sampling",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "reasoning",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "limits",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "price",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "retry",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "options",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("timeout_s", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_request_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_token_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_endpoints")),
    )
    op.create_index(
        "uq_endpoints_name_live",
        "endpoints",
        ["name"],
        unique=True,
        postgresql_where=sa.text("name IS NOT NULL AND archived_at IS NULL"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_headers", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("response_body", sa.LargeBinary(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("principal", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False
    )
    op.create_table(
        "bank_versions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("bank_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("response_model", sa.Text(), nullable=False),
        sa.Column("scale", sa.Text(), nullable=False),
        sa.Column("parameters_hash", sa.Text(), nullable=False),
        sa.Column("provisional", sa.Boolean(), nullable=False),
        sa.Column("notes", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "lint",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "extras",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("n_items", sa.Integer(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["bank_id"],
            ["banks.id"],
            name=op.f("fk_bank_versions_bank_id_banks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bank_versions")),
        sa.UniqueConstraint("bank_id", "number", name=op.f("uq_bank_versions_bank_id_number")),
    )
    op.create_table(
        "items",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("bank_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("scorer", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column(
            "tags",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
        ),
        sa.Column("group_key", sa.Text(), nullable=True),
        sa.Column("expected_tokens_in", sa.Integer(), nullable=True),
        sa.Column("expected_tokens_out", sa.Integer(), nullable=True),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["bank_id"], ["banks.id"], name=op.f("fk_items_bank_id_banks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint("bank_id", "key", name=op.f("uq_items_bank_id_key")),
    )
    op.create_index(
        op.f("ix_items_bank_id_content_hash"), "items", ["bank_id", "content_hash"], unique=False
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("endpoint_id", sa.Text(), nullable=True),
        sa.Column("bank_version_id", sa.Text(), nullable=False),
        sa.Column("design", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("relation", sa.Text(), nullable=True),
        sa.Column(
            "metadata",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "provenance",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("lease_epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("waiting_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waiting_reason", sa.Text(), nullable=True),
        sa.Column(
            "summary",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("stop_detail", sa.Text(), nullable=True),
        sa.Column("precision_reached", sa.Boolean(), nullable=True),
        sa.Column("failure", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("arrivals", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("event_seq", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("active_s", sa.DOUBLE_PRECISION(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'waiting', 'paused', 'awaiting_response', "
            "'completed', 'failed', 'cancelled')",
            name=op.f("ck_sessions_status"),
        ),
        sa.ForeignKeyConstraint(
            ["bank_version_id"],
            ["bank_versions.id"],
            name=op.f("fk_sessions_bank_version_id_bank_versions"),
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoints.id"], name=op.f("fk_sessions_endpoint_id_endpoints")
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["sessions.id"], name=op.f("fk_sessions_parent_id_sessions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index(
        op.f("ix_sessions_bank_version_id"), "sessions", ["bank_version_id"], unique=False
    )
    op.create_index(
        op.f("ix_sessions_created_at_id"), "sessions", ["created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_sessions_endpoint_id"), "sessions", ["endpoint_id"], unique=False)
    op.create_index(op.f("ix_sessions_parent_id"), "sessions", ["parent_id"], unique=False)
    op.create_index(
        op.f("ix_sessions_status_lease_expires_at"),
        "sessions",
        ["status", "lease_expires_at"],
        unique=False,
    )
    op.create_table(
        "version_items",
        sa.Column("version_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("a", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("intercept", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("c", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("d", sa.DOUBLE_PRECISION(), nullable=False),
        sa.Column("loadings", postgresql.ARRAY(sa.DOUBLE_PRECISION()), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column(
            "flags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('active', 'quarantined', 'pretest')", name=op.f("ck_version_items_status")
        ),
        sa.ForeignKeyConstraint(
            ["item_id"],
            ["items.id"],
            name=op.f("fk_version_items_item_id_items"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["bank_versions.id"],
            name=op.f("fk_version_items_version_id_bank_versions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("version_id", "position", name=op.f("pk_version_items")),
    )
    op.create_index(op.f("ix_version_items_item_id"), "version_items", ["item_id"], unique=False)
    op.create_table(
        "administrations",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("step_token", sa.Text(), nullable=True),
        sa.Column(
            "asked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("information", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("arrival", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("score", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("extracted", sa.Text(), nullable=True),
        sa.Column("extractor", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("answer_text", sa.Text(), nullable=True),
        sa.Column("raw_text", sa.Text(), nullable=True),
        sa.Column("reasoning", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("tokens_in", sa.Integer(), nullable=True),
        sa.Column("tokens_out", sa.Integer(), nullable=True),
        sa.Column("usd", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("latency_ms", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=True),
        sa.Column("theta", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("se", sa.DOUBLE_PRECISION(), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(arrival IS NULL) = (outcome IS NULL)", name=op.f("ck_administrations_closed")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_administrations_session_id_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "step", name=op.f("pk_administrations")),
        sa.UniqueConstraint(
            "session_id", "position", name=op.f("uq_administrations_session_id_position")
        ),
    )
    op.create_table(
        "session_events",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_session_events_session_id_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("session_id", "seq", name=op.f("pk_session_events")),
    )
    op.execute("CREATE SCHEMA procrastinate")
    op.execute("SET LOCAL search_path TO procrastinate")
    # Straight to the driver: the scripts hold many statements, and % signs that are no parameters.
    driver: Any = op.get_bind().connection.driver_connection
    for script in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql")):
        if script.name[: len(_LAST_OF_QUEUE)] <= _LAST_OF_QUEUE:
            driver.execute(script.read_text(encoding="utf-8"))
    op.execute("SET LOCAL search_path TO DEFAULT")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP SCHEMA procrastinate CASCADE")
    op.drop_table("session_events")
    op.drop_table("administrations")
    op.drop_index(op.f("ix_version_items_item_id"), table_name="version_items")
    op.drop_table("version_items")
    op.drop_index(op.f("ix_sessions_status_lease_expires_at"), table_name="sessions")
    op.drop_index(op.f("ix_sessions_parent_id"), table_name="sessions")
    op.drop_index(op.f("ix_sessions_endpoint_id"), table_name="sessions")
    op.drop_index(op.f("ix_sessions_created_at_id"), table_name="sessions")
    op.drop_index(op.f("ix_sessions_bank_version_id"), table_name="sessions")
    op.drop_table("sessions")
    op.drop_index(op.f("ix_items_bank_id_content_hash"), table_name="items")
    op.drop_table("items")
    op.drop_table("bank_versions")
    op.drop_index(op.f("ix_idempotency_keys_created_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index(
        "uq_endpoints_name_live",
        table_name="endpoints",
        postgresql_where=sa.text("name IS NOT NULL AND archived_at IS NULL"),
    )
    op.drop_table("endpoints")
    op.drop_index(
        "uq_banks_name_live", table_name="banks", postgresql_where=sa.text("archived_at IS NULL")
    )
    op.drop_table("banks")
    op.drop_table("api_keys")
