"""`sextant reproduce`: the tables of a published study, by its method and by the default one."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from markupsafe import Markup
from rich.table import Table

from app.cli.lab.inputs import JsonOption
from app.cli.lab.papers import NOT_PRINTED, Cell, Exhibit, Scatter
from app.cli.terminal import console
from app.cli.terminal.console import fail_clearly, write_file, write_json
from app.cli.terminal.options import output_option
from app.reports.charts import line_chart
from app.reports.rendering import document, fragment

#: Most points of a scatter plot; more would hide each other.
_MOST_POINTS = 400


@fail_clearly
def command(
    paper: Annotated[
        Literal["atlas", "continuous", "wild"], typer.Argument(help="Name of the study.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            exists=True, file_okay=False, help="Folder of recorded answers; see the docs."
        ),
    ],
    output: Annotated[
        str | None, output_option(help="Write one HTML page to this file; - is stdout.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    json: JsonOption = None,
) -> None:
    """Run the protocol of a published study on your data; shows its tables and yours side by side.

    For a table without data in the folder, it says which data is needed.
    """
    screen = console.err if "-" in (json, output) else console.out
    exhibits: list[Exhibit] = []
    for exhibit in import_module(f"app.cli.lab.papers.{paper}").reproduce(data, seed):
        exhibits.append(exhibit)
        if exhibit.missing:
            screen.print(f"{exhibit.title}: no data for it; needs {exhibit.missing}.")
            continue
        shown = Table(*exhibit.heads, title=exhibit.title, caption=exhibit.note or None)
        for row in exhibit.rows:
            shown.add_row(*map(_text, row))
        screen.print(shown)
    if output is not None:
        write_file(output, _page(paper, exhibits).encode())
    tables = [
        {name: value for name, value in asdict(one).items() if name != "scatter"}
        for one in exhibits
    ]
    write_json(json, {"paper": paper, "seed": seed, "tables": tables})


def _text(cell: Cell) -> str:
    if cell is None:
        return NOT_PRINTED
    return f"{cell:.4g}" if isinstance(cell, int | float) else cell


def _page(paper: str, exhibits: Sequence[Exhibit]) -> str:
    """Render all tables and scatter plots as one HTML page."""
    shown = [
        (
            one,
            [[*map(_text, row)] for row in one.rows],
            one.scatter and _picture(one.scatter, one.title),
        )
        for one in exhibits
    ]
    tables = fragment("exhibits.html", exhibits=shown)
    return document(f"Tables of the study {paper}", f"Sextant: {paper}", "Reproduction", tables)


def _picture(of: Scatter, title: str) -> Markup:
    some = np.linspace(0, len(of.x) - 1, min(len(of.x), _MOST_POINTS)).astype(int)
    lo, hi = float(of.x.min()), float(of.x.max())
    return line_chart(
        (lo, max(hi, lo + 1e-9)),
        (),
        title=title,
        description=f"{of.y_label} over {of.x_label}, a point a model.",
        x_label=of.x_label,
        y_label=of.y_label,
        top=max(float(of.y.max()), 1e-9),
        points=list(zip(of.x[some].tolist(), of.y[some].tolist(), strict=True)),
    )
