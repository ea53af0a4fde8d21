"""`sextant sessions`: running and ended ones."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.table import Table

from app.cli.servers.connection import (
    FAILED,
    asked,
    connected,
    path_of,
    request,
    run_to_the_end,
)
from app.cli.servers.options import SAME, also_json, chosen, on_server, tell_list
from app.cli.terminal import console
from app.cli.terminal.console import JsonObject, err, interval, money, number, out, when, write_file
from app.cli.terminal.fields import option, reading
from app.cli.terminal.options import (
    GOALS,
    QuietOption,
    YesOption,
    confirm,
    object_of,
    output_option,
)
from app.cli.terminal.replies import Asked, Estimate, Scored, Session, at, read_all, who
from app.cli.terminal.watch import conduct, report, require_completed, watch
from app.errors import InvalidInputError
from app.printable import percent
from app.records.sessions import SessionState
from app.reports.figures import is_surprising
from app.reports.namesakes import distinct_names, namesakes
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)
_path = partial(path_of, "sessions")

SessionId = Annotated[str, typer.Argument(help="Id of a session.")]
EndedId = Annotated[str, typer.Argument(help="Id of an ended session.")]

#: Changed answers that are printed; `--json` has all of them.
_ROWS = 30
#: Outcomes that `--unparsed` selects.
_UNPARSED = ("unparsed", "truncated")


class _ListedSession(Scored, Asked):
    id: str
    status: str
    bank: str = at("bank", "name")
    bank_id: str = at("bank", "id")
    version: int = at("bank", "version")
    theta: float | None = at("estimate", "theta")
    se: float | None = at("estimate", "se")
    items: int = at("progress", "items")
    usd: float | None = at("usage", "usd")
    trust: str | None = at("headline", "trust", "level", default=None)
    created_at: datetime


@on_server(app, "list", json=SAME)
def list_sessions(
    status: Annotated[
        SessionState | None, typer.Option(help="Only sessions in this state.")
    ] = None,
    bank: Annotated[str | None, typer.Option(help="Only sessions on this bank.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 20,
) -> None:
    """List sessions, the newest first."""

    async def read(client: AsyncSextant) -> list[JsonObject]:
        wanted: dict[str, str | None] = {"status": status}
        if bank is not None:
            wanted["bank_id"] = str((await client.request("GET", path_of("banks", bank)))["id"])
        return [*await client.list_all("/v1/sessions", limit=limit, params=wanted)]

    found = asked(read)
    rows = read_all(_ListedSession, found)
    apart = namesakes({one.id: one.called for one in rows})
    banks = distinct_names({one.bank_id: one.bank for one in rows})

    def named(one: _ListedSession) -> str:
        traits = ", ".join(apart.get(one.id, []))
        return who(one.endpoint or one.examinee) + (f" ({traits})" if traits else "")

    tell_list(
        found,
        {
            "id": "id",
            "status": "status",
            "bank": lambda one: f"{banks[one.bank_id]} v{one.version}",
            "endpoint": named,
            "theta": lambda one: number(one.theta),
            "SE": lambda one: number(one.se, ".2f"),
            "score": "percent",
            "trust": "trust",
            "items": "items",
            "cost": lambda one: money(one.usd),
            "began": lambda one: when(one.created_at),
        },
        _ListedSession,
    )


@on_server(app, json=SAME)
def show(session: SessionId) -> None:
    """Show the state of a session, or its results."""
    found = request("GET", _path(session))
    if also_json(found):
        told = Session.model_validate(found)
        out.say(
            f"{told.id}  {told.status}  {told.bank.name} v{told.bank.version}  "
            f"{who(told.endpoint or told.examinee)}",
            style="bold",
        )
        report(found)


@on_server(app, json=SAME)
def answers(
    session: Annotated[str, typer.Argument(help="Id of a session.")],
    wrong: Annotated[bool, typer.Option("--wrong", help="Only answers scored as wrong.")] = False,
    unparsed: Annotated[
        bool, typer.Option("--unparsed", help="Only answers that were unparseable or cut off.")
    ] = False,
    surprising: Annotated[
        bool,
        typer.Option(
            "--surprising",
            help="Only wrong answers where a right one was expected, and the reverse.",
        ),
    ] = False,
    search: Annotated[
        str | None, typer.Option(help="Only those with this text in question, answer or id.")
    ] = None,
) -> None:
    """Show the questions and answers of a session, in order of asking.

    With several options, only questions to which all of them apply.

    sextant sessions answers ses_01jd... --wrong
    """
    told = request("GET", path_of("sessions", session, "report"))
    rows = told["items"]
    found = [
        one
        for one in rows
        if (not wrong or one["score"] == 0.0)
        and (not unparsed or one["outcome"] in _UNPARSED)
        and (not surprising or is_surprising(one["score"], one["expected"]))
        and _holds(one, search)
    ]
    if not also_json({"data": found}):
        return
    for one in found:
        for line in _lines(one):
            out.say(line)
    shown = f"{len(found)} of {told['n_asked']} questions"
    if told["n_asked"] != len(rows):
        shown += f", looked for among the first {len(rows)}"
    if rows and not found:
        wanted = {"--wrong": wrong, "--unparsed": unparsed, "--surprising": surprising}
        flags = [flag for flag, is_given in {**wanted, "--search": search}.items() if is_given]
        shown = f"No answer of this session matches {' '.join(flags)}: {shown}"
    err.say(shown)


def _holds(one: JsonObject, search: str | None) -> bool:
    texts = (one["item_id"], one["question"], one["answer"])
    return search is None or any(search.lower() in text.lower() for text in texts if text)


def _lines(one: JsonObject) -> Iterator[str]:
    marks = {None: one["outcome"] or "pending", 0.0: "wrong", 1.0: "right"}
    mark = marks.get(one["score"], f"score {one['score']}")
    if one["score"] is not None and one["outcome"] in _UNPARSED:
        mark = f"{one['outcome']}, counted as {mark}"
    expected = "" if one["expected"] is None else f", expected {percent(one['expected'])}"
    tried = ", trial question" if one["pretest"] else ""
    yield f"{one['step']:>4}. {one['item_id']}  {mark}{expected}{tried}"
    for name in ("question", "target", "answer", "reason"):
        if text := one.get(name):
            yield f"      {name:9}{' '.join(text.split())}"


@on_server(app, "watch", json=SAME)
def follow(
    session: SessionId,
    quiet: QuietOption = False,
) -> None:
    """Watch a session until it ends; Ctrl-C does not end it."""

    async def look() -> JsonObject:
        async with connected() as client:
            found = await client.request("GET", _path(session))
            return await watch(client, found, quiet=quiet)

    found = run_to_the_end(look)
    if also_json(found):
        report(found)
    if found["status"] != "completed":
        raise typer.Exit(FAILED)


@on_server(app)
def cancel(session: SessionId) -> None:
    """Cancel a session; its answers so far are kept."""
    found = request("POST", f"{_path(session)}:cancel")
    estimate = Estimate.model_validate(found["estimate"])
    stands = (
        f"theta {number(estimate.theta)}, 95 % interval {interval(estimate.interval)}"
        if estimate.theta is not None
        else "no result yet"
    )
    out.say(f"Cancelled {found['id']} after {found['progress']['items']} items: {stands}.")


@on_server(app)
def delete(session: SessionId, yes: YesOption = False) -> None:
    """Delete an ended session with its answers and events."""
    confirm(f"Delete the session {session!r} with all its answers?", yes=yes)
    asked(lambda client: client.remove(_path(session)))
    out.say(f"Deleted {session}.")


@on_server(
    app,
    json="Write session and changes as JSON; - for stdout.",
    runs=True,
    fields={
        "/scorer/name": option(
            str, "Name of the scorer; by default the present scorer of each question.", "--scorer"
        ),
        "/scorer/params": option(
            str, "Parameters of the scorer, as a JSON object.", callback=reading(object_of)
        ),
    },
)
def rescore(body: dict[str, Any], session: EndedId) -> None:
    """Score a session's stored answers again; no model is asked.

    Creates a new session and shows what changed; the old session does not change.
    """
    if "name" not in body.get("scorer", {"name": None}):
        raise InvalidInputError("--params needs --scorer, the scorer that they belong to.")

    async def mark_again() -> tuple[JsonObject, JsonObject]:
        async with connected() as client:
            made = await client.request("POST", f"{_path(session)}:rescore", json=body)
            ended = await watch(client, made)
            return ended, await client.request("GET", f"{_path(str(made['id']))}/changes")

    ended, changes = run_to_the_end(mark_again)
    if also_json({"session": ended, "changes": changes["data"]}):
        report(ended, error_follows=True)
        _show(_Rescored.model_validate(ended), changes["data"])
    require_completed(ended)


@on_server(
    app,
    json="Write the new session as JSON; - for stdout.",
    runs=True,
    fields=GOALS,
)
def extend(body: dict[str, Any], session: EndedId, quiet: QuietOption = False) -> None:
    """Continue an ended session with another goal or limit.

    Creates a new session; the old one does not change. A goal that the old one
    missed still ends the new one, unless --margin gives another.
    """
    if "stopping" not in body:
        raise InvalidInputError(
            "Give --margin, --max-items or both: they say when the session stops."
        )

    async def go_on() -> JsonObject:
        async with connected() as client:
            made = await client.request("POST", f"{_path(session)}:extend", json=body)
            if made["status"] == "awaiting_response":
                out.say(f"New session: {made['id']}, which waits for answers by hand.")
                return made
            return await conduct(client, made, quiet=quiet or chosen().json == "-")

    found = run_to_the_end(go_on)
    is_told = also_json(found)
    if found["status"] == "awaiting_response":
        return
    if is_told:
        report(found, error_follows=True)
        out.say(f"New session: {found['id']}")
    require_completed(found)


@on_server(app, "report", json=SAME)
def write_report(
    session: Annotated[str, typer.Argument(help="Id of a session, in any state.")],
    out: Annotated[str, output_option(help="HTML file to write; - is stdout.")] = "session.html",
) -> None:
    """Write a session's result as a report in plain words, one HTML file."""
    path = path_of("sessions", session, "report")

    async def read(client: AsyncSextant) -> tuple[bytes, JsonObject]:
        return await client.download(f"{path}?format=html"), await client.request("GET", path)

    page, document = asked(read)
    write_file(out, page)
    if also_json(document) and out != "-":
        console.out.say(f"Wrote {out}.")


class _Rescored(Session):
    """A session whose answers are scored again; the fields are None until that is done."""

    answers: int | None = at("rescore", "answers", default=None)
    changed: int | None = at("rescore", "changed", default=None)
    theta_before: float | None = at("rescore", "theta_before", default=None)


def _mark(answer: JsonObject | None) -> str:
    if answer is None:
        return "not scored"
    return str(answer["outcome"]) if answer["score"] is None else f"{answer['score']:g}"


def _show(ended: _Rescored, changes: Sequence[JsonObject]) -> None:
    if ended.answers is not None:
        out.print(
            f"{ended.changed} of {ended.answers} answers changed; "
            f"theta {_number(ended.theta_before)} before, {_number(ended.estimate.theta)} now."
        )
    changed = [change for change in changes if change["changed"]]
    if not changed:
        return
    table = Table("item", "before", "now", "why", box=None, padding=(0, 2, 0, 0))
    for change in changed[:_ROWS]:
        before, after = change["before"], change["after"]
        why = after and after.get("reason")
        table.add_row(change["item_id"], _mark(before), _mark(after), why or "")
    out.print(table)
    if len(changed) > _ROWS:
        out.print(f"... and {len(changed) - _ROWS} more")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:+z.2f}"
