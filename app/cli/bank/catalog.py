"""`sextant banks catalog` and `install`: list and install banks by name."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli.bank.bank_views import show_quarantine
from app.cli.servers.connection import path_of, reached, request
from app.cli.servers.logins import Target
from app.cli.servers.options import chosen, on_server
from app.cli.terminal.console import JsonObject, err, out, show_list
from app.cli.terminal.replies import failure_of
from app.errors import DownloadError, InvalidInputError
from sextant_client import AsyncSextant

#: Quarantined items that are printed; `sextant banks lint` lists them all.
_SHOWN = 10
_POLL_S = 0.3


@on_server()
def catalog() -> None:
    """List the banks that can be installed by name."""
    here = chosen().target is None
    show_list(
        _entries_here() if here else request("GET", "/v1/catalog")["data"],
        {
            "name": "name",
            "items": "items",
            "rows": lambda one: f"{one['rows']}" + (f" ({one['split']})" if one["split"] else ""),
            "licence": "licence",
            "calibrated as": _calibrated_as,
            "from": lambda one: "own folder" if one["own"] else "Sextant",
        },
    )
    err.print("Install one: sextant banks install NAME")


def _calibrated_as(entry: JsonObject) -> str:
    if (asked := entry["asked"]) is None:
        return f"here, of {entry['agents']} agents"
    return f"{asked['mode']}, {asked['shots']}-shot"


def _entries_here() -> list[JsonObject]:
    """Entries of this machine's catalogue; reading them needs no database."""
    from app.exchange.catalog.entry import Entry, read_catalogue
    from app.settings import Settings

    found: list[JsonObject] = []
    for name, listed in read_catalogue(Settings().catalog).items():
        entry = listed.entry
        asked = entry.asked.model_dump() if isinstance(entry, Entry) else None
        told = {"name": name, "licence": entry.licence, "asked": asked, "own": listed.own}
        found.append({**told, **entry.size._asdict()})
    return found


@on_server()
def install(
    name: Annotated[str, typer.Argument(help="Name of the entry; see `sextant banks catalog`.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Read the files from this folder, under the names of their sources, instead of "
            "downloading them.",
        ),
    ] = None,
) -> None:
    """Install a bank from the catalogue: questions with published parameters, or tasks of agents.

    A server does it in its worker, with files that it downloads itself.
    """
    named = chosen().target
    if named is None:
        result, quarantined = asyncio.run(_installed_here(name, folder))
    elif folder is not None:
        raise InvalidInputError(
            "--from names a folder of the machine where the database is: run it there, or let the "
            "server fetch the files."
        )
    else:
        result, quarantined = asyncio.run(_installed_there(name, named))
    active, set_aside = result["items"]["active"], result["items"]["quarantined"]
    show_quarantine(set_aside, quarantined)
    if result["was_there"]:
        out.print(f"{name} was installed already.")
    agents, rows, licence = result["agents"], result["rows"], result["licence"]
    if agents is None:
        made = [
            f"  joined to {rows:,} rows of the {result['split']} split"
            f" in the order `{result['order']}`",
            f"  few-shot  {_examples(result['few_shot'])}",
            f"  licence   {licence}; parameters: {result['parameters_licence'] or '-'}",
        ]
    else:
        made = [
            f"  calibrated here on what {agents:,} agents solved of {rows:,} "
            f"tasks  {result['calibration_id']}",
            f"  licence   {licence}",
        ]
    lines = [
        f"{name}: {active + set_aside:,} items with parameters, {active:,} to be asked, "
        f"{set_aside:,} set aside",
        *made,
        f"  version {result['bank_version']}  {result['bank_version_id']}  sha256 "
        f"{result['parameters_hash']}",
    ]
    lines += [
        f"  {group}  {file['name']}  {_checked(group, file)}"
        for group, file in result["files"].items()
    ]
    if (join := result.get("join_check")) and join["explanation"]:
        lines.append(f"  {join['explanation']}")
    if result["n_left_out"]:
        lines.append(f"  {result['n_left_out']} rows with parameters were not made into items")
    for line in lines:
        out.say(line)
    how = "Measure a model: sextant run --endpoint URL --model NAME --bank {}"
    if agents is not None:
        how = (
            "The bank has no texts of the tasks: run them in your own harness, and report the "
            "answers in manual sessions on bank {}"
        )
    err.say(how.format(name))


Installed = tuple[JsonObject, list[JsonObject]]


async def _installed_here(name: str, folder: Path | None) -> Installed:
    from app.api.schemas.catalog import InstallationResult
    from app.cli.servers.server import in_process

    async with in_process() as (client, services):
        shown = _Progress()
        _, result = await services.catalog.install_now(name, shown.tell, folder)
        told = InstallationResult.of(dict(result)).model_dump(mode="json")
        return await _with_quarantine(client, told)


async def _installed_there(name: str, named: Target) -> Installed:
    progress = _Progress()
    async with reached(named) as client:
        begun = await client.request("POST", f"/v1/catalog/{name}:install", json={})
        path = path_of("installations", str(begun["id"]))
        while True:
            found = await client.request("GET", path)
            progress.tell(found["progress"])
            if found["finished_at"] is not None:
                break
            await asyncio.sleep(_POLL_S)
        if found["result"] is None:
            raise DownloadError(failure_of(found) or f"The installation was {found['status']}.")
        return await _with_quarantine(client, found["result"])


async def _with_quarantine(client: AsyncSextant, made: JsonObject) -> Installed:
    path = f"/v1/banks/{made['bank_id']}/versions/{made['bank_version_id']}/items"
    page = await client.request("GET", f"{path}?status=quarantined&order=asc&limit={_SHOWN}")
    return made, page["data"]


def _examples(examples: JsonObject | None) -> str:
    if examples is None:
        return "none"
    origin = {
        "training_file": "rows of the training file",
        "rows_without_parameters": "rows of the split without parameters, which are not items",
    }.get(examples["origin"], examples["origin"])
    number, wanted = examples["number"], examples["wanted"]
    of = f" of {wanted} wanted" if number < wanted else ""
    count = "" if examples["origin"] == "none" else f"{number} examples{of}: "
    why = f" ({examples['why']})" if examples.get("why") else ""
    return f"{count}{origin}{why}"


def _checked(group: str, file: JsonObject) -> str:
    match file["checked_by"]:
        case "nothing":
            done = "" if group == "few_shot" else "; only its rows were counted"
            return f"NOT CHECKED: the entry has no hash of it{done}"
        case "hub":
            return "checked by the hash that the hub gives; the entry has none"
        case "content":
            return f"no hash is known; each answer was looked at; sha256 {file['sha256']}"
        case by:
            return f"checked by {by}"


class _Progress:
    """Prints a line to stderr for each phase, and for each quarter of a file."""

    def __init__(self) -> None:
        self._told: set[object] = set()

    def tell(self, progress: JsonObject) -> None:
        phase, file, done = progress.get("phase"), progress.get("file"), progress.get("bytes") or 0
        if phase is None or (phase == "fetching" and file is None):
            return
        what, quarter = phase, None
        if file is not None:
            whole = progress.get("of_bytes")
            quarter = 4 * done // whole if whole else None
            what = f"{phase} {file}: {done / 1e6:.1f} MB"
            what += f" of {whole / 1e6:.1f}" if whole else ""
        if (phase, file, quarter) not in self._told:
            self._told.add((phase, file, quarter))
            err.say(what)
