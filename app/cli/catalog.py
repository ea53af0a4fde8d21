"""`sextant banks catalog` and `sextant banks install`: banks by name."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from app.cli.console import err, fail_clearly, out

if TYPE_CHECKING:
    from app.records.banks import VersionItem

#: Quarantined items that are listed; `sextant banks lint` has them all.
_SHOWN = 10

app = typer.Typer(help="Banks that can be installed by name.")


@app.command()
@fail_clearly
def catalog() -> None:
    """List the banks that can be installed by name."""
    from app.exchange.catalog.entry import read_catalogue
    from app.settings import Settings

    name, licence = Column("name", no_wrap=True), Column("licence", no_wrap=True)
    table = Table(name, "items", "rows", licence, "calibrated as", "from", box=None)
    for entry_name, listed in read_catalogue(Settings().catalog).items():
        entry = listed.entry
        table.add_row(
            entry_name,
            str(entry.parameters.items),
            f"{entry.questions.rows} ({entry.questions.split})",
            entry.licence,
            f"{entry.asked.mode}, {entry.asked.shots}-shot",
            "own folder" if listed.own else "Sextant",
        )
    out.print(table, soft_wrap=True)
    err.print("Install one: sextant banks install NAME", markup=False)


@app.command()
@fail_clearly
def install(
    name: Annotated[str, typer.Argument(help="Of the entry; see `sextant banks catalog`.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Take the files from here, under the names that their sources give them, instead "
            "of downloading them.",
        ),
    ] = None,
) -> None:
    """Install a bank of the catalogue: its questions, joined to their published parameters."""

    async def run() -> tuple[Mapping[str, Any], "Sequence[VersionItem]"]:
        from app.cli.runtime import runtime
        from app.storage.paging import PageRequest

        async with runtime() as services:
            version, result = await services.catalog.install_now(name, _Progress().tell, folder)
            page = await services.versions.items(
                version.bank_id,
                version.id,
                PageRequest(limit=_SHOWN, descending=False),
                status="quarantined",
            )
            return result, page.items

    result, quarantined = asyncio.run(run())
    show_quarantine(result["items"]["quarantined"], quarantined)
    if result["was_there"]:
        out.print(f"{name} was installed already.", markup=False)
    items = result["items"]
    with_parameters = items["active"] + items["quarantined"]
    lines = [
        f"{name}: {with_parameters:,} items with parameters, {items['active']:,} to be asked, "
        f"{items['quarantined']:,} in quarantine",
        f"  joined to {result['rows']:,} rows of the {result['split']} split"
        f" in the order `{result['join']['order']}`",
        f"  few-shot  {_examples(result['few_shot'])}",
        f"  licence   {result['licence']}; parameters: {result['parameters_licence'] or '-'}",
        f"  version {result['bank_version']}  {result['bank_version_id']}  sha256 "
        f"{result['parameters_hash']}",
    ]
    lines += [
        f"  {group}  {file['name']}  {_checked(file)}" for group, file in result["files"].items()
    ]
    if result.get("join_check"):
        lines.append(f"  {result['join_check']['explanation']}")
    if result["n_left_out"]:
        first = result["left_out"][0]
        lines.append(
            f"  {result['n_left_out']} rows with parameters are no items, the first "
            f"{first['name']}: {first['reason']}"
        )
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    err.print(
        f"Measure a model: sextant run --endpoint URL --model NAME --bank {name}",
        markup=False,
        soft_wrap=True,
    )


def show_quarantine(count: int, items: "Sequence[VersionItem]") -> None:
    """Print which items lint keeps out of tests, and why."""
    for item in items[:_SHOWN]:
        why = "; ".join(flag["message"] for flag in item.flags) or "-"
        out.print(f"quarantined {item.key}: {why}", markup=False, soft_wrap=True)
    if count > min(_SHOWN, len(items)):
        more = count - min(_SHOWN, len(items))
        out.print(f"... and {more:,} more: sextant banks lint lists all", markup=False)


def _examples(examples: Mapping[str, Any]) -> str:
    origin = {
        "training_file": "rows of the training file",
        "rows_without_parameters": "rows of the split that have no parameters, and are no items",
        "none": "none",
    }[examples["from"]]
    count = "" if examples["from"] == "none" else f"{examples['number']} examples: "
    why = f" ({examples['why']})" if "why" in examples else ""
    return f"{count}{origin}{why}"


def _checked(file: Mapping[str, str]) -> str:
    if file["checked_by"] == "nothing":
        return "no hash of it is known: only its rows were counted"
    return f"checked by {file['checked_by']}"


class _Progress:
    """One line on stderr for each file and phase."""

    def __init__(self) -> None:
        self._told: set[object] = set()

    def tell(self, progress: Mapping[str, Any]) -> None:
        phase, file, done = progress["phase"], progress.get("file"), progress.get("bytes")
        if phase == "fetching" and file is None:
            return
        what = phase
        if file is not None:
            whole = progress.get("of_bytes")
            quarter = 4 * (done or 0) // whole if whole else None
            what = f"{phase} {file}: {(done or 0) / 1e6:.1f} MB"
            what += f" of {whole / 1e6:.1f}" if whole else ""
            if (file, quarter) in self._told:
                return
            self._told.add((file, quarter))
        err.print(what, markup=False, soft_wrap=True)
