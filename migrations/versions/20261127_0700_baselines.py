"""Baselines: what gates hold later sessions against.

Revision ID: c7d0a61f2b94
Revises: 91c4f2be7d08
"""

from alembic import op

revision = "c7d0a61f2b94"
down_revision = "91c4f2be7d08"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        """
        CREATE TABLE baselines (
            project_id text NOT NULL,
            name text NOT NULL,
            created_by text,
            baseline jsonb NOT NULL,
            set_at timestamptz DEFAULT now() NOT NULL,
            CONSTRAINT pk_baselines PRIMARY KEY (project_id, name),
            CONSTRAINT fk_baselines_project_id_projects
                FOREIGN KEY (project_id) REFERENCES projects(id)
        )
        """
    )
    op.execute("ALTER TABLE gates ADD COLUMN baseline jsonb, ADD COLUMN baseline_name text")


def downgrade() -> None:
    """Back; gates against a baseline cannot stay."""
    op.execute("DELETE FROM gates WHERE baseline IS NOT NULL")
    op.execute("ALTER TABLE gates DROP COLUMN baseline, DROP COLUMN baseline_name")
    op.execute("DROP TABLE baselines")
