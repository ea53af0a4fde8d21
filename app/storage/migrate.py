"""The revision of the tables that this code needs, and the migration of a database to it."""

import re
from functools import cache
from pathlib import Path

import psycopg

import app
from app.errors import DatabaseUnavailableError, InvalidStateError
from app.storage.binaries import OLDEST
from app.storage.database import Database


def upgrade(url: str) -> str:
    """Apply all missing migrations; several processes may call this at the same time.

    Returns:
        The revision that the database is at now.

    Raises:
        InvalidStateError: The database is at a revision that this version does not know.
        DatabaseUnavailableError: Postgres cannot be reached, is too old, or a migration failed.
    """
    newest = newest_revision()
    if _found(url) != [newest]:
        _migrate(url, newest)
    return newest


def _found(url: str) -> list[str]:
    """Revisions of the database; empty if it is new or cannot be reached."""
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
    # Imported late, as it takes half a second to load and most databases are up to date.
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
        if isinstance(exc.orig, psycopg.OperationalError) and exc.orig.sqlstate is None:
            raise DatabaseUnavailableError(
                f"The database cannot be reached, check DATABASE_URL: {reason}"
            ) from exc
        raise DatabaseUnavailableError(f"The database could not be migrated: {reason}") from exc


#: Directory beside the package, both in a checkout and in an installed wheel.
MIGRATIONS = Path(next(iter(app.__path__))).resolve().parent / "migrations"
_NAMED = re.compile(
    r"""^(?P<name>revision|down_revision)\b[^=\n]*= *["'](?P<value>\w+)["']""", re.MULTILINE
)


#: Key of the lock that is held while tables are changed; any fixed number of Sextant's own.
MIGRATION_LOCK = 7_839_200_611


def newest_revision() -> str:
    """The last of the migrations."""
    (newest,) = _revisions()["revision"] - _revisions()["down_revision"]
    return newest


def is_known(revision: str) -> bool:
    """Whether tables at this revision can be read or migrated by this version of the code."""
    return revision in _revisions()["revision"]


@cache
def _revisions() -> dict[str, set[str]]:
    """Read the revisions from the migration files, since Alembic takes half a second to load."""
    found: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for file in (MIGRATIONS / "versions").glob("*.py"):
        for match in _NAMED.finditer(file.read_text(encoding="utf-8")):
            found[match["name"]].add(match["value"])
    return found


async def require_current_schema(database: Database) -> str:
    """The revision of the database's tables, which must be the one this code needs or a newer one.

    Processes of the old version continue during an upgrade: migrations remove nothing that they
    use.

    Raises:
        DatabaseUnavailableError: No answer, or no tables, or those of an older revision.
    """
    async with database.unit_of_work() as uow:
        connection = await uow.driver_connection()
        try:
            cursor = await connection.execute("SELECT version_num FROM alembic_version")
            row = await cursor.fetchone()
        except psycopg.errors.UndefinedTable:
            row = None
        except psycopg.OperationalError as exc:
            raise DatabaseUnavailableError(f"The database gives no answer: {exc}") from exc
    found, needed = (row[0] if row else None), newest_revision()
    if found is None or (found != needed and is_known(found)):
        raise DatabaseUnavailableError(
            f"The database's tables are at revision {found or 'none'}, this version needs "
            f"{needed}: run `sextant migrate`."
        )
    return str(found)
