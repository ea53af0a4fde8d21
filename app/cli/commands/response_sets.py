"""`sextant response-sets`: import recorded answers and look at them."""

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.cli.bank import UNREAD, require_whole_files
from app.cli.servers.connection import asked, listed, path_of, request, there
from app.cli.servers.options import SAME, also_json, chosen, on_server, tell_list
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err, out, show_facts, write_file
from app.cli.terminal.fields import Fields, option, reading
from app.cli.terminal.options import YesOption, confirm
from app.errors import InvalidInputError
from app.exchange.response_files import ResponseFormat, files_at, format_named
from app.exchange.results.recorded import SourceFile
from sextant_client import AsyncSextant

_ANSWERS: Fields = {
    "/format": option(
        str,
        f"{', '.join(ResponseFormat)}; by default detected from each file.",
        callback=reading(lambda name: format_named(name).value),
    ),
    **options.READ,
    "/no_answer": option(
        Literal["wrong", "refused"], "How inspect's N (no answer) counts; by default as wrong."
    ),
    "/unparsed_policy": options.unparsed_option(
        "How unparseable answers counted in the files; by default as usual for the "
        "format. Sessions on banks calibrated from the set do the same."
    ),
    "/score_range": option(
        tuple[float, float],
        "Worst and best score in the files; they become 0 and 1, and are that by default.",
        metavar="WORST BEST",
        callback=reading(list),
    ),
    "/dry_run": options.DryRunOption,
}
#: Names and places that are printed; the rest is only counted.
_SHOWN = 5
_REASONS = {
    "taken_before": "taken before",
    "not_ended": "not ended",
    "replay": "replays of others",
    "simulated": "of simulated examinees",
}

app = typer.Typer(no_args_is_help=True)
_path = partial(path_of, "response-sets")


@on_server(app, "import", fields=_ANSWERS, names={"/files": "--from"})
def import_answers(
    body: dict[str, Any],
    name: Annotated[
        str, typer.Argument(help="Name of the set, which is created if there is none.")
    ],
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files and folders.", show_default=False),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="The same as FILE; may be repeated."),
    ] = None,
) -> None:
    """Import answers from results of lm-eval, inspect, HELM, OpenAI Evals, py-irt, or tables.

    Exit code 1: a file has rows that cannot be read; the others are imported.
    """
    paths = [*(source or ()), *(more or ())]
    if not paths:
        raise InvalidInputError("Name at least one file or folder.")
    files = files_at(paths)
    here = chosen().target is None
    body["files"] = [UNREAD] if here else [_sent(file) for file in files]
    if here:
        # Reads files of any size next to the database; sending files to a server needs none of it.
        from app.cli.bank import local_imports

        _show_report(local_imports.import_answers(name, files, body))
        return

    async def send(client: AsyncSextant) -> JsonObject:
        path = f"{_path(name)}/imports"
        if "dry_run" in body:
            return await client.request("POST", path, json=body)
        async with there(client, "response-sets", name, {"name": name}):
            return await client.request("POST", path, json=body)

    _show_report(asked(send))


@on_server(
    app,
    fields={
        "/version": option(str, "Number of a version; by default all versions."),
        "/since": option(
            datetime,
            "Only sessions that ended at this time (UTC) or later.",
            callback=reading(options.time_of),
        ),
        "/simulated": option(bool, "Also collect sessions of simulated examinees.", "--simulated"),
    },
)
def collect(
    body: dict[str, Any],
    name: Annotated[
        str, typer.Argument(help="Name of the set, which is created if there is none.")
    ],
    bank: Annotated[str, typer.Option(help="Name or id of the bank of the sessions.")],
) -> None:
    """Collect the answers of all ended sessions on a bank, each session once."""
    body["bank"] = bank

    async def take(client: AsyncSextant) -> JsonObject:
        async with there(client, "response-sets", name, {"name": name}):
            return await client.request("POST", f"{_path(name)}:collect", json=body)

    report = asked(take)
    left = report["left_out"].items()
    reasons = "".join(f", {count} {_REASONS.get(why, why)}" for why, count in left)
    out.say(f"{report['sessions']} sessions taken over{reasons}")
    out.say(
        f"{report['accepted']} answers ({_counts(report['outcomes'])}), "
        f"{report['pretest_answers']} of them to items in pretest; {_new(report)}"
    )
    _show_size(report["response_set"])


@on_server(app, "list", json=SAME)
def list_sets() -> None:
    """List all response sets."""
    tell_list(
        listed("/v1/response-sets?order=asc"),
        {
            "name": "name",
            "examinees": "n_examinees",
            "items": "n_items",
            "answers": "n_answers",
            "id": "id",
        },
    )


@on_server(app, json=SAME)
def show(name: Annotated[str, typer.Argument(help="Name or id of the set.")]) -> None:
    """Show a response set and where its answers come from."""
    found = request("GET", _path(name))
    if not also_json(found):
        return
    facts = {
        "id": found["id"],
        "description": found["description"] or "-",
        "examinees": str(found["n_examinees"]),
        "items": str(found["n_items"]),
        "answers": _counts(found["outcomes"]),
        "unparsed": found["unparsed_policy"] or "unknown",
    }
    show_facts(found["name"], facts, width=12)
    for entry in found["imports"]:
        files = ", ".join(file["name"] for file in entry["files"][:_SHOWN])
        rest = entry["n_files"] - min(_SHOWN, len(entry["files"]))
        more = f" and {rest} more" if rest else ""
        taken = f"{entry['accepted']} of {entry['rows_read']}"
        out.say(f"  {entry['at']}  {taken} from {files}{more}")


@on_server(app)
def export(
    name: Annotated[str, typer.Argument(help="Name or id of the set.")],
    file_format: Annotated[
        Literal["csv", "parquet", "long", "py-irt", "jsonl"],
        typer.Option(
            "--format",
            help="csv, parquet: one row per examinee; long: one per answer; py-irt: JSON lines.",
        ),
    ] = "csv",
    target: Annotated[
        str, options.output_option("--out", help="File to write; - is stdout.")
    ] = "-",
) -> None:
    """Export all scores of a response set to a file."""
    path = f"{_path(name)}/matrix?format={file_format}"
    write_file(target, asked(lambda client: client.download(path)))
    if target != "-":
        out.say(f"Wrote {target}.")


@on_server(app)
def delete(
    name: Annotated[str, typer.Argument(help="Name or id of the set.")],
    yes: YesOption = False,
) -> None:
    """Delete a response set with all its answers; refused if a calibration was made from it."""
    confirm(f"Delete the response set {name!r} with all its answers?", yes=yes)
    asked(lambda client: client.remove(_path(name)))
    out.say(f"Deleted {name}.")


def _sent(file: SourceFile) -> dict[str, str]:
    """A file as a field of an import's request body."""
    with file.open() as stream:
        return {"name": str(file.path), "content_base64": b64encode(stream.read()).decode()}


def _show_report(report: JsonObject) -> None:
    if report["dry_run"]:
        err.print("Dry run: nothing was stored.")
    files, passed_over = report["files"], report["passed_over"]
    for file in files[:_SHOWN]:
        out.say(f"{file['name']}: {file['format']}, {file['rows_read']} read")
    if len(files) > _SHOWN:
        out.print(f"... and {len(files) - _SHOWN} more files")
    if passed_over:
        out.print(f"{len(passed_over)} files hold no answers and were passed over")
    out.say(
        f"{report['rows_read']} answers read, {report['accepted']} accepted "
        f"({_counts(report['outcomes'])}); {_new(report)}"
    )
    for skipped in report["skipped"]:
        out.print(f"{skipped['count']} skipped ({skipped['reason']}):")
        for place in skipped["places"][:_SHOWN]:
            out.say(f"  {place}")
    if without := report["without_scores"]:
        names = ", ".join(without[:_SHOWN])
        more = ", ..." if len(without) > _SHOWN else ""
        out.say(f"{len(without)} examinees without a score: {names}{more}")
    _show_size(report["response_set"], stored=not report["dry_run"])
    require_whole_files(report["skipped"])


def _new(report: JsonObject) -> str:
    return f"{report['new_examinees']} new examinees, {report['new_items']} new items"


def _show_size(found: JsonObject, *, stored: bool = True) -> None:
    size = f"{found['name']}: {found['n_examinees']} examinees, {found['n_items']} items"
    out.say(f"{size}  {found['id']}" if stored else size)


def _counts(outcomes: Mapping[str, int]) -> str:
    """Format answers by outcome; a scored answer replaces an older one without a score."""
    come = [f"{count} {outcome}" for outcome, count in outcomes.items() if count > 0]
    gone = [f"{-count} {outcome}" for outcome, count in outcomes.items() if count < 0]
    replaced = [f"in place of {' and '.join(gone)}"] if gone else []
    return ", ".join(come + replaced) or "none"
