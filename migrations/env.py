"""Runs the migrations, one process at a time.

The URL comes from `config.attributes["url"]` where the program sets it (`app.storage.migrate`),
else from the settings: `DATABASE_URL`, or the embedded Postgres for as long as it takes.
"""

from contextlib import nullcontext

from alembic import context
from sqlalchemy import create_engine, pool, text

from app.settings import Settings
from app.storage.embedded import database_url
from app.storage.migrate import MIGRATION_LOCK
from app.storage.rows.base import Base


def _run(url: str) -> None:
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        # Simultaneous start-ups race even on CREATE ... IF NOT EXISTS. The lock belongs to the
        # connection, not to a transaction, and goes with it.
        connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.commit()
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            compare_server_default=True,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


if context.is_offline_mode():
    raise SystemExit("Migrations need a database: --sql is not supported.")
_given = context.config.attributes.get("url")
with nullcontext(_given) if _given else database_url(Settings()) as _url:
    _run(_url)
