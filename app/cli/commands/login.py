"""`sextant login` and `logout`: save a server and the key for it, and remove them."""

import asyncio
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from app.cli.servers.connection import reached
from app.cli.servers.logins import Target, address, forget_login, keep_login
from app.cli.servers.options import on_server
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
        detail = error.detail.replace(f"or `sextant login {url}`", ways)
        raise InvalidInputError(f"Not logged in: {detail}") from None
    path = keep_login(Target(url, key))
    shown = "100 or more banks" if n_banks == 100 else count(n_banks, "bank")
    out.say(f"Logged in at {url} ({shown}).")
    err.print(f"Kept in {path}; `sextant logout` forgets it.", style="dim", soft_wrap=True)


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
