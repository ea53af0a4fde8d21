"""`sextant serve`: the API, and a worker in the same process."""

import asyncio
import contextlib
from typing import Annotated

import typer

from app.cli.console import err, fail_clearly
from app.cli.server import serving
from app.cli.signals import run_until_signal
from app.observability import configure_logging
from app.settings import Settings


@fail_clearly
def command(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; SEXTANT_HOST, else 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="TCP port, 0 for a free one; SEXTANT_PORT, else 8000.")
    ] = None,
    worker: Annotated[
        bool, typer.Option(help="Run sessions in this process too; others may run them as well.")
    ] = True,
) -> None:
    """Serve the API and a worker in one process.

    Uses DATABASE_URL, or starts an embedded Postgres. Stop it with Ctrl-C; nothing is lost.
    """
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = Settings(**given)
    configure_logging(settings)

    async def serve() -> None:
        async with serving(settings, worker=worker) as server:
            err.print(f"Sextant listens on {server.base_url} (Ctrl-C stops it).")
            err.print("Open it in a browser, or call its API below /v1.")
            if settings.auth == "required":
                err.print("Create a key, to log in or to call with: sextant keys create NAME")
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        run_until_signal(serve())
