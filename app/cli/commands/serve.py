"""`sextant serve` and `worker`: the API with a worker in the same process, or a worker alone."""

import asyncio
import contextlib
import shlex
from typing import Annotated

import typer

from app.cli.servers.connection import run_until_signal
from app.cli.servers.logins import kept_login
from app.cli.terminal.console import err, fail_clearly
from app.observability import configure_logging, metrics_served
from app.sandbox.programs import give_way
from app.settings import Settings


def key_command(settings: Settings) -> str:
    """Command line that makes a key for this server, to type in another shell on this machine."""
    where = ""
    if settings.database_url is not None:
        where = "DATABASE_URL=... "  # not shown in full: it holds this server's password
    elif "data_dir" in settings.model_fields_set:
        where = f"SEXTANT_DATA_DIR={shlex.quote(str(settings.data_dir))} "
    # Without the option, commands would speak to the server of the login.
    local = " --server local" if kept_login() else ""
    return f"{where}sextant keys create NAME{local}"


@fail_clearly
def command(
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; by default SEXTANT_HOST, else 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="TCP port, 0 for a free one; by default SEXTANT_PORT, else 8000."
        ),
    ] = None,
    worker: Annotated[
        bool, typer.Option(help="Also run a worker in this process; other workers may run as well.")
    ] = True,
) -> None:
    """Serve the API and a worker in one process.

    Uses DATABASE_URL, or starts an embedded Postgres. Stop it with Ctrl-C;
    nothing is lost.
    """
    from app.cli.servers.server import serving  # `--help` and a worker alone need no API

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = Settings(**given)
    configure_logging(settings)

    async def serve() -> None:
        async with serving(settings, worker=worker) as server:
            err.print(f"Sextant listens on {server.base_url} (Ctrl-C stops it).")
            err.print("Open it in a browser, or call its API below /v1.")
            if settings.private_endpoints == "loopback" and settings.is_loopback:
                err.say(
                    "Requests from this machine may call private addresses, such as a local "
                    "model's. Behind a proxy, set SEXTANT_PRIVATE_ENDPOINTS=never."
                )
            if settings.auth == "required":
                same = " (the DATABASE_URL of this server)" if settings.database_url else ""
                err.print(f"Create a key, to log in or to call with{same}:")
                err.print(f"  {key_command(settings)}", soft_wrap=True)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        run_until_signal(serve())


_NICENESS = 19


@fail_clearly
def worker() -> None:
    """Run one more worker on the same database.

    Workers share the sessions. If one dies, the others take over its sessions.
    Set DATABASE_URL to the database of `sextant serve`, and the same
    SEXTANT_SECRET_KEY.
    """
    from app.cli.terminal.runtime import runtime, warn_of_secrets
    from app.worker.loop import work

    settings = Settings()
    configure_logging(settings)
    # On a machine shared with the API, requests of people come before the work on sessions.
    give_way(_NICENESS)

    async def serve() -> None:
        async with runtime(settings) as services:
            await warn_of_secrets(services)
            with contextlib.ExitStack() as stack:
                if settings.metrics_port is not None:
                    stack.enter_context(metrics_served(settings.host, settings.metrics_port))
                err.print("Sextant worker takes sessions (Ctrl-C stops it).")
                await work(services)

    with contextlib.suppress(KeyboardInterrupt):
        run_until_signal(serve())
