"""`sextant sessions`: tests that run, or ran."""

import json as json_module
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from app.cli.servers.connection import (
    FAILED,
    asked,
    connected,
    ended_with_us,
    given,
    run_to_the_end,
)
from app.cli.terminal import console, session_lists
from app.cli.terminal.answers import answers
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.files import write_file
from app.cli.terminal.options import (
    AskServerOption,
    FurtherMarginOption,
    SameAsJsonOption,
    ServerKeyOption,
    ServerOption,
    share_of,
)
from app.cli.terminal.watch import report, watch
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)
app.command("list")(session_lists.list_sessions)
app.command("show")(session_lists.show)
app.command("answers")(answers)
app.command("watch")(session_lists.follow)
app.command("cancel")(session_lists.cancel)
app.command("delete")(session_lists.delete)

#: Changed answers that are printed; `--json` has all of them.
_ROWS = 30


@app.callback()
def sessions() -> None:
    """List, show, watch, extend, cancel and delete tests; read their answers, mark them again."""


@app.command()
@fail_clearly
def rescore(
    session: Annotated[str, typer.Argument(help="Id of an ended session.")],
    scorer: Annotated[
        str | None, typer.Option(help="Scorer's name; absent: each item's present scorer.")
    ] = None,
    params: Annotated[str | None, typer.Option(help="Its parameters as a JSON object.")] = None,
    server: ServerOption = None,
    server_key: ServerKeyOption = None,
    json: Annotated[
        str | None,
        typer.Option("--json", help="Write session and changes as JSON; - for stdout."),
    ] = None,
) -> None:
    """Score a session's stored answers again; no model is asked.

    Makes a new session and shows what has changed; the old one stays as it is.
    """
    if params is not None and scorer is None:
        raise InvalidInputError("--params belong to a scorer: name it by --scorer.")
    body = given(scorer=given(name=scorer, params=_object(params)))

    async def mark_again() -> dict[str, Any]:
        async with connected(server, server_key, bank=None) as client:
            made = await client.request("POST", f"/v1/sessions/{session}:rescore", json=body)
            ended = await watch(client, made["id"])
            changes = await client.request("GET", f"/v1/sessions/{made['id']}/changes")
            return {"session": ended, "changes": changes["data"]}

    found = run_to_the_end(mark_again)
    ended = found["session"]
    if json != "-":
        report(ended)
        _show(found)
    write_json(json, found)
    if ended["status"] != "completed":
        err.print(f"Error: {ended['stop_detail']}", style="red", markup=False)
        raise typer.Exit(FAILED)


@app.command()
@fail_clearly
def extend(
    session: Annotated[str, typer.Argument(help="Id of an ended session.")],
    margin: FurtherMarginOption = None,
    max_items: Annotated[
        int | None, typer.Option(help="Ask at most so many items, with those asked before.")
    ] = None,
    server: ServerOption = None,
    server_key: ServerKeyOption = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the new session as JSON; - for stdout.")
    ] = None,
) -> None:
    """Go on with an ended session until another end. It makes a new one; the old one stays.

    A goal that it missed still ends the new one, unless --margin says another.
    """
    told = given(score_margin=share_of(margin), max_items=max_items)
    if not told:
        raise InvalidInputError("Say until when to go on: --margin, --max-items or both.")
    path = f"/v1/sessions/{quote(session, safe='')}"
    options = {"/stopping/score_margin": "--margin", "/stopping/max_items": "--max-items"}

    async def go_on() -> dict[str, Any]:
        async with connected(server, server_key, bank=None, options=options) as client:
            known = await client.request("GET", path)
            goals = ("se_target", "score_margin")
            # A goal that was reached would end it at once; one that was not still holds.
            is_over = margin is not None or known["stop_reason"] in goals
            old = {"se": None, "score_margin": None} if is_over else {}
            body = {"stopping": {**known["design"]["stopping"], **old, **told}}
            made = await client.request("POST", f"{path}:extend", json=body)
            async with ended_with_us(client, "sessions", made["id"]):
                return await watch(client, made["id"], quiet=json == "-")

    ended = run_to_the_end(go_on)
    if json != "-":
        report(ended)
        out.say(f"New session: {ended['id']}")
    write_json(json, ended)
    if ended["status"] != "completed":
        err.print(f"Error: {ended['stop_detail']}", style="red", markup=False)
        raise typer.Exit(FAILED)


@app.command("report")
@fail_clearly
def write_report(
    session: Annotated[str, typer.Argument(help="Id of a session, in any state.")],
    out: Annotated[str, typer.Option(help="HTML file to write; - is stdout.")] = "session.html",
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Write a session's result as a page that anybody can read, one HTML file."""
    path = f"/v1/sessions/{quote(session, safe='')}/report"

    async def read(client: AsyncSextant) -> tuple[bytes, dict[str, Any]]:
        return await client.download(f"{path}?format=html"), await client.request("GET", path)

    page, document = asked(server, server_key, read)
    write_file(out, page)
    write_json(json, document)
    if out != "-" and json != "-":
        console.out.say(f"Wrote {out}.")


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json_module.loads(text)
    except ValueError as exc:
        raise InvalidInputError(f"--params: expected a JSON object: {exc}.") from exc
    if not isinstance(value, dict):
        raise InvalidInputError(f"--params: expected a JSON object, got {text[:80]!r}.")
    return value


def _show(found: dict[str, Any]) -> None:
    ended, figures = found["session"], found["session"]["rescore"]
    if figures is not None:
        before, after = figures["theta_before"], ended["estimate"]["theta"]
        out.print(
            f"{figures['changed']} of {figures['answers']} answers changed; "
            f"theta {_number(before)} before, {_number(after)} now."
        )
    changed = [change for change in found["changes"] if change["changed"]]
    if not changed:
        return
    table = Table("item", "before", "now", "why", box=None, padding=(0, 2, 0, 0))
    for change in changed[:_ROWS]:
        now = change["after"]
        table.add_row(
            change["item_id"],
            _mark(change["before"]),
            _mark(now),
            (now or {}).get("reason") or "",
        )
    out.print(table)
    if len(changed) > _ROWS:
        out.print(f"... and {len(changed) - _ROWS} more")


def _mark(mark: dict[str, Any] | None) -> str:
    if mark is None:
        return "not scored"
    return str(mark["outcome"]) if mark["score"] is None else f"{mark['score']:g}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:+.2f}"
