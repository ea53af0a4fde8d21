"""`sextant backup`: all that is stored, in one file."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.terminal.console import fail_clearly, out
from app.settings import Settings
from app.storage.backups import back_up
from app.storage.embedded import database_url


@fail_clearly
def command(
    file: Annotated[Path, typer.Argument(help="Where to write it; nothing may be there.")],
) -> None:
    """Write all that the database holds to a file, while servers and workers go on.

    It holds what was stored at one moment. Endpoint keys in it are encrypted: keep
    SEXTANT_SECRET_KEY, or the file secret.key of the data directory, elsewhere.
    """
    with database_url(Settings()) as url:
        manifest, size = back_up(url, file)
    out.print(
        f"Backed up to {file}: {size:,} bytes, tables of revision {manifest.revision}.",
        markup=False,
        soft_wrap=True,
    )
