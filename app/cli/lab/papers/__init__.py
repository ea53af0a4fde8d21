"""The protocols of published studies, run on data at hand; one module a study.

An exhibit is a table with the published figures beside ours, and a picture where it has one.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from app.cli.terminal.console import JsonObject
from app.engine.bank import FloatArray

Cell = str | float | None

#: Cell of a table where the study prints no figure, or shows it only in a picture.
NOT_PRINTED = "-"


@dataclass(frozen=True, slots=True)
class Scatter:
    """Points of a scatter plot; both axes begin at the smallest value."""

    x: FloatArray
    y: FloatArray
    x_label: str
    y_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One table of a study.

    Attributes:
        title: Name of the table in the study, and its subject.
        heads: Column headings; one of them is the published figure.
        rows: Cells with text or numbers; None where there is no figure.
        note: Differences from the study.
        missing: Data that the table needs and the folder lacks; `rows` is empty then.
        scatter: The table as a picture.
    """

    title: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    note: str = ""
    missing: str = ""
    scatter: Scatter | None = None


def of_length(n: int) -> JsonObject:
    """Stopping rules of a test with exactly `n` items."""
    return {"se": None, "score_margin": None, "min_items": n, "max_items": n}


def read_printed(study: str) -> dict[str, dict[str, list[float | None]]]:
    """Read a study's printed figures: table -> row -> figures in order, None for a missing one."""
    found: dict[str, dict[str, list[float | None]]] = {}
    text = files(__name__).joinpath(f"{study}.csv").read_text(encoding="utf-8")
    for table, row, *figures in csv.reader(text.splitlines()):
        found.setdefault(table, {})[row] = [float(one) if one else None for one in figures]
    return found
