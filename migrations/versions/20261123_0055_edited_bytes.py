"""What projects hold is counted as it lies on the disk, and what is edited and deleted, too.

Revision ID: d1b6f3927ae4
Revises: 8c2d5e60b7f3
"""

from alembic import op

revision = "d1b6f3927ae4"
down_revision = "8c2d5e60b7f3"
branch_labels = None
depends_on = None

_ITEM = "pg_column_size({0}.content)"
_SHEET = (
    "(pg_column_size({0}.examinee) + pg_column_size({0}.codes)"
    " + coalesce(pg_column_size({0}.fractions), 0))"
)
#: Table, its id, whose it is, and what a row takes; the last two by the name of its row.
_COUNTED = (
    ("items", ("id",), "bank_id", "banks", _ITEM),
    ("answer_sheets", ("set_id", "examinee", "trial"), "set_id", "response_sets", _SHEET),
)
# New rows are looked up: those that a trigger is given are not compressed yet.
_COUNT = """
    CREATE OR REPLACE FUNCTION count_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO stored_bytes AS s (resource_id, project_id, bytes)
        SELECT o.id, o.project_id, sum({size})
        FROM came c JOIN {table} t USING ({key}) JOIN {owners} o ON o.id = t.{owner}
        GROUP BY o.id
        ON CONFLICT (resource_id) DO UPDATE SET bytes = s.bytes + excluded.bytes;
        RETURN NULL;
    END $$
"""
_EDIT = """
    CREATE FUNCTION count_edited_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE stored_bytes s SET bytes = s.bytes + d.more FROM (
            SELECT w.{owner} AS id, sum({size} - {former}) AS more
            FROM went w JOIN {table} t USING ({key}) GROUP BY 1
        ) AS d WHERE d.id = s.resource_id AND d.more <> 0;
        RETURN NULL;
    END $$
"""
_DROP = """
    CREATE FUNCTION count_gone_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE stored_bytes s SET bytes = s.bytes - d.less FROM (
            SELECT w.{owner} AS id, sum({former}) AS less FROM went w GROUP BY 1
        ) AS d WHERE d.id = s.resource_id;
        RETURN NULL;
    END $$
"""
_TRIGGERS = (
    "CREATE TRIGGER count_bytes AFTER INSERT ON {table} REFERENCING NEW TABLE AS came "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_{table}()",
    "CREATE TRIGGER count_edited AFTER UPDATE ON {table} REFERENCING OLD TABLE AS went "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_edited_{table}()",
    "CREATE TRIGGER count_gone AFTER DELETE ON {table} REFERENCING OLD TABLE AS went "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_gone_{table}()",
)
_PRESENT = """
    UPDATE stored_bytes s SET bytes = found.bytes FROM (
        SELECT t.{owner} AS id, sum({size}) AS bytes FROM {table} t GROUP BY 1
    ) AS found WHERE found.id = s.resource_id
"""
_FORMER = (
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
    "CREATE TRIGGER count_bytes AFTER INSERT ON items REFERENCING NEW TABLE AS came "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_items()",
    "CREATE TRIGGER count_bytes AFTER INSERT ON answer_sheets REFERENCING NEW TABLE AS came "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_sheets()",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table, name in (("items", "count_items"), ("answer_sheets", "count_sheets")):
        op.execute(f"DROP TRIGGER count_bytes ON {table}")
        op.execute(f"DROP FUNCTION {name}()")
    for table, key, owner, owners, size in _COUNTED:
        names = {"table": table, "key": ", ".join(key), "owner": owner, "owners": owners}
        sizes = {"size": size.format("t"), "former": size.format("w")}
        # The triggers keep others from writing until what is there is counted.
        for statement in (_COUNT, _EDIT, _DROP, *_TRIGGERS, _PRESENT):
            op.execute(statement.format(**names, **sizes))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table, *_ in _COUNTED:
        for trigger in ("count_bytes", "count_edited", "count_gone"):
            op.execute(f"DROP TRIGGER {trigger} ON {table}")
        for name in ("count", "count_edited", "count_gone"):
            op.execute(f"DROP FUNCTION {name}_{table}()")
    for statement in _FORMER:
        op.execute(statement)
