"""`sextant sessions`: tests that run, or ran."""

import json as json_text
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

from app.cli.servers.connection import (
    FAILED,
    asked,
    connected,
    ended_with_us,
    path_of,
    request,
    run_to_the_end,
)
from app.cli.servers.options import SAME, also_json, chosen, on_server
from app.cli.terminal import console
from app.cli.terminal.console import Json, err, out, write_file
from app.cli.terminal.options import FurtherMarginOption, given, share_of
from app.cli.terminal.tables import interval, money, number, show_list, when, who
from app.cli.terminal.watch import report, watch
from app.errors import InvalidInputError
from app.printable import percent
from app.records.sessions import SessionState
from app.reports.figures import is_surprising
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)

SessionId = Annotated[str, typer.Argument(help="Id of a session.")]
EndedId = Annotated[str, typer.Argument(help="Id of an ended session.")]

#: Changed answers that are printed; `--json` has all of them.
_ROWS = 30
#: Of an answer without a score, what became of it.
_UNPARSED = ("unparsed", "truncated")


@on_server(app, "list", json=SAME)
def list_sessions(
    status: Annotated[SessionState | None, typer.Option(help="Only those in this state.")] = None,
    bank: Annotated[str | None, typer.Option(help="Only those on this bank.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
) -> None:
    """List tests, the newest first."""

    async def read(client: AsyncSextant) -> list[Json]:
        wanted = given(status=status)
        if bank is not None:
            wanted["bank_id"] = (await client.request("GET", path_of("banks", bank)))["id"]
        return await client.list_all("/v1/sessions", limit=limit, params=wanted)

    found = asked(read)
    if also_json({"data": found}):
        show_list(
            found,
            {
                "id": "id",
                "status": "status",
                "bank": lambda one: f"{one['bank']['name']} v{one['bank']['version']}",
                "endpoint": lambda one: who(one["endpoint"] or one["examinee"]),
                "theta": lambda one: number(one["estimate"]["theta"]),
                "SE": lambda one: number(one["estimate"]["se"], ".2f"),
                "score": lambda one: number((one["score"] or {}).get("value"), ".1%"),
                "items": lambda one: str(one["progress"]["items"]),
                "cost": lambda one: money(one["usage"]["usd"]),
                "began": lambda one: when(one["created_at"]),
            },
        )


@on_server(app, json=SAME)
def show(session: SessionId) -> None:
    """Show where a test stands, or what came out of it."""
    found = request("GET", _path(session))
    if also_json(found):
        out.print(
            f"{found['id']}  {found['status']}  {found['bank']['name']} "
            f"v{found['bank']['version']}  {who(found['endpoint'] or found['examinee'])}",
            style="bold",
            soft_wrap=True,
        )
        report(found)


@on_server(app, json=SAME)
def answers(
    session: Annotated[str, typer.Argument(help="Id of a test.")],
    wrong: Annotated[bool, typer.Option("--wrong", help="Only those scored wrong.")] = False,
    unparsed: Annotated[
        bool, typer.Option("--unparsed", help="Only those that could not be read, or were cut off.")
    ] = False,
    surprising: Annotated[
        bool,
        typer.Option(
            "--surprising",
            help="Only misses where a hit was expected, and hits where a miss was.",
        ),
    ] = False,
    search: Annotated[
        str | None, typer.Option(help="Only those whose question, answer or id holds this.")
    ] = None,
) -> None:
    """Show the questions of a test with what was answered, in order of asking.

    Several options together: those to which all of them apply.

    sextant sessions answers ses_01jd... --wrong
    """
    report = request("GET", path_of("sessions", session, "report"))
    wanted = [
        named
        for named, is_wanted in (
            (lambda one: one["score"] == 0.0, wrong),
            (lambda one: one["outcome"] in _UNPARSED, unparsed),
            (lambda one: is_surprising(one["score"], one["expected"]), surprising),
        )
        if is_wanted
    ]
    found = [
        one
        for one in report["items"]
        if all(named(one) for named in wanted) and _holds(one, search)
    ]
    if not also_json({"data": found}):
        return
    for one in found:
        for line in _lines(one):
            out.say(line)
    shown = f"{len(found)} of {report['n_asked']} questions"
    if report["n_asked"] > len(report["items"]):
        shown += f", looked for among the first {len(report['items'])}"
    err.print(shown)


def _holds(one: Json, search: str | None) -> bool:
    texts = (one["item_id"], one["question"], one["answer"])
    return search is None or any(search.lower() in text.lower() for text in texts if text)


def _lines(one: Json) -> Iterator[str]:
    mark = {None: one["outcome"] or "pending", 0.0: "wrong", 1.0: "right"}.get(
        one["score"], f"score {one['score']}"
    )
    expected = "" if one["expected"] is None else f", expected {percent(one['expected'])}"
    tried = ", trial question" if one["pretest"] else ""
    yield f"{one['step']:>4}. {one['item_id']}  {mark}{expected}{tried}"
    for name in ("question", "answer", "reason"):
        if one[name]:
            yield f"      {name:9}{' '.join(one[name].split())}"


@on_server(app, "watch", json=SAME)
def follow(
    session: SessionId,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result.")] = False,
) -> None:
    """Watch a test until it ends; leaving it with Ctrl-C does not end the test."""

    async def look() -> Json:
        async with connected() as client:
            found = await client.request("GET", _path(session))
            if found["mode"] == "manual" and found["finished_at"] is None:
                err.print("A test by hand: it goes on when somebody answers.", soft_wrap=True)
            return await watch(client, found["id"], quiet=quiet)

    found = run_to_the_end(look)
    if also_json(found):
        report(found)
    if found["status"] != "completed":
        raise typer.Exit(FAILED)


@on_server(app)
def cancel(session: SessionId) -> None:
    """End a test where it stands; its answers so far are kept."""
    found = request("POST", f"{_path(session)}:cancel")
    estimate = found["estimate"]
    stands = (
        f"theta {number(estimate['theta'])}, 95 % interval {interval(estimate['interval'])}"
        if estimate["theta"] is not None
        else "no result yet"
    )
    out.print(
        f"Cancelled {found['id']} after {found['progress']['items']} items: {stands}.",
        soft_wrap=True,
    )


@on_server(app)
def delete(session: SessionId) -> None:
    """Delete an ended test with its answers and events."""
    asked(lambda client: client.remove(_path(session)))
    out.say(f"Deleted {session}.")


@on_server(app, json="Write session and changes as JSON; - for stdout.", runs=True)
def rescore(
    session: EndedId,
    scorer: Annotated[
        str | None, typer.Option(help="Scorer's name; absent: each item's present scorer.")
    ] = None,
    params: Annotated[str | None, typer.Option(help="Its parameters as a JSON object.")] = None,
) -> None:
    """Score a session's stored answers again; no model is asked.

    Makes a new session and shows what has changed; the old one stays as it is.
    """
    if params is not None and scorer is None:
        raise InvalidInputError("--params belong to a scorer: name it by --scorer.")
    body = given(scorer=given(name=scorer, params=_object(params)))

    async def mark_again() -> Json:
        async with connected() as client:
            made = await client.request("POST", f"{_path(session)}:rescore", json=body)
            ended = await watch(client, made["id"])
            changes = await client.request("GET", f"/v1/sessions/{made['id']}/changes")
            return {"session": ended, "changes": changes["data"]}

    found = run_to_the_end(mark_again)
    ended = found["session"]
    if also_json(found):
        report(ended, error_follows=True)
        _show(found)
    _require_completed(ended)


@on_server(app, json="Write the new session as JSON; - for stdout.", runs=True)
def extend(
    session: EndedId,
    margin: FurtherMarginOption = None,
    max_items: Annotated[
        int | None, typer.Option(help="Ask at most so many items, with those asked before.")
    ] = None,
) -> None:
    """Go on with an ended session until another end. It makes a new one; the old one stays.

    A goal that it missed still ends the new one, unless --margin says another.
    """
    told = given(score_margin=share_of(margin), max_items=max_items)
    if not told:
        raise InvalidInputError("Say until when to go on: --margin, --max-items or both.")
    path = _path(session)
    options = {"/stopping/score_margin": "--margin", "/stopping/max_items": "--max-items"}

    async def go_on() -> Json:
        async with connected(options) as client:
            known = await client.request("GET", path)
            goals = ("se_target", "score_margin")
            # A goal that was reached would end it at once; one that was not still holds.
            is_over = margin is not None or known["stop_reason"] in goals
            old = {"se": None, "score_margin": None} if is_over else {}
            stopping = {**known["design"]["stopping"], **old, **told}
            if max_items is not None:  # what was said counts for more than what came along
                stopping["min_items"] = min(stopping["min_items"] or 0, max_items)
            body = {"stopping": stopping}
            made = await client.request("POST", f"{path}:extend", json=body)
            async with ended_with_us(client, "sessions", made["id"]):
                return await watch(client, made["id"], quiet=chosen().json == "-")

    ended = run_to_the_end(go_on)
    if also_json(ended):
        report(ended, error_follows=True)
        out.say(f"New session: {ended['id']}")
    _require_completed(ended)


@on_server(app, "report", json=SAME)
def write_report(
    session: Annotated[str, typer.Argument(help="Id of a session, in any state.")],
    out: Annotated[str, typer.Option(help="HTML file to write; - is stdout.")] = "session.html",
) -> None:
    """Write a session's result as a page that anybody can read, one HTML file."""
    path = path_of("sessions", session, "report")

    async def read(client: AsyncSextant) -> tuple[bytes, Json]:
        return await client.download(f"{path}?format=html"), await client.request("GET", path)

    page, document = asked(read)
    write_file(out, page)
    if also_json(document) and out != "-":
        console.out.say(f"Wrote {out}.")


def _require_completed(session: Json) -> None:
    if session["status"] != "completed":
        err.print(f"Error: {session['stop_detail']}", style="red")
        raise typer.Exit(FAILED)


def _path(session: str) -> str:
    return path_of("sessions", session)


def _object(text: str | None) -> Json | None:
    if text is None:
        return None
    try:
        value = json_text.loads(text)
    except ValueError as exc:
        raise InvalidInputError(f"--params: expected a JSON object: {exc}.") from exc
    if not isinstance(value, dict):
        raise InvalidInputError(f"--params: expected a JSON object, got {text[:80]!r}.")
    return value


def _show(found: Json) -> None:
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


def _mark(mark: Json | None) -> str:
    if mark is None:
        return "not scored"
    return str(mark["outcome"]) if mark["score"] is None else f"{mark['score']:g}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:+.2f}"
