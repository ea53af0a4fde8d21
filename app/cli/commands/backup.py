"""`sextant backup`, `restore` and `migrate`: the whole database as one file, and its schema."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.terminal.console import fail_clearly, out
from app.settings import Settings

# The database is imported late: `--help` need not wait for it.


@fail_clearly
def command(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist yet.")],
) -> None:
    """Write everything in the database to a file, while servers and workers run.

    The backup is of one moment. Endpoint keys in it are encrypted: keep
    SEXTANT_SECRET_KEY, or the file secret.key of the data directory, in another
    place.
    """
    from app.storage import backups
    from app.storage.embedded import database_url

    with database_url(Settings()) as url:
        manifest, size = backups.back_up(url, file)
    out.say(f"Backed up to {file}: {size:,} bytes, tables of revision {manifest.revision}.")


@fail_clearly
def restore(
    file: Annotated[Path, typer.Argument(help="File that `sextant backup` wrote.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete everything that is in the database now.")
    ] = False,
    lost_key: Annotated[
        bool,
        typer.Option(
            "--lost-key", help="Continue even if the secrets in the backup cannot be decrypted."
        ),
    ] = False,
) -> None:
    """Restore a backup into an empty database, all or nothing; sessions then continue.

    Nothing else may use the database. A backup of an older version is migrated.
    """
    from app.storage import backups
    from app.storage.embedded import database_url
    from app.storage.secrets import SecretBox

    settings = Settings()
    with database_url(settings) as url:
        manifest = backups.restore(
            url, file, SecretBox(settings), replaces=replace, needs_key=not lost_key
        )
    out.say(f"Restored what was stored at {manifest.made_at}. Start the servers and workers again.")


@fail_clearly
def migrate() -> None:
    """Bring the database schema up to date.

    Uses DATABASE_URL, or the embedded Postgres. `sextant serve` does the same when it starts.
    """
    from app.storage.embedded import database_url
    from app.storage.migrate import upgrade

    with database_url(Settings()) as url:
        revision = upgrade(url)
    out.print(f"The database is at revision {revision}.")
