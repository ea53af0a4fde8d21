"""Brings a database to the schema of this version of the code."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError

import app
from app.errors import DatabaseUnavailableError, InvalidStateError

# Beside the package, in a checkout and in an installed wheel alike.
_MIGRATIONS = Path(next(iter(app.__path__))).resolve().parent / "migrations"


def upgrade(url: str) -> str:
    """Apply every migration that the database lacks. Safe to call from several processes at once.

    Args:
        url: `postgresql+psycopg://...`

    Returns:
        The revision that the database is at now.

    Raises:
        InvalidStateError: The database was migrated by a newer Sextant.
        DatabaseUnavailableError: Postgres cannot be reached, or a migration failed.
    """
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["url"] = url
    newest = newest_revision()
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        raise InvalidStateError(
            f"The database was migrated by a newer Sextant than this one ({exc}; the newest "
            f"revision known here is {newest}). Upgrade Sextant, or use another database."
        ) from exc
    except DBAPIError as exc:
        reason = str(exc.orig).strip().split("\n")[0]
        raise DatabaseUnavailableError(f"The database could not be migrated: {reason}") from exc
    return newest


@cache
def newest_revision() -> str:
    """The revision that this version of the code needs."""
    return str(ScriptDirectory(str(_MIGRATIONS)).get_current_head())
