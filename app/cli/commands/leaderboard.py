"""`sextant leaderboard`: the results on a bank."""

from typing import Annotated, Literal

import typer

from app.cli.servers.connection import path_of, request
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import Json, err, out
from app.cli.terminal.tables import interval, money, number, ranks, show_list, when, who
from app.reports.figures import took


@on_server(json=SAME)
def command(
    bank: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    metric: Annotated[
        Literal["score", "theta"], typer.Option(help="What ranks: the score, or the ability.")
    ] = "score",
    confidence: Annotated[
        float, typer.Option(help="With which neighbours of different groups differ.")
    ] = 0.95,
) -> None:
    """Show the newest precise result of each examinee on a bank, best first; ties stay ties."""
    path = f"{path_of('banks', bank, 'leaderboard')}?metric={metric}&confidence={confidence}"
    found = request("GET", path, options={"/query/confidence": "--confidence"})
    if not also_json(found):
        return
    _board(found)
    for other in found["other_scales"]:
        out.print(f"\nOn scale {other['scale']}, whose thetas do not compare with those above:")
        _board(other)


def _board(board: Json) -> None:
    if not board["data"]:
        err.print("No test on this bank is completed yet.")
    else:
        show_list(
            board["data"],
            {
                "rank": ranks,
                "examinee": _named,
                "score": lambda one: number((one["score"] or {}).get("value"), ".1%"),
                "95 % interval": lambda one: interval((one["score"] or {}).get("interval"), ".1%"),
                "theta": lambda one: number(one["theta"]),
                "items": "items",
                "cost": lambda one: money(one["usd"]),
                "p50": lambda one: _latency(one, "p50"),
                "p95": lambda one: _latency(one, "p95"),
                "ended": lambda one: when(one["finished_at"]),
                "id": "session_id",
            },
        )
    if board["caution"]:
        err.say(f"Caution: {board['caution']}")
    for entry in board["unranked"]:
        err.print(f"Not ranked: {who(entry['endpoint'])}. {entry['reason']}", soft_wrap=True)


def _named(entry: Json) -> str:
    notes = [word for word in ("provisional", "self_reported") if entry[word]]
    told = f" ({', '.join(notes).replace('_', '-')})" if notes else ""
    return who(entry["endpoint"]) + told


def _latency(entry: Json, quantile: str) -> str:
    return took(entry["latency_ms"][quantile]) if entry["latency_ms"] else "-"
