"""`sextant logout`: forget the server and the key that `sextant login` remembers."""

from app.cli.console import fail_clearly, out
from app.cli.logins import forget_login


@fail_clearly
def command() -> None:
    """Forget the server and the key of `sextant login`."""
    out.print("Logged out." if forget_login() else "There was no login.")
