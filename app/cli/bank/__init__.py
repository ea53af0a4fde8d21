"""Commands of `sextant banks` that have their own modules, and what they share."""

from collections.abc import Iterable

import typer

from app.cli.servers.connection import FAILED
from app.cli.terminal.console import JsonObject, err
from app.reports.formats import count

#: Stands for a file's content in a request body, where this process reads the file from disk.
UNREAD = {"name": "from disk", "content": "-"}


def require_whole_files(skipped: Iterable[JsonObject]) -> None:
    """End the command as failed if rows cannot be read: nobody chose to leave these out."""
    if n := sum(one["count"] for one in skipped if one["reason"] == "unreadable"):
        err.say(
            f"Error: {count(n, 'row')} cannot be read, as where a file is cut off or damaged. The "
            "others count; with the whole file, the same command adds what is missing.",
            style="red",
        )
        raise typer.Exit(FAILED)
