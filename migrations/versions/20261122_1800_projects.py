"""Projects: to each belongs a part of everything; what there is belongs to the default one.

Revision ID: 4b7d90c2e6a1
Revises: 4b7e19d03ac6
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "4b7d90c2e6a1"
down_revision = "4b7e19d03ac6"
branch_labels = None
depends_on = None

_DEFAULT = "prj_00000000000000000000000000"
_OWNED = (
    "endpoints",
    "banks",
    "response_sets",
    "calibrations",
    "sessions",
    "rankings",
    "gates",
    "installations",
)
_LISTED = ("calibrations", "sessions", "rankings", "installations")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column(
            "limits", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column(
            "retention", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    projects = sa.table("projects", sa.column("id"), sa.column("name"))
    op.execute(projects.insert().values(id=_DEFAULT, name="default"))
    for table in _OWNED:
        # A constant default is written nowhere: also a table of millions takes no time.
        op.add_column(
            table, sa.Column("project_id", sa.Text(), nullable=False, server_default=_DEFAULT)
        )
        op.alter_column(table, "project_id", server_default=None)
        op.create_foreign_key(
            op.f(f"fk_{table}_project_id_projects"), table, "projects", ["project_id"], ["id"]
        )
        op.add_column(table, sa.Column("created_by", sa.Text(), nullable=True))
    for table in _LISTED:
        op.create_index(op.f(f"ix_{table}_project_id"), table, ["project_id", "id"])
    op.add_column(
        "banks", sa.Column("shared", sa.Boolean(), nullable=False, server_default=sa.text("false"))
    )
    op.create_index(
        op.f("ix_banks_shared"), "banks", ["shared"], postgresql_where=sa.text("shared")
    )
    _unique_names("project_id", "name")

    op.add_column("api_keys", sa.Column("project_id", sa.Text(), nullable=True))
    op.add_column("api_keys", sa.Column("created_by", sa.Text(), nullable=True))
    # Who was an admin of all there is stays one.
    keys = sa.table("api_keys", sa.column("project_id"), sa.column("scopes"))
    others = sa.text("NOT 'admin' = ANY (scopes)")
    op.execute(keys.update().where(others).values(project_id=_DEFAULT))
    op.create_foreign_key(
        op.f("fk_api_keys_project_id_projects"),
        "api_keys",
        "projects",
        ["project_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.create_index(op.f("ix_api_keys_project_id"), "api_keys", ["project_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    _unique_names("name")
    for name in ("project_id", "created_by"):
        op.drop_column("api_keys", name)
    op.drop_column("banks", "shared")
    for table in _OWNED:
        op.drop_column(table, "created_by")
        op.drop_column(table, "project_id")
    op.drop_table("projects")


def _unique_names(*columns: str) -> None:
    """Names are told apart by these columns from now on."""
    op.drop_index("uq_banks_name_live", table_name="banks")
    op.create_index(
        "uq_banks_name_live",
        "banks",
        columns,
        unique=True,
        postgresql_where=sa.text("archived_at IS NULL"),
    )
    op.drop_index("uq_endpoints_name_live", table_name="endpoints")
    op.create_index(
        "uq_endpoints_name_live",
        "endpoints",
        columns,
        unique=True,
        postgresql_where=sa.text("name IS NOT NULL AND archived_at IS NULL"),
    )
    op.drop_constraint("uq_response_sets_name", "response_sets", type_="unique")
    op.create_unique_constraint("uq_response_sets_name", "response_sets", list(columns))
