"""`sextant banks list`, `show`, `lint`, `export` and `delete`."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal

import typer

from app.cli.servers.connection import asked, listed, path_of
from app.cli.servers.options import SAME, also_json, chosen, on_server
from app.cli.terminal import replies
from app.cli.terminal.console import JsonObject, err, out, show_facts, show_list, write_file
from app.cli.terminal.options import EraseOption, YesOption, confirm, output_option
from app.cli.terminal.replies import at, read_all
from app.reports.formats import count
from sextant_client import AsyncSextant
from sextant_client.models import Model

Name = Annotated[str, typer.Argument(help="Name or id of the bank.")]
_path = partial(path_of, "banks")

#: Banks read with one request.
_PAGE = 100
#: Most sessions that are counted before a bank is deleted.
_COUNTED = 100
#: Quarantined items that `show` prints; `sextant banks lint` lists them all.
_SHOWN = 10
_MODES = {"loglikelihood": "options compared by likelihood", "generate": "answers written"}


class Version(replies.Version):
    """One version of a bank, with what the calibration learned beside the parameters."""

    asked: JsonObject | None = at("knowledge", "asked", default=None)
    unparsed_policy: str | None = at("knowledge", "unparsed_policy", default=None)


class _ListedBank(Model):
    id: str
    name: str
    n_items: int
    number: int | None = at("latest_version", "number", default=None)
    provisional: bool = at("latest_version", "provisional", default=False)
    active: int | None = at("latest_version", "lint", "items", "active", default=None)
    response_model: str | None = at("latest_version", "response_model", default=None)

    @property
    def version(self) -> str | None:
        note = " (provisional)" if self.provisional else ""
        return None if self.number is None else f"{self.number}{note}"


@on_server()
def list_banks() -> None:
    """List all banks."""
    here = chosen().target is None
    found = asyncio.run(_stored()) if here else listed("/v1/banks?order=asc")
    show_list(
        map(_ListedBank.model_validate, found),
        {
            "name": "name",
            "items": "n_items",
            "version": "version",
            "active": "active",
            "model": "response_model",
            "id": "id",
        },
    )


async def _stored() -> list[JsonObject]:
    """Read the banks of this machine's database without importing the whole API."""
    from app.cli.terminal.runtime import open_database
    from app.services.banks.overviews import list_banks as overviews
    from app.settings import Settings
    from app.storage.paging import PageRequest

    found: list[JsonObject] = []
    after = None
    async with open_database(Settings()) as database:
        while True:
            request = PageRequest(limit=_PAGE, after=after, descending=False)
            page = await overviews(database, request)
            for one in page.items:
                latest = None if one.latest is None else asdict(one.latest)
                bank: JsonObject = {"id": one.bank.id, "name": one.bank.name}
                found.append({**bank, "n_items": one.n_items, "latest_version": latest})
            if not page.has_more:
                return found
            after = page.items[-1].bank.id


@on_server(json=SAME)
def show(name: Name) -> None:
    """Show a bank and its versions."""
    path = _path(name)

    async def read(client: AsyncSextant) -> JsonObject:
        bank = await client.request("GET", path)
        versions = await client.list_all(f"{path}/versions?order=asc")
        quarantined: list[JsonObject] = []
        if versions:
            items = f"{path}/versions/{versions[-1]['id']}/items?status=quarantined"
            quarantined += await client.list_all(items, limit=_SHOWN)
        return {"bank": bank, "versions": versions, "quarantined": quarantined}

    document = asked(read)
    if not also_json(document):
        return
    bank, versions = document["bank"], read_all(Version, document["versions"])
    if document["quarantined"]:
        show_quarantine(versions[-1].quarantined, document["quarantined"])
    scorer, prompt = bank.get("default_scorer"), bank.get("prompt")  # null where they are withheld
    marks = [] if prompt is None else prompt["stop"]
    ends = " or ".join(f"at {mark!r}" for mark in marks) or "where the model ends them"
    facts = {
        "id": bank["id"],
        "description": bank["description"] or "-",
        "licence": bank["licence"] or "-",
        "source": bank["source"] or "-",
        "visibility": bank["visibility"],
        "scorer": "not shown" if scorer is None else scorer["name"],
        "answers end": "not shown" if prompt is None else ends,
        "unparsed": bank["unparsed_policy"],
        "pretest": f"{bank['pretest_items']} items a session",
        "items": str(bank["n_items"]),
    }
    show_facts(bank["name"], facts, width=12)
    for version in versions:
        show_version(version)


@on_server()
def lint(name: Name) -> None:
    """List the lint findings of a bank's latest version."""
    path = f"{_path(name)}/versions/latest"

    async def read(client: AsyncSextant) -> tuple[JsonObject, list[JsonObject], JsonObject]:
        version = await client.request("GET", path)
        again = await client.request("GET", f"{path}/recalibration")
        advice = again if again["provisional"] else await client.request("GET", f"{path}/join")
        return version, [*await client.list_all(f"{path}/lint")], advice

    version, flagged, advice = asked(read)
    lines = [
        (
            flag["severity"],
            f"{flag['severity']:<8}{flag['code']:<20}{item['status']:<12}{flag['message']}",
        )
        for item in flagged
        for flag in item["flags"]
    ]
    lines.sort(key=lambda line: line[0] != "error")  # errors first: they quarantine
    for line, times in Counter(line for _, line in lines).items():
        out.say(f"{line} ({times} times)" if times > 1 else line)
    show_version(Version.model_validate(version))
    err.say(str(advice["explanation"]))


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
    target: Annotated[str, output_option("--out", help="File to write; - is stdout.")] = "-",
    version: Annotated[
        int | None, typer.Option(min=1, help="Number of the version; by default the latest.")
    ] = None,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle",
            help="Export everything as one file: questions, parameters, knowledge about the "
            "reference models, licence, and a hash of it all.",
        ),
    ] = False,
) -> None:
    """Export a version of a bank to a file that can be imported again."""
    what = "bundle" if bundle else f"export?format={file_format}"

    async def read(client: AsyncSextant) -> tuple[int, bytes]:
        found = Version.model_validate(
            await client.request("GET", f"{_path(name)}/versions/{version or 'latest'}")
        )
        path = f"{_path(name)}/versions/{found.id}/{what}"
        return found.number, await client.download(path)

    number, content = asked(read)
    write_file(target, content)
    if target != "-":
        out.say(f"Wrote version {number} to {target}.")


@on_server()
def delete(
    name: Name,
    yes: YesOption = False,
    erase: EraseOption = False,
) -> None:
    """Delete a bank and free its name. Tests on its versions keep their results."""
    uses = "" if yes else asked(partial(_uses, name=name))
    confirm(f"{uses}Delete the bank {name!r}?", yes=yes)
    asked(lambda client: client.remove(_path(name), erase=erase))
    out.say(f"Deleted {name}.")


async def _uses(client: AsyncSextant, name: str) -> str:
    """Say how many sessions and baselines a bank has; they outlast it."""
    found = await client.request("GET", _path(name))
    sessions = await client.list_all(
        "/v1/sessions", limit=_COUNTED + 1, params={"bank_id": str(found["id"])}
    )
    baselines = [
        one for one in await client.list_all("/v1/baselines") if one["bank"] == found["name"]
    ]
    more = "more than " if len(sessions) > _COUNTED else ""
    counts = {"session": min(len(sessions), _COUNTED), "baseline": len(baselines)}
    parts = [count(n, what) for what, n in counts.items() if n]
    return f"The bank has {more}{' and '.join(parts)}, whose results stay. " if parts else ""


def show_quarantine(count: int, items: Sequence[JsonObject]) -> None:
    """Print which items lint keeps out of tests, and why."""
    for item in items[:_SHOWN]:
        own = f"Item {item['key']!r}: "
        told = [flag["message"].removeprefix(own).removesuffix(".") for flag in item["flags"]]
        out.say(f"set aside {item['key']}: {'; '.join(told) or '-'}")
    if count > min(_SHOWN, len(items)):
        more = count - min(_SHOWN, len(items))
        out.print(f"... and {more:,} more: sextant banks lint lists all")


def show_version(version: Version) -> None:
    """Print a version in two lines."""
    policy = version.unparsed_policy
    states = ", ".join(f"{count} {state}" for state, count in version.states.items())
    parts = [
        f"version {version.number}: {version.response_model}, scale {version.scale}, {states}",
        "provisional parameters" if version.provisional else "",
        "" if version.has_content else "no content: for manual sessions and simulation only",
        "" if version.asked is None else _obtained(version.asked),
        f"unparseable answers counted as {policy}" if policy else "",
    ]
    out.say("; ".join(filter(None, parts)))
    out.say(f"  {version.id}  sha256 {version.parameters_hash}")


def _obtained(known: JsonObject) -> str:
    """Describe how the answers for the calibration were obtained."""
    mode, shots, most, temperature, source = map(
        known.get, ("mode", "shots", "max_tokens", "temperature", "source")
    )
    parts = [_MODES[mode]] if mode in _MODES else []
    if shots is not None:
        parts.append(count(shots, "example"))
    if most is not None:
        parts.append(f"at most {most} tokens each")
    if temperature is not None:
        parts.append(f"temperature {temperature:g}")
    if source is not None:
        parts.append(source)
    return "reference models: " + (", ".join(parts) or "asked in an unknown way")
