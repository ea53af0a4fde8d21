"""`sextant login`, `logout` and `open`: a server saved for later commands, and its pages."""

import asyncio
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app.cli.servers.connection import reached
from app.cli.servers.logins import Target, address, forget_login, keep_login, target
from app.cli.servers.options import ServerOption, on_server
from app.cli.terminal.console import err, fail_clearly, out, show_warning
from app.errors import InvalidInputError, SextantError
from app.reports.formats import count

_HERE = ("127.0.0.1", "localhost", "::1")


@on_server()
def command(
    server: Annotated[str, typer.Argument(help="Address of a Sextant server.")],
    server_key: Annotated[
        str | None,
        typer.Option(
            envvar="SEXTANT_API_KEY",
            help="API key; better typed at the prompt, piped in, or set as environment variable.",
        ),
    ] = None,
) -> None:
    """Save a server and the key for it; later commands use them.

    The key is stored in a file that only you can read. It is never shown, and
    sent to no other server. `sextant logout` removes both; `--server local` means
    the database of this machine.
    """
    url = address(server, given_as="SERVER")
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _HERE:
        show_warning("the key goes to this server unencrypted: use https:// where others listen.")
    key = (server_key if server_key is not None else _asked()).strip() or None

    async def look() -> int:
        async with reached(Target(url, key)) as client:
            return len((await client.request("GET", "/v1/banks?limit=100"))["data"])

    try:
        n_banks = asyncio.run(look())
    except SextantError as error:
        ways = "type the key at the prompt, or pipe it in"
        if server_key is not None:
            ways = "or unset it, and type the key at the prompt or pipe it in"
        detail = error.detail.replace(f"or `sextant login {url}`", ways)
        raise InvalidInputError(f"Not logged in: {detail}") from None
    path = keep_login(Target(url, key))
    shown = "100 or more banks" if n_banks == 100 else count(n_banks, "bank")
    by = "" if server_key is None else " by the key of --server-key or SEXTANT_API_KEY"
    out.say(f"Logged in at {url}{by} ({shown}).")
    err.say(f"Kept in {path}; `sextant logout` forgets it.", style="dim")


@fail_clearly
def logout() -> None:
    """Log out: remove the server and the key that `sextant login` saved."""
    out.print("Logged out." if forget_login() else "You were not logged in.")


def _asked() -> str:
    if sys.stdin.isatty():
        return str(
            typer.prompt(
                "API key (leave empty if the server needs none)",
                default="",
                hide_input=True,
                show_default=False,
                err=True,
            )
        )
    return sys.stdin.readline()


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
def open_page(
    what: Annotated[
        str | None,
        typer.Argument(help="Id of a session, an endpoint, a bank ...; by default the start page."),
    ] = None,
    server: ServerOption = None,
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
