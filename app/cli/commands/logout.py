"""`sextant logout`: forget the server and the key that `sextant login` remembers."""

from app.cli.servers.logins import forget_login
from app.cli.terminal.console import fail_clearly, out


@fail_clearly
def command() -> None:
    """Forget the server and the key of `sextant login`."""
    out.print("Logged out." if forget_login() else "There was no login.")
