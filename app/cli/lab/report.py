"""`sextant report`: one HTML page that tells what a bank can do and what is wrong with it."""

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.servers.connection import asked
from app.cli.terminal import console
from app.cli.terminal.console import fail_clearly, write_json
from app.cli.terminal.files import write_file
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption, file_option
from app.errors import InvalidInputError
from sextant_client import AsyncSextant


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
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Write a report of a bank that anybody can read, as one HTML file."""
    if version is not None:
        if bank is not None or calibration is not None or title is not None:
            raise InvalidInputError("--version names all there is: leave --bank and the rest out.")
        page, figures = asked(server, server_key, lambda client: _stored(client, version))
    elif bank is not None:
        page, figures = _of_file(bank, calibration, title)
    else:
        raise InvalidInputError("Name a bank file with --bank, or a stored version with --version.")
    write_file(out, page)
    write_json(json, figures)
    if out != "-" and json != "-":
        console.out.say(f"Wrote {out}.")


def _of_file(
    bank: Path, calibration: Path | None, title: str | None
) -> tuple[bytes, dict[str, Any]]:
    # Whoever only talks to a server need not wait until all this is loaded.
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


async def _stored(client: AsyncSextant, reference: str) -> tuple[bytes, dict[str, Any]]:
    bank, _, number = reference.partition("/")
    version = quote(number, safe="") or "latest"
    path = f"/v1/banks/{quote(bank, safe='')}/versions/{version}/report"
    return await client.download(f"{path}?format=html"), await client.request(
        "GET", f"{path}?format=json"
    )
