"""Brings a database to the schema of this version of the code."""

import psycopg

from app.errors import DatabaseUnavailableError, InvalidStateError
from app.storage.binaries import OLDEST
from app.storage.database import Database
from app.storage.schema_revision import MIGRATIONS, newest_revision


def upgrade(url: str) -> str:
    """Apply every migration that the database lacks. Safe to call from several processes at once.

    Args:
        url: `postgresql+psycopg://...`

    Returns:
        The revision that the database is at now.

    Raises:
        InvalidStateError: The database is at a revision that this version does not know.
        DatabaseUnavailableError: Postgres cannot be reached, is too old, or a migration failed.
    """
    newest = newest_revision()
    if _revisions(url) != [newest]:
        _migrate(url, newest)
    return newest


def _revisions(url: str) -> list[str]:
    """What the database is at; nothing where it is new, or cannot be asked."""
    try:
        with psycopg.connect(Database(url).conninfo) as connection:
            major = connection.info.server_version // 10_000
            if major < OLDEST:
                raise DatabaseUnavailableError(
                    f"PostgreSQL {OLDEST} or newer is needed; the database's server is {major}."
                )
            rows = connection.execute("SELECT version_num FROM public.alembic_version").fetchall()
    except psycopg.Error:
        return []
    return [revision for (revision,) in rows]


def _migrate(url: str, newest: str) -> None:
    # Most commands find a database that lacks nothing; this takes half a second to load.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["url"] = url
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        raise InvalidStateError(
            f"This Sextant cannot go on from the database's revision: it was written by a newer "
            f"Sextant, or by one from before the first release ({exc}; the newest revision known "
            f"here is {newest}). Upgrade Sextant, or use another database."
        ) from exc
    except DBAPIError as exc:
        reason = str(exc.orig).strip().split("\n")[0]
        raise DatabaseUnavailableError(f"The database could not be migrated: {reason}") from exc
