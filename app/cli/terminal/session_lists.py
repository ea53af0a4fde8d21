"""`sextant sessions list`, `show`, `watch`, `cancel` and `delete`."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.servers.connection import FAILED, asked, run_to_the_end, stored
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.cli.terminal.tables import interval, money, number, show_table, when, who
from app.cli.terminal.watch import report, watch
from app.records.sessions import SessionState
from sextant_client import AsyncSextant

SessionId = Annotated[str, typer.Argument(help="Id of a session.")]


@fail_clearly
def list_sessions(
    status: Annotated[SessionState | None, typer.Option(help="Only those in this state.")] = None,
    bank: Annotated[str | None, typer.Option(help="Only those on this bank.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List tests, the newest first."""

    async def read(client: AsyncSextant) -> list[dict[str, Any]]:
        wanted = [f"status={status}"] if status else []
        if bank is not None:
            found = await client.request("GET", f"/v1/banks/{quote(bank, safe='')}")
            wanted.append(f"bank_id={found['id']}")
        return await client.list_all(f"/v1/sessions?{'&'.join(wanted)}", limit=limit)

    found = asked(server, server_key, read)
    write_json(json, {"data": found})
    if json == "-":
        return
    show_table(
        ("id", "status", "bank", "endpoint", "theta", "SE", "score", "items", "cost", "began"),
        (
            (
                one["id"],
                one["status"],
                f"{one['bank']['name']} v{one['bank']['version']}",
                who(one["endpoint"] or one["examinee"]),
                number(one["estimate"]["theta"]),
                number(one["estimate"]["se"], ".2f"),
                number((one["score"] or {}).get("value"), ".1%"),
                str(one["progress"]["items"]),
                money(one["usage"]["usd"]),
                when(one["created_at"]),
            )
            for one in found
        ),
    )


@fail_clearly
def show(
    session: SessionId,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show where a test stands, or what came out of it."""
    found = asked(server, server_key, lambda client: client.request("GET", _path(session)))
    write_json(json, found)
    if json != "-":
        out.print(
            f"{found['id']}  {found['status']}  {found['bank']['name']} "
            f"v{found['bank']['version']}  {who(found['endpoint'] or found['examinee'])}",
            style="bold",
            soft_wrap=True,
        )
        report(found)


@fail_clearly
def follow(
    session: SessionId,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the result.")] = False,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Watch a test until it ends; leaving it with Ctrl-C does not end the test."""

    async def look() -> dict[str, Any]:
        async with stored(server, server_key) as client:
            found = await client.request("GET", _path(session))
            if found["mode"] == "manual" and found["finished_at"] is None:
                err.print("A test by hand: it goes on when somebody answers.", soft_wrap=True)
            return await watch(client, found["id"], quiet=quiet)

    found = run_to_the_end(look)
    if json != "-":
        report(found)
    write_json(json, found)
    if found["status"] != "completed":
        raise typer.Exit(FAILED)


@fail_clearly
def cancel(
    session: SessionId, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """End a test where it stands; its answers so far are kept."""
    found = asked(
        server, server_key, lambda client: client.request("POST", f"{_path(session)}:cancel")
    )
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


@fail_clearly
def delete(
    session: SessionId, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """Delete an ended test with its answers and events."""
    asked(server, server_key, lambda client: client.remove(_path(session)))
    out.say(f"Deleted {session}.")


def _path(session: str) -> str:
    return f"/v1/sessions/{quote(session, safe='')}"
