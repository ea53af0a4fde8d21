"""The audit trail: rows are added, and go when their project's time is up, nothing else.

Revision ID: c2f58b1d7a90
Revises: a41c7d90e6b2
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "c2f58b1d7a90"
down_revision = "a41c7d90e6b2"
branch_labels = None
depends_on = None

_KEEP = """
    CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND EXISTS (
            SELECT FROM projects WHERE id = OLD.project_id
                AND OLD.at < now() - (retention ->> 'audit_days')::int * interval '1 day'
        ) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'the audit trail is added to, and kept for as long as its project says';
    END $$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "audit",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column(
            "resources",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
        ),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_project_id_id"), "audit", ["project_id", "id"])
    op.create_index(op.f("ix_audit_key_id_id"), "audit", ["key_id", "id"])
    op.execute(_KEEP)
    op.execute(
        "CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION keep_audit()"
    )
    op.execute(
        "CREATE TRIGGER keep_all BEFORE TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION keep_audit()"
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("audit")
    op.execute("DROP FUNCTION keep_audit()")
