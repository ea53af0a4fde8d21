"""`sextant open`: open the page of a resource in a browser."""

import sys
from typing import Annotated

import typer

from app.cli.servers.logins import target
from app.cli.servers.options import AskServerOption
from app.cli.terminal.console import err, fail_clearly, out
from app.errors import InvalidInputError

#: Prefix of an id -> path of the resource's page.
_PAGES = {
    "ses": "sessions",
    "end": "endpoints",
    "bnk": "banks",
    "cal": "calibrations",
    "rnk": "rankings",
    "gat": "gates",
}


@fail_clearly
def command(
    what: Annotated[
        str | None,
        typer.Argument(help="Id of a session, an endpoint, a bank ...; by default the start page."),
    ] = None,
    server: AskServerOption = None,
) -> None:
    """Open a page of the server in a browser; if there is none, or in a pipe, print its address."""
    from app.settings import Settings

    page = ""
    if what is not None:
        kind, _, rest = what.partition("_")
        if kind not in _PAGES or not (rest.isascii() and rest.isalnum()):
            raise InvalidInputError(
                f"expected an id such as ses_..., end_... or bnk_..., got {what!r}."
            )
        page = f"{_PAGES[kind]}/{what}"
    named = target(server, None)
    settings = Settings()
    address = f"{named.url if named else f'http://{settings.host}:{settings.port}'}/{page}"
    out.say(address)
    if named is None:
        err.print("If no server runs there: sextant serve", style="dim")
    if sys.stdout.isatty():
        typer.launch(address)
