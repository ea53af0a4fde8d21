"""`sextant banks`: import item banks and look at them."""

from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli.bank import UNREAD, bank_views, catalog, from_results, preview, recalibration
from app.cli.servers.connection import asked, path_of, there
from app.cli.servers.options import chosen, on_server
from app.cli.terminal.console import JsonObject, err, out
from app.cli.terminal.fields import Fields, below, option
from app.cli.terminal.options import (
    PUBLICATION,
    DryRunOption,
    file_option,
    given,
    unparsed_option,
)
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

#: Lint findings that an import prints; `sextant banks lint` lists them all.
_SHOWN = 10
_MODELS = "1pl, 2pl, 3pl, 4pl, continuous"
#: Settings of an import beside its files.
_FIELDS: Fields = {
    "/response_model": option(str, f"{_MODELS}; by default the smallest that fits."),
    "/unparsed_policy": unparsed_option(
        "How unparseable answers counted when the parameters were estimated (lm-eval: "
        "wrong); sessions do the same."
    ),
    "/scale": option(str, "Theta scale that the parameters are linked to, if any."),
    **below("", PUBLICATION, "/keep", "/allow"),
    "/from_version": option(
        str,
        "Version whose parameters the new one takes over: its number, or latest. New "
        "items go to pretest.",
    ),
    "/provisional": option(
        bool,
        "For own questions without any answers yet: guess parameters, so that they can "
        "be asked at once. Standard errors include the uncertainty of the guesses.",
        "--provisional",
    ),
    "/difficulty": option(
        Literal["given", "tags", "position", "none"],
        "Source of the difficulties that --provisional guesses: given (the items' field "
        "`difficulty`), tags (easy, level-3, ...), position (from easy to hard), or none.",
    ),
    "/target_after": option(
        str, "With --map: the target is the text after this mark, such as '####'."
    ),
    "/dry_run": DryRunOption,
}

app = typer.Typer(no_args_is_help=True)


@on_server(
    app,
    "import",
    fields=_FIELDS,
    names={"/name": "NAME", "/default_scorer": "--scorer", "/map": "--map"},
)
def import_bank(
    body: dict[str, Any],
    name: Annotated[
        str, typer.Argument(help="Name of the bank, which is created if there is none.")
    ],
    items: Annotated[
        Path | None,
        file_option(help="File of items, JSONL or CSV."),
    ] = None,
    parameters: Annotated[
        Path | None,
        file_option(
            help="File of parameters: mirt's CSV (a1,d,g,u), item,a,b,c,d, Parquet, or py-irt's "
            "JSON. They make a new version."
        ),
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Scorer of items that do not name one; only for a new bank.")
    ] = None,
    fields: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="ITEM=FILE,...",
            help="Fields of a JSONL, CSV or Parquet file in another form, such as "
            "prompt=question,target=answer,choices=choices.text.",
        ),
    ] = None,
    bundle: Annotated[
        Path | None, file_option(help="A bank as one file, written by `banks export --bundle`.")
    ] = None,
) -> None:
    """Import items, parameters or both, or a whole bank: all or nothing."""
    mapping = None
    if fields is not None or "target_after" in body:
        if fields is None or items is None:
            raise InvalidInputError(
                "--map needs --items, and --target-after needs --map, which names the target's "
                "field."
            )
        from app.exchange.items import field_map

        mapping = field_map(fields, body.get("target_after"))
    files = {"items": items, "parameters": parameters}
    named = {name: path for name, path in files.items() if path is not None}
    if bundle is not None:
        if body or named or scorer is not None:
            raise InvalidInputError("--bundle holds a whole bank: leave the other options out.")
    elif not named and "provisional" not in body:
        raise InvalidInputError("Give --items, --parameters or both, or --bundle; got neither.")
    here = chosen().target is None
    body |= given(
        **{name: UNREAD if here else _sent(path) for name, path in named.items()},
        map=None if mapping is None else dict(mapping.fields),
    )
    if here:
        # Reads files of any size next to the database; sending files to a server needs none of it.
        from app.cli.bank.local_imports import import_bundle, import_files

        _show_report(
            import_bundle(bundle, name)
            if bundle is not None
            else import_files(name, body, items=items, parameters=parameters, scorer=scorer)
        )
        return

    async def send(client: AsyncSextant) -> JsonObject:
        if bundle is not None:
            whole: JsonObject = {"bundle": _sent(bundle), "name": name}
            return await client.request("POST", "/v1/banks:import", json=whole)
        if "dry_run" in body and scorer is None:
            return await client.request("POST", path_of("banks", name, "imports"), json=body)
        new = None if "dry_run" in body else given(name=name, default_scorer=given(name=scorer))
        async with there(client, "banks", name, new) as is_new:
            if scorer is not None and not is_new:
                raise InvalidInputError(
                    f"--scorer is for a new bank only: bank {name!r} exists already."
                )
            return await client.request("POST", path_of("banks", name, "imports"), json=body)

    _show_report(asked(send))


def _sent(path: Path) -> dict[str, str]:
    """A file as a field of an import's request body."""
    content = path.read_bytes()
    try:
        return {"name": path.name, "content": content.decode()}
    except UnicodeDecodeError:
        return {"name": path.name, "content_base64": b64encode(content).decode()}


app.command("show")(bank_views.show)
app.command("lint")(bank_views.lint)
app.command("export")(bank_views.export)
app.command("delete")(bank_views.delete)
app.command("list")(bank_views.list_banks)
app.command("catalog")(catalog.catalog)
app.command("install")(catalog.install)
app.command("from-results")(from_results.from_results)
app.command("preview")(preview.preview)
app.command("check-join")(recalibration.check_join)
app.command("drift")(recalibration.drift)
app.command("recalibrate")(recalibration.recalibrate)


def _show_report(report: JsonObject) -> None:
    if report["dry_run"]:
        err.print("Dry run: nothing was stored.")
    items, parameters = report["items"], report["parameters"]
    _show_tally("items", items)
    _show_tally("parameters", parameters)
    if renamed := report["renamed"]:
        pairs = ", ".join(f"{pair['parameter']} = {pair['item']}" for pair in renamed[:_SHOWN])
        more = ", ..." if len(renamed) > _SHOWN else ""
        out.say(f"{len(renamed)} parameter names matched as R spells them: {pairs}{more}")
    # Errors, which quarantine items, come first; equal findings of several items become one.
    ordered = sorted(report["findings"], key=lambda one: one["severity"] != "error")
    lines = Counter(f"{one['severity']}: {one['code']}: {one['message']}" for one in ordered)
    for line, times in list(lines.items())[:_SHOWN]:
        out.say(f"{line} ({times} times)" if times > 1 else line)
    left = report["n_findings"] - sum(list(lines.values())[:_SHOWN])
    if left > 0:
        out.print(f"... and {left} more findings: sextant banks lint lists all")
    if report["version"] is not None:
        if (guessed := report.get("guessed")) is not None:
            out.say(guessed)
        if not items["accepted"] and not parameters["accepted"]:
            out.print("nothing new: the latest version says all of this")
        bank_views.show_version(bank_views.Version.model_validate(report["version"]))
    elif items["rows_read"]:
        err.say(
            "No parameters were imported, so there is no new version; --provisional guesses them."
        )


def _show_tally(what: str, tally: JsonObject) -> None:
    if not tally["rows_read"]:
        return
    reasons = "".join(f", {one['count']} skipped ({one['reason']})" for one in tally["skipped"])
    out.say(f"{what}: {tally['rows_read']} read, {tally['accepted']} accepted{reasons}")
