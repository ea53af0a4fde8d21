"""`sextant leaderboard`: the results on a bank."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from app.cli.servers.connection import asked
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.cli.terminal.tables import interval, money, number, show_table, when, who
from app.reports.figures import took


@fail_clearly
def command(
    bank: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    metric: Annotated[
        Literal["score", "theta"], typer.Option(help="What ranks: the score, or the ability.")
    ] = "score",
    confidence: Annotated[
        float, typer.Option(help="With which neighbours of different groups differ.")
    ] = 0.95,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show the newest precise result of each examinee on a bank, best first; ties stay ties."""
    path = f"/v1/banks/{quote(bank, safe='')}/leaderboard?metric={metric}&confidence={confidence}"
    options = {"/query/confidence": "--confidence"}
    found = asked(server, server_key, lambda client: client.request("GET", path), options)
    write_json(json, found)
    if json == "-":
        return
    _board(found)
    for other in found["other_scales"]:
        out.print(f"\nOn scale {other['scale']}, whose thetas do not compare with those above:")
        _board(other)


def _board(board: dict[str, Any]) -> None:
    if not board["data"]:
        err.print("No test on this bank is completed yet.")
    else:
        show_table(
            (
                "rank",
                "examinee",
                "score",
                "95 % interval",
                "theta",
                "items",
                "cost",
                "p50",
                "p95",
                "ended",
                "id",
            ),
            (_row(entry) for entry in board["data"]),
        )
    if board["caution"]:
        err.say(f"Caution: {board['caution']}")
    for entry in board["unranked"]:
        err.print(
            f"Not ranked: {who(entry['endpoint'])}. {entry['reason']}",
            markup=False,
            soft_wrap=True,
        )


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    lo, hi, score = entry["rank_lo"], entry["rank_hi"], entry["score"] or {}
    latency = entry["latency_ms"]
    notes = [word for word in ("provisional", "self_reported") if entry[word]]
    told = f" ({', '.join(notes).replace('_', '-')})" if notes else ""
    return (
        f"{lo}" if lo == hi else f"{lo}-{hi}",
        who(entry["endpoint"]) + told,
        number(score.get("value"), ".1%"),
        interval(score.get("interval"), ".1%"),
        number(entry["theta"]),
        str(entry["items"]),
        money(entry["usd"]),
        *(took(latency[name]) if latency else "-" for name in ("p50", "p95")),
        when(entry["finished_at"]),
        entry["session_id"],
    )
