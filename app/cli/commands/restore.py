"""`sextant restore`: what a backup holds, in this database."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.terminal.console import fail_clearly, out
from app.settings import Settings
from app.storage.backups import restore
from app.storage.embedded import database_url
from app.storage.secrets import SecretBox


@fail_clearly
def command(
    file: Annotated[Path, typer.Argument(help="What `sextant backup` wrote.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="All that the database holds goes.")
    ] = False,
    lost_key: Annotated[
        bool,
        typer.Option("--lost-key", help="Go on though the backup's secrets cannot be read."),
    ] = False,
) -> None:
    """Put a backup into an empty database, whole or not at all; sessions then go on.

    Nobody else may use the database. An older backup is migrated.
    """
    settings = Settings()
    with database_url(settings) as url:
        manifest = restore(url, file, SecretBox(settings), replaces=replace, needs_key=not lost_key)
    out.print(
        f"Restored what was stored at {manifest.made_at}. Start the servers and workers again.",
        markup=False,
        soft_wrap=True,
    )
