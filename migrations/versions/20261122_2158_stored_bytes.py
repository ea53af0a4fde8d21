"""What projects hold, counted when it comes: by sessions as they end, by imports as they are made.

Revision ID: e20b6c9d41f7
Revises: b7d20c95e1a4
"""

import sqlalchemy as sa
from alembic import op

revision = "e20b6c9d41f7"
down_revision = "b7d20c95e1a4"
branch_labels = None
depends_on = None

# What is stored, not what was written: texts that were compressed count as they lie on the disk.
_FUNCTIONS = (
    """
    CREATE FUNCTION count_session() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, bytes)
        SELECT NEW.id, NEW.project_id, coalesce(sum(
            coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
        ), 0)
        FROM administrations a WHERE a.session_id = NEW.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = excluded.bytes;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION count_items() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, bytes)
        SELECT b.id, b.project_id, sum(pg_column_size(i.content))
        FROM came i JOIN banks b ON b.id = i.bank_id GROUP BY b.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = s.bytes + excluded.bytes;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION count_sheets() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, bytes)
        SELECT r.id, r.project_id, sum(pg_column_size(a))
        FROM came a JOIN response_sets r ON r.id = a.set_id GROUP BY r.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = s.bytes + excluded.bytes;
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION forget_bytes() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM stored_bytes WHERE resource_id = OLD.id;
        RETURN NULL;
    END $$
    """,
)
_TRIGGERS = (
    "CREATE TRIGGER count_bytes AFTER UPDATE ON sessions FOR EACH ROW "
    "WHEN (OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) "
    "EXECUTE FUNCTION count_session()",
    "CREATE TRIGGER count_bytes AFTER INSERT ON items REFERENCING NEW TABLE AS came "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_items()",
    "CREATE TRIGGER count_bytes AFTER INSERT ON answer_sheets REFERENCING NEW TABLE AS came "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_sheets()",
    *(
        f"CREATE TRIGGER forget_bytes AFTER DELETE ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION forget_bytes()"
        for table in ("sessions", "banks", "response_sets")
    ),
)
_PRESENT = (
    """
    INSERT INTO stored_bytes (resource_id, project_id, bytes)
    SELECT s.id, s.project_id, sum(
            coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
    ) FROM sessions s
    JOIN administrations a ON a.session_id = s.id WHERE s.finished_at IS NOT NULL GROUP BY s.id
    """,
    """
    INSERT INTO stored_bytes (resource_id, project_id, bytes)
    SELECT b.id, b.project_id, sum(pg_column_size(i.content))
    FROM banks b JOIN items i ON i.bank_id = b.id GROUP BY b.id
    """,
    """
    INSERT INTO stored_bytes (resource_id, project_id, bytes)
    SELECT r.id, r.project_id, sum(pg_column_size(a))
    FROM response_sets r JOIN answer_sheets a ON a.set_id = r.id GROUP BY r.id
    """,
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "stored_bytes",
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
            name=op.f("fk_stored_bytes_project_id_projects"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", name=op.f("pk_stored_bytes")),
    )
    op.create_index(
        "ix_stored_bytes_sum", "stored_bytes", ["project_id"], postgresql_include=["bytes"]
    )
    for statement in (*_FUNCTIONS, *_TRIGGERS, *_PRESENT):
        op.execute(statement)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("sessions", "items", "answer_sheets"):
        op.execute(f"DROP TRIGGER count_bytes ON {table}")
    for table in ("sessions", "banks", "response_sets"):
        op.execute(f"DROP TRIGGER forget_bytes ON {table}")
    for name in ("count_session", "count_items", "count_sheets", "forget_bytes"):
        op.execute(f"DROP FUNCTION {name}()")
    op.drop_table("stored_bytes")
