"""`sextant migrate`: bring the database schema to this version."""

from app.cli.terminal.console import fail_clearly, out
from app.settings import Settings
from app.storage.embedded import database_url
from app.storage.migrate import upgrade


@fail_clearly
def command() -> None:
    """Bring the database schema up to date.

    Uses DATABASE_URL, or the embedded Postgres. `sextant serve` does the same when it starts.
    """
    with database_url(Settings()) as url:
        revision = upgrade(url)
    out.print(f"The database is at revision {revision}.")
