"""The protocols of published studies, run on data at hand; one module a study.

What each shows: tables with the published figures beside, and pictures.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from app.engine.bank import FloatArray

Cell = str | float | None

#: Figures that a study gives in a picture only, or not at all.
NOT_PRINTED = "-"


@dataclass(frozen=True, slots=True)
class Scatter:
    """Points of a picture; both axes begin where the values do."""

    x: FloatArray
    y: FloatArray
    x_label: str
    y_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One table of a study.

    Attributes:
        title: As the study names it, and what it is about.
        heads: Of the columns; one of them is what was published.
        rows: Text and numbers; None where there is no figure.
        note: What is not the same as in the study.
        missing: Data that it needs and the folder does not have; there are no rows then.
        scatter: A picture of it.
    """

    title: str
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    note: str = ""
    missing: str = ""
    scatter: Scatter | None = None


def read_printed(study: str) -> dict[str, dict[str, list[float | None]]]:
    """Figures that a study printed: table -> row -> in their order, None where there is none."""
    found: dict[str, dict[str, list[float | None]]] = {}
    text = files(__name__).joinpath(f"{study}.csv").read_text(encoding="utf-8")
    for table, row, *figures in csv.reader(text.splitlines()):
        found.setdefault(table, {})[row] = [float(one) if one else None for one in figures]
    return found
