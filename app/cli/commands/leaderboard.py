"""`sextant leaderboard`: the latest results on a bank."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer

from app.cli.servers.connection import path_of, request
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import (
    JsonObject,
    err,
    interval,
    money,
    number,
    out,
    show_list,
    when,
)
from app.cli.terminal.replies import Ranked, Scored, at, read_all, who
from app.reports.figures import took
from app.reports.namesakes import Called, namesakes
from sextant_client.models import EndpointOf


@on_server(json=SAME)
def command(
    bank: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    metric: Annotated[
        Literal["score", "theta"],
        typer.Option(help="Metric of the ranks: the score, or the ability."),
    ] = "score",
    confidence: Annotated[
        float, typer.Option(help="Confidence with which models of different groups differ.")
    ] = 0.95,
) -> None:
    """Show the present result of each examinee on a bank, best first, with ties."""
    path = f"{path_of('banks', bank, 'leaderboard')}?metric={metric}&confidence={confidence}"
    found = request("GET", path)
    if not also_json(found):
        return
    _show(found)
    for board in found["other_scales"]:
        out.print(f"\nOn scale {board['scale']}, whose thetas do not compare with those above:")
        _show(board)


class _Entry(Ranked, Scored):
    endpoint: EndpointOf
    theta: float | None
    items: int
    usd: float | None
    p50: float | None = at("latency_ms", "p50", default=None)
    p95: float | None = at("latency_ms", "p95", default=None)
    finished_at: datetime | None
    session_id: str
    provisional: bool
    self_reported: bool
    trust: str | None = at("trust", "level", default=None)
    base_url: str | None = None
    kind: str | None = None

    @property
    def called(self) -> Called:
        """Its name, and what distinguishes it from its namesakes."""
        return Called(
            name=who(self.endpoint),
            is_saved=self.endpoint.name is not None and self.base_url is not None,
            model=self.endpoint.model,
            base_url=self.base_url,
            kind=self.kind,
        )


def _show(board: JsonObject) -> None:
    entries = read_all(_Entry, board["data"])
    apart = namesakes({one.session_id: one.called for one in entries})
    if not entries and not board["unranked"]:
        err.print("No test of an endpoint or of a named examinee is completed on this bank yet.")
    if entries:
        show_list(
            entries,
            {
                "rank": "ranks",
                "examinee": lambda one: _named(one, apart.get(one.session_id, [])),
                "score": "percent",
                "95 % interval": _score_interval,
                "trust": lambda one: one.trust or "-",
                "theta": lambda one: number(one.theta),
                "items": "items",
                "cost": lambda one: money(one.usd),
                "p50": lambda one: "-" if one.p50 is None else took(one.p50),
                "p95": lambda one: "-" if one.p95 is None else took(one.p95),
                "ended": lambda one: when(one.finished_at),
                "id": "session_id",
            },
        )
    if caution := board.get("caution"):
        err.say(f"Caution: {caution}")
    left: dict[str, list[str]] = {}
    for entry in board["unranked"]:
        endpoint = EndpointOf.model_validate(entry["endpoint"])
        left.setdefault(entry["reason"], []).append(who(endpoint))
    for reason, names in left.items():
        whom = names[0] if len(names) == 1 else f"{len(names)} models"
        err.say(f"Not ranked: {whom}. {reason}")


def _score_interval(entry: _Entry) -> str:
    if entry.score is None:
        return "-"
    return "all asked" if (known := entry.score.interval) is None else interval(known, ".1%")


def _named(entry: _Entry, apart: Sequence[str]) -> str:
    """Name an examinee, with what distinguishes it from others of the same name."""
    marks = {"provisional": entry.provisional, "self-reported": entry.self_reported}
    notes = [*apart, *(word for word, applies in marks.items() if applies)]
    return who(entry.endpoint) + (f" ({', '.join(notes)})" if notes else "")
