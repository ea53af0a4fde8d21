"""`sextant report`: write one HTML page on what a bank can do and what is wrong with it."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.servers.connection import asked, path_of
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal import console
from app.cli.terminal.console import JsonObject, write_file
from app.cli.terminal.options import file_option, output_option
from app.errors import InvalidInputError
from sextant_client import AsyncSextant


@on_server(json=SAME)
def command(
    bank: Annotated[
        Path | None,
        file_option(help="Bank file, from `sextant calibrate`."),
    ] = None,
    calibration: Annotated[
        Path | None,
        file_option(help="Output of `sextant calibrate --json`; adds fit, items and intervals."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(help="Instead of a file: a stored version, BANK or BANK/NUMBER."),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the report; by default the name of the file.")
    ] = None,
    out: Annotated[str, output_option(help="HTML file to write; - is stdout.")] = "report.html",
) -> None:
    """Write a report on a bank in plain words, as one HTML file."""
    if version is not None:
        if bank is not None or calibration is not None or title is not None:
            raise InvalidInputError(
                "--version brings its own bank, calibration and title: leave --bank, "
                "--calibration and --title out."
            )
        page, figures = asked(lambda client: _stored(client, version))
    elif bank is not None:
        page, figures = _of_file(bank, calibration, title)
    else:
        raise InvalidInputError("Name a bank file with --bank, or a stored version with --version.")
    write_file(out, page)
    if also_json(figures) and out != "-":
        console.out.say(f"Wrote {out}.")


def _of_file(bank: Path, calibration: Path | None, title: str | None) -> tuple[bytes, JsonObject]:
    # Imported late: commands that only talk to a server need not wait for these modules.
    from app.cli.lab.inputs import load_bank
    from app.exchange.calibration_file import read_calibration
    from app.reports.version.page import render
    from app.services.banks.report import file_report

    known = None
    if calibration is not None:
        with calibration.open("rb") as stream:
            known = read_calibration(stream, name=calibration.name)
    name = title or bank.name.partition(".")[0] or bank.name
    report = file_report(name, load_bank(bank, several=True), known)
    return render(report).encode(), report.to_dict()


async def _stored(client: AsyncSextant, reference: str) -> tuple[bytes, JsonObject]:
    bank, _, number = reference.partition("/")
    path = path_of("banks", bank, "versions", number or "latest", "report")
    return await client.download(f"{path}?format=html"), await client.request(
        "GET", f"{path}?format=json"
    )
