"""`sextant report`: one HTML page that tells what a bank can do and what is wrong with it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli import console
from app.cli.console import fail_clearly, write_json
from app.cli.files import write_blocks
from app.cli.inputs import JsonOption, load_bank
from app.cli.options import file_option
from app.cli.runtime import runtime
from app.errors import InvalidInputError
from app.exchange.calibration_file import CalibrationFile, read_calibration
from app.reports.version.facts import VersionReport
from app.reports.version.page import render
from app.services.banks.report import file_report


@fail_clearly
def command(
    bank: Annotated[
        Path | None,
        file_option(help="Bank file, of `sextant calibrate`."),
    ] = None,
    calibration: Annotated[
        Path | None,
        file_option(help="What `sextant calibrate --json` wrote: adds fit, items and intervals."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="A stored version instead of a file: BANK, or BANK/NUMBER."),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Name of the bank; by default that of the file.")
    ] = None,
    out: Annotated[str, typer.Option(help="HTML file to write; - is stdout.")] = "report.html",
    json: JsonOption = None,
) -> None:
    """Write a report of a bank that anybody can read, as one HTML file."""
    if version is not None:
        if bank is not None or calibration is not None or title is not None:
            raise InvalidInputError("--version names all there is: leave --bank and the rest out.")
        report = _stored(version)
    elif bank is not None:
        report = file_report(
            title or bank.name.partition(".")[0] or bank.name,
            load_bank(bank, several=True),
            None if calibration is None else _calibration(calibration),
        )
    else:
        raise InvalidInputError("Name a bank file with --bank, or a stored version with --version.")
    write_blocks(out, [render(report).encode()])
    write_json(json, report.to_dict())
    if out != "-" and json != "-":
        console.out.print(f"Wrote {out}.", markup=False, soft_wrap=True)


def _calibration(path: Path) -> CalibrationFile:
    with path.open("rb") as stream:
        return read_calibration(stream, name=path.name)


def _stored(reference: str) -> VersionReport:
    bank, _, number = reference.partition("/")

    async def read() -> VersionReport:
        async with runtime() as services:
            return await services.version_reports.report(bank, number or None)

    return asyncio.run(read())
