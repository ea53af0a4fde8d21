"""Whether the database answers and has the tables of this version of the code."""

import psycopg

from app.errors import DatabaseUnavailableError
from app.storage.database import Database
from app.storage.schema_revision import newest_revision


async def require_current_schema(database: Database) -> str:
    """The revision of the database's tables, which is the one that this code needs.

    Raises:
        DatabaseUnavailableError: No answer, or tables of another revision.
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
    if found != needed:
        raise DatabaseUnavailableError(
            f"The database's tables are at revision {found or 'none'}, this version needs "
            f"{needed}: run `sextant migrate`."
        )
    return needed
