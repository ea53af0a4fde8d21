"""Terminal output: results on stdout, notes and errors on stderr, an error as one clear line."""

import functools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, ParamSpec, Protocol, TypeAlias, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typing_extensions import override

from app.errors import FieldProblem, InvalidInputError, SextantError
from app.printable import printable, printable_json
from app.reports.figures import dollars

P = ParamSpec("P")
R = TypeVar("R")
#: A JSON object that the API takes, or one that it gives and nobody has parsed yet.
JsonObject: TypeAlias = Mapping[str, Any]
#: Width where there is no terminal: text in a pipe or a file is neither cut nor wrapped.
_PIPE_COLUMNS = 100_000


class SafeConsole(Console):
    """Prints texts of servers and models as plain text, so that none acts as terminal commands."""

    def __init__(self, *, file: IO[str] | None = None, stderr: bool = False) -> None:
        # Square brackets and words between colons are plain text, since names of models, items and
        # files may contain them.
        super().__init__(file=file, stderr=stderr, highlight=False, markup=False, emoji=False)
        if not self.is_terminal:
            self.width = _PIPE_COLUMNS

    def say(self, text: str, *, style: str | None = None) -> None:
        """Print sentences; a terminal breaks them between words, and never within an address."""
        if self.is_terminal:
            fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
            text = "\n".join(fill(line, self.width) for line in text.split("\n"))
        self.print(text, style=style, soft_wrap=True)

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Every print, table and live display passes here, before rich adds its own codes.
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


#: Results go to stdout; notes, warnings and errors to stderr, so that `--json -` stays pure.
out = SafeConsole()
err = SafeConsole(stderr=True)

#: Kind of resource that may be missing -> the command that lists what exists.
_LISTS = {
    "API key": "keys list",
    "bank": "banks list",
    "baseline": "baselines list",
    "calibration": "calibrations list",
    "endpoint": "endpoints list",
    "entry of the catalogue": "banks catalog",
    "gate": "gates list",
    "item": "banks export BANK",
    "project": "projects list",
    "response set": "response-sets list",
    "session": "sessions list",
}
_MISSING = re.compile(rf"There is no ({'|'.join(_LISTS)}) '[^']*'\.( Did you mean .*\?)?$")
_TAKEN = "Among the endpoints there is already one"
#: Exit code of a command that refuses its input, as in most Unix tools.
USAGE_ERROR = 2
#: Most faults of one file that are printed; the rest is only counted.
MAX_PROBLEMS_SHOWN = 20


def fail_clearly(command: Callable[P, R], *, code: int = USAGE_ERROR) -> Callable[P, R]:
    """Turn a `SextantError` into its message on stderr and an exit code; never a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except SextantError as error:
            show_error(error)
            raise typer.Exit(code) from None

    return wrapped


def show_error(error: SextantError) -> None:
    """Print an error and the places that it names."""
    hint = ""
    if (missing := _MISSING.match(error.detail)) is not None:
        hint = f" `sextant {_LISTS[missing[1]]}` lists all there are."
    if error.detail.startswith(_TAKEN):
        hint = " `sextant endpoints delete` frees it for other settings; tests keep their results."
    err.say(f"Error: {error.detail}{hint}", style="red")
    for fault in faults_of(error):
        err.say(f"  {fault}")


def faults_of(error: SextantError) -> list[str]:
    """Lines about the places that an error names, as far as its message has no room for them."""
    left = [one for one in error.problems if not _tells(error, one)]
    shown, hidden = left[:MAX_PROBLEMS_SHOWN], len(left) - MAX_PROBLEMS_SHOWN
    more = [f"... and {hidden} more"] if hidden > 0 else []
    return [*(f"{problem.pointer}: {problem.detail}" for problem in shown), *more]


def _tells(error: SextantError, fault: FieldProblem) -> bool:
    """Whether the message of an error has this fault; that of a single one needs no place."""
    place = "" if len(error.problems) == 1 else f"{fault.pointer}: "
    return f"{place}{fault.detail.rstrip('.')}" in error.detail


def show_warning(text: str) -> None:
    """Print what is wrong, though the command goes on."""
    err.say(f"Warning: {text}", style="yellow")


def write_json(target: str | None, document: JsonObject) -> None:
    """Write one JSON object to a path, to stdout for `-`, or nowhere for None."""
    if target is None:
        return
    escapes = target == "-" and "utf" not in (sys.stdout.encoding or "utf").lower()
    text = printable_json(json.dumps(document, indent=2, ensure_ascii=escapes, allow_nan=False))
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        with written(f"--json: {target}"):
            Path(target).write_text(text + "\n", encoding="utf-8")


@contextmanager
def written(name: str) -> Iterator[None]:
    """Turn a failure to write in the block into an `InvalidInputError` that names the file."""
    try:
        yield
    except OSError as exc:
        raise InvalidInputError(f"{name}: cannot be written: {exc.strerror}.") from exc


@contextmanager
def writing(target: str) -> Iterator[BinaryIO]:
    """Open a path, or stdout for `-`, for writing, as `written`; deletes an unfinished file."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with written(target):
        try:
            with part.open("wb") as stream:
                yield stream
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_file(target: str, content: bytes) -> None:
    """Write a file, or to stdout for `-`, as `writing`."""
    with writing(target) as stream:
        stream.write(content)


M = TypeVar("M")
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
    """Print the entries of a list of the API, parsed or as they came."""

    def cell(one: M, field: str | Callable[[M], str]) -> str:
        if callable(field):
            return field(one)
        value = one[field] if isinstance(one, Mapping) else getattr(one, field)
        return "-" if value is None else str(value)

    show_table([*columns], [[cell(one, field) for field in columns.values()] for one in entries])


def show_facts(title: str, facts: Mapping[str, str], *, width: int | None = None) -> None:
    """Print facts on one thing, one a line; `width` is that of the names."""
    out.print(title, style="bold")
    width = width or max(map(len, facts), default=0) + 2
    for label, value in facts.items():
        out.print(f"  {label:<{width}}{value}", soft_wrap=True)


def number(value: float | None, pattern: str = "+z.2f") -> str:
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


def interval(told: Ends | None, pattern: str = "+z.2f", times: float = 1.0) -> str:
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
    return "-" if usd is None else dollars(usd)


def when(time: datetime | str | None) -> str:
    """Format a time of the API: UTC, to the minute."""
    at = datetime.fromisoformat(time) if isinstance(time, str) else time
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M}"
