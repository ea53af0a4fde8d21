"""The two files that the offline commands read."""

from pathlib import Path
from typing import Annotated

import typer

from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError
from app.exchange.parameters import read_parameters
from app.exchange.responses import read_responses

BankOption = Annotated[
    Path,
    typer.Option(
        "--bank",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Item parameters: X,a1,d,g,u (mirt) or item,a,b,c,d; with a column k of"
        " continuous scores; .csv or .csv.gz.",
    ),
]
ResponsesOption = Annotated[
    Path,
    typer.Option(
        "--responses",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Scores: one row an examinee and one column an item, or examinee,item,score;"
        " .csv, .csv.gz or .parquet.",
    ),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write one JSON object there; - is stdout.")
]


def load_bank(path: Path) -> ItemBank:
    """The bank in a parameter file.

    Raises:
        InvalidInputError: The file cannot be opened, or is not what it should be.
    """
    try:
        with path.open("rb") as stream:
            return read_parameters(stream, name=path.name)
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be read: {exc.strerror}.") from exc


def load_responses(path: Path) -> ResponseTable:
    """The scores in a response file.

    Raises:
        InvalidInputError: The file cannot be opened, or is not what it should be.
    """
    try:
        with path.open("rb") as stream:
            return read_responses(stream, name=path.name)
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be read: {exc.strerror}.") from exc
