"""Whether the database answers and has the tables of this version of the code."""

import psycopg

from app.errors import DatabaseUnavailableError
from app.storage.database import Database
from app.storage.schema_revision import is_known, newest_revision


async def require_current_schema(database: Database) -> str:
    """The revision of the database's tables: the one that this code needs, or a newer one.

    While Sextant is upgraded, processes of before go on: migrations take nothing away that these
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
