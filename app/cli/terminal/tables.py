"""Tables and single values as the terminal shows them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len

from app.cli.terminal.console import out
from app.printable import printable
from app.records.fields import ends


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without frames; ids and names stay whole, however narrow the terminal is."""
    # Not rich's table, which cuts cells to fit: what is shown here is given to other commands.
    shown = [[" ".join(printable(cell).split("\n")) for cell in row] for row in (columns, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    for at, row in enumerate(shown):
        cells = zip(row, widths, strict=True)
        line = "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in cells)
        out.print(line.rstrip(), style=None if at else "bold", soft_wrap=True)


def show_list(
    found: Iterable[Mapping[str, Any]], columns: Mapping[str, str | Callable[[Any], str]]
) -> None:
    """Print what a list of the API holds.

    Args:
        found: Its entries.
        columns: Heading -> the field that is shown, a dash where it is None; or what tells it.
    """

    def cell(one: Mapping[str, Any], field: str | Callable[[Any], str]) -> str:
        if callable(field):
            return field(one)
        return "-" if one[field] is None else str(one[field])

    rows = [[cell(one, field) for field in columns.values()] for one in found]
    show_table([*columns], rows)


def show_facts(title: str, facts: Mapping[str, str], *, width: int | None = None) -> None:
    """Print what is known of one thing, a line each; the names take so many columns."""
    out.print(title, style="bold")
    width = width or max(map(len, facts), default=0) + 2
    for label, value in facts.items():
        out.print(f"  {label:<{width}}{value}", soft_wrap=True)


def show_limits(limits: Mapping[str, float | None]) -> None:
    """Print what a project or a key may use, a line each."""
    for name, value in limits.items():
        out.say(f"{name}  {'-' if value is None else value}")


def number(value: float | None, pattern: str = "+.2f") -> str:
    """A number that may be unknown."""
    return "-" if value is None else format(value, pattern).replace("%", " %")


def interval(
    told: Mapping[str, float | None] | None, pattern: str = "+.2f", times: float = 1.0
) -> str:
    """Both ends of an interval as REST tells it, times a factor; a dash where there is none."""
    if told is None:
        return "-"
    lo, hi = (None if end is None else times * end for end in ends(told))
    return f"{number(lo, pattern)} to {number(hi, pattern)}"


def ranks(entry: Mapping[str, Any]) -> str:
    """The ranks that one may have."""
    lo, hi = entry["rank_lo"], entry["rank_hi"]
    return f"{lo}" if lo == hi else f"{lo}-{hi}"


def money(usd: float | None) -> str:
    """US dollars."""
    return "-" if usd is None else f"${usd:.4f}"


def when(time: str | None) -> str:
    """A time of the API, to the minute, UTC."""
    return "-" if time is None else f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M}"


def who(endpoint: Mapping[str, Any] | None) -> str:
    """What people call an endpoint, or who answers by hand."""
    return "by hand" if endpoint is None else endpoint["name"] or endpoint["model"] or "-"
