"""`sextant worker`: another worker on the same database, on this or another machine."""

import contextlib

from app.cli.terminal.console import err, fail_clearly
from app.cli.terminal.runtime import runtime, warn_of_secrets
from app.cli.terminal.signals import run_until_signal
from app.observability import configure_logging, metrics_served
from app.sandbox.programs import give_way
from app.settings import Settings
from app.worker.loop import work

_NICENESS = 19


@fail_clearly
def command() -> None:
    """Run one more worker on the same database.

    Workers share the sessions. If one dies, the others take over its sessions.
    Set DATABASE_URL to the database of `sextant serve`, and the same
    SEXTANT_SECRET_KEY.
    """
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
