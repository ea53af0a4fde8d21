"""Tables and single values on the terminal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

from pydantic import BaseModel
from rich.cells import cell_len

from app.cli.terminal.console import out
from app.printable import printable

M = TypeVar("M", bound=BaseModel)
#: Heading -> the field to show, with a dash for None, or a function that makes the text.
Columns: TypeAlias = Mapping[str, str | Callable[[M], str]]


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without frames; ids and names stay whole on narrow terminals, too."""
    # rich's table would cut cells to fit, but people pass these ids to other commands.
    shown = [[" ".join(printable(cell).split("\n")) for cell in row] for row in (columns, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    for at, row in enumerate(shown):
        cells = zip(row, widths, strict=True)
        line = "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in cells)
        out.print(line.rstrip(), style=None if at else "bold", soft_wrap=True)


def show_list(entries: Iterable[M], columns: Columns[M]) -> None:
    """Print the entries of a list of the API."""

    def cell(one: M, field: str | Callable[[M], str]) -> str:
        if callable(field):
            return field(one)
        value = getattr(one, field)
        return "-" if value is None else str(value)

    show_table([*columns], [[cell(one, field) for field in columns.values()] for one in entries])


def show_facts(title: str, facts: Mapping[str, str], *, width: int | None = None) -> None:
    """Print facts on one thing, one a line; `width` is that of the names."""
    out.print(title, style="bold")
    width = width or max(map(len, facts), default=0) + 2
    for label, value in facts.items():
        out.print(f"  {label:<{width}}{value}", soft_wrap=True)


def number(value: float | None, pattern: str = "+.2f") -> str:
    """Format a number that may be unknown."""
    return "-" if value is None else format(value, pattern).replace("%", " %")


class Ends(Protocol):
    """An interval with two ends; None stands for an open end."""

    @property
    def lo(self) -> float | None:
        """The lower end."""

    @property
    def hi(self) -> float | None:
        """The upper end."""


def interval(told: Ends | None, pattern: str = "+.2f", times: float = 1.0) -> str:
    """Format both ends of an interval, times a factor; a dash where there is none."""
    if told is None:
        return "-"
    lo, hi = (None if end is None else times * end for end in (told.lo, told.hi))
    return f"{number(lo, pattern)} to {number(hi, pattern)}"


def ranks(lo: int, hi: int) -> str:
    """Format the range of possible ranks."""
    return f"{lo}" if lo == hi else f"{lo}-{hi}"


def money(usd: float | None) -> str:
    """Format US dollars."""
    return "-" if usd is None else f"${usd:.4f}"


def when(time: datetime | None) -> str:
    """Format a time of the API: UTC, to the minute."""
    return "-" if time is None else f"{time:%Y-%m-%d %H:%M}"
