"""`sextant banks list`, `show`, `lint`, `export` and `delete`."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from app.cli.servers.connection import asked, listed, path_of
from app.cli.servers.options import SAME, also_json, chosen, on_server
from app.cli.terminal.console import Json, err, out, write_file
from app.cli.terminal.options import EraseOption
from app.cli.terminal.tables import show_facts, show_list
from sextant_client import AsyncSextant

Name = Annotated[str, typer.Argument(help="Name or id of the bank.")]

#: Banks that are read at once.
_PAGE = 100
#: Quarantined items that `show` prints; `sextant banks lint` has them all.
_SHOWN = 10
_MODES = {"loglikelihood": "options compared by likelihood", "generate": "answers written"}


@on_server()
def list_banks() -> None:
    """List all banks."""
    here = chosen().target is None
    found = asyncio.run(_stored()) if here else listed("/v1/banks?order=asc")
    show_list(
        [bank | _figures_of(bank["latest_version"]) for bank in found],
        {
            "name": "name",
            "items": "n_items",
            "version": "version",
            "active": "active",
            "model": "model",
            "id": "id",
        },
    )


async def _stored() -> list[Json]:
    """The banks of this machine's database, without loading all that an API is made of."""
    from app.cli.terminal.runtime import open_database
    from app.services.banks.overviews import list_banks as overviews
    from app.settings import Settings
    from app.storage.paging import PageRequest

    found: list[Json] = []
    after = None
    async with open_database(Settings()) as database:
        while True:
            request = PageRequest(limit=_PAGE, after=after, descending=False)
            page = await overviews(database, request)
            for one in page.items:
                latest = one.latest and asdict(one.latest)
                found.append({**asdict(one.bank), "n_items": one.n_items, "latest_version": latest})
            if not page.has_more:
                return found
            after = page.items[-1].bank.id


def _figures_of(version: Json | None) -> Json:
    """What a list shows of a bank's latest version."""
    if version is None:
        return {"version": None, "active": None, "model": None}
    provisional = " (provisional)" if version["provisional"] else ""
    return {
        "version": f"{version['number']}{provisional}",
        "active": version["lint"]["items"]["active"],
        "model": version["response_model"],
    }


@on_server(json=SAME)
def show(name: Name) -> None:
    """Show a bank and its versions."""
    path = _path(name)

    async def read(client: AsyncSextant) -> Json:
        bank = await client.request("GET", path)
        versions = await client.list_all(f"{path}/versions?order=asc")
        quarantined: list[Json] = []
        if versions:
            items = f"{path}/versions/{versions[-1]['id']}/items?status=quarantined"
            quarantined = await client.list_all(items, limit=_SHOWN)
        return {"bank": bank, "versions": versions, "quarantined": quarantined}

    found = asked(read)
    if not also_json(found):
        return
    bank, versions = found["bank"], found["versions"]
    if found["quarantined"]:
        count = versions[-1]["lint"]["items"]["quarantined"]
        show_quarantine(count, found["quarantined"])
    scorer = bank["default_scorer"]
    facts = {
        "id": bank["id"],
        "description": bank["description"] or "-",
        "licence": bank["licence"] or "-",
        "source": bank["source"] or "-",
        "visibility": bank["visibility"],
        "scorer": "not shown" if scorer is None else scorer["name"],
        "answers end": "not shown" if scorer is None else _ends(bank["prompt"]["stop"]),
        "unparsed": bank["unparsed_policy"],
        "pretest": f"{bank['pretest_items']} items a session",
        "items": str(bank["n_items"]),
    }
    show_facts(bank["name"], facts, width=12)
    for version in versions:
        show_version(version)


@on_server()
def lint(name: Name) -> None:
    """List what is wrong with the items of a bank's latest version."""
    path = f"{_path(name)}/versions/latest"

    async def read(client: AsyncSextant) -> tuple[Json, list[Any], Json]:
        version = await client.request("GET", path)
        again = await client.request("GET", f"{path}/recalibration")
        said = again if again["provisional"] else await client.request("GET", f"{path}/join")
        return version, await client.list_all(f"{path}/lint"), said

    version, flagged, said_of = asked(read)
    lines = [
        (flag["severity"] != "error", flag["severity"], flag["code"], item["status"], flag)
        for item in flagged
        for flag in item["flags"]
    ]
    lines.sort(key=lambda line: line[0])  # what quarantines before what warns
    said: dict[str, int] = {}
    for _, severity, code, status, flag in lines:
        line = f"{severity:<8}{code:<20}{status:<12}{flag['message']}"
        said[line] = said.get(line, 0) + 1
    for line, times in said.items():
        often = f" ({times} times)" if times > 1 else ""
        out.say(line + often)
    show_version(version)
    err.say(said_of["explanation"])


@on_server()
def export(
    name: Name,
    file_format: Annotated[
        Literal["mirt", "csv", "py-irt", "parquet", "jsonl"],
        typer.Option(
            "--format",
            help="mirt: X,a1,d,g,u; csv: item,a,b,c,d(,k); py-irt; parquet; jsonl: with content.",
        ),
    ] = "mirt",
    target: Annotated[str, typer.Option("--out", help="File to write; - is stdout.")] = "-",
    version: Annotated[
        int | None, typer.Option(min=1, help="Number of the version; by default the latest.")
    ] = None,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle",
            help="All of it as one file: questions, parameters, what reference models taught, "
            "licence, and a hash over it.",
        ),
    ] = False,
) -> None:
    """Write a version of a bank into a file that imports read back."""
    what = "bundle" if bundle else f"export?format={file_format}"

    async def read(client: AsyncSextant) -> tuple[int, bytes]:
        found = await client.request("GET", f"{_path(name)}/versions/{version or 'latest'}")
        path = f"{_path(name)}/versions/{found['id']}/{what}"
        return found["number"], await client.download(path)

    number, content = asked(read)
    write_file(target, content)
    if target != "-":
        out.say(f"Wrote version {number} to {target}.")


@on_server()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    erase: EraseOption = False,
) -> None:
    """Delete a bank and free its name. Tests on its versions keep their results."""
    confirm(f"Delete the bank {name!r}?", yes=yes)
    asked(lambda client: client.remove(_path(name), erase=erase))
    out.say(f"Deleted {name}.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something goes for good; where nobody can answer, `--yes` must have been given.

    Raises:
        Exit: The answer was no.
    """
    if yes or not err.is_terminal:
        return
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def show_quarantine(count: int, items: list[Json]) -> None:
    """Print which items lint keeps out of tests, and why."""
    for item in items[:_SHOWN]:
        own = f"Item {item['key']!r}: "
        told = [flag["message"].removeprefix(own).removesuffix(".") for flag in item["flags"]]
        why = "; ".join(told) or "-"
        out.say(f"set aside {item['key']}: {why}")
    if count > min(_SHOWN, len(items)):
        more = count - min(_SHOWN, len(items))
        out.print(f"... and {more:,} more: sextant banks lint lists all")


def show_version(version: Json) -> None:
    """Print a version in two lines."""
    states = ", ".join(f"{count} {state}" for state, count in version["lint"]["items"].items())
    known = version["knowledge"]
    notes = [
        note
        for note, applies in (
            ("provisional parameters", version["provisional"]),
            ("no content: for manual sessions and simulation only", not version["has_content"]),
            (_obtained(known.get("asked", {})), "asked" in known),
            (
                f"unparseable answers counted as {known.get('unparsed_policy')}",
                "unparsed_policy" in known,
            ),
        )
        if applies
    ]
    line = (
        f"version {version['number']}: {version['response_model']}, scale {version['scale']}, "
        f"{states}"
    )
    out.say("; ".join([line, *notes]))
    hashed = f"  {version['id']}  sha256 {version['parameters_hash']}"
    out.say(hashed)


def _ends(stop: Sequence[str]) -> str:
    """Where answers are cut off."""
    return " or ".join(f"at {mark!r}" for mark in stop) or "where the model ends them"


def _obtained(known: Json) -> str:
    """How the answers behind the parameters were obtained."""
    parts = [_MODES[known["mode"]]] if known.get("mode") in _MODES else []
    if "shots" in known:
        parts.append("1 example" if known["shots"] == 1 else f"{known['shots']} examples")
    if "max_tokens" in known:
        parts.append(f"at most {known['max_tokens']} tokens each")
    if "temperature" in known:
        parts.append(f"temperature {known['temperature']:g}")
    if "source" in known:
        parts.append(str(known["source"]))
    return "reference models: " + (", ".join(parts) or "asked in an unknown way")


def _path(name: str) -> str:
    return path_of("banks", name)
