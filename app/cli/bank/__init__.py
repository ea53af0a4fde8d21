"""Commands of `sextant banks` that have their own modules, and what they share."""

from collections.abc import Iterable

import typer
from pydantic import Field

from app.cli.servers.connection import FAILED
from app.cli.terminal.console import err
from app.reports.formats import count
from sextant_client.models import Model

#: Stands for a file's content in a request body, where this process reads the file from disk.
UNREAD = {"name": "from disk", "content": "-"}


class Skipped(Model):
    """Rows of files, or questions, that were left out for one reason."""

    reason: str
    count: int
    keys: list[str] = Field(default_factory=list)
    places: list[str] = Field(default_factory=list)


def require_whole_files(skipped: Iterable[Skipped]) -> None:
    """End the command as failed if a file is damaged: nobody chose to leave such rows out."""
    if n := sum(one.count for one in skipped if one.reason == "unreadable"):
        err.say(
            f"Error: {count(n, 'row')} cannot be read: a file is cut off or damaged. The others "
            "count; with the whole file, the same command adds what is missing.",
            style="red",
        )
        raise typer.Exit(FAILED)
