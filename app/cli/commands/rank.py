"""`sextant rank`: rank several endpoints from the shell."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.table import Table

from app.cli.commands.run import FIELDS
from app.cli.servers.connection import connected, ended_with_us, path_of, run_to_the_end
from app.cli.servers.options import also_json, on_server
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err, interval, money, number, out
from app.cli.terminal.examinees import PROMPT, SETTINGS, examinee, is_url
from app.cli.terminal.fields import Fields, below, option
from app.cli.terminal.replies import Ranked, Scored, at, read_all
from app.cli.terminal.watch import cost, follow, redrawn, require_completed
from app.errors import InvalidInputError
from sextant_client.models import Interval, Usage

#: Settings of a ranking beside those that a session has, too.
_FIELDS: Fields = {
    "/preset": options.RankingPresetOption,
    "/metric": option(
        Literal["score", "theta"],
        "Rank by the score (default) or by ability, which takes fewer questions.",
    ),
    **options.RULES,
    "/budget/items": option(int, "Most questions for all endpoints together.", "--budget-items"),
    "/concurrency": option(int, "Asked at once, for each endpoint; 4 by default."),
}
#: Of each endpoint in a request; more than a ranking may have are never named.
_PLACES = {f"/endpoints/{n}": f"--endpoint {n + 1}" for n in range(100)}


@on_server(
    json="Write the ranking as JSON; - for stdout.",
    runs=True,
    fields={
        **below("/endpoint", SETTINGS, "/kind", "/api_key"),
        **below("", FIELDS, "/budget/usd", "/budget/tokens", "/selection", "/prediction", "/seed"),
        **PROMPT,
        **_FIELDS,
    },
    names={"/correction": "--holm", "/endpoints": "--endpoint"} | _PLACES,
)
def command(
    body: dict[str, Any],
    endpoint: Annotated[
        list[str],
        typer.Option(
            metavar="URL MODEL",
            help="Base URL and model name in one argument, 'URL MODEL', or name or id of a saved "
            "endpoint; once for each endpoint to rank.",
        ),
    ],
    bank: Annotated[str, typer.Option(help="Bank of the questions; `demo` comes with Sextant.")],
    holm: options.HolmOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Rank several endpoints with as few questions as possible, at the given confidence.

    Prices differ between endpoints: save the endpoints (`sextant endpoints save`)
    and give their names.
    """
    body |= {"bank": bank, **({"correction": "holm"} if holm else {})}
    settings = body.pop("endpoint", {})

    async def rank() -> JsonObject:
        async with connected(bank=bank) as client:
            body["endpoints"] = [
                await examinee(client, *_named(text), settings) for text in endpoint
            ]
            created = await client.request("POST", "/v1/rankings", json=body)
            ranking_id = str(created["id"])
            async with ended_with_us(client, "rankings", ranking_id):
                path, shown = path_of("rankings", ranking_id), _Board()
                if quiet:
                    return await follow(client, path)
                with redrawn(shown) as tell:
                    return await follow(client, path, shown.take, tell)

    ended = run_to_the_end(rank)
    if also_json(ended):
        order = read_all(_Entry, ended["order"])
        out.print(_table(order))
        names = {entry.endpoint_id: entry.called for entry in order}
        for tie in ended["ties"]:
            out.print(f"Tied: {', '.join(names.get(one, one) for one in tie)}.")
        for entry in order:
            if entry.left_behind is not None:
                err.say(f"Left behind: {entry.called}. {entry.left_behind}")
            elif entry.reason is not None:
                err.say(f"Not ranked: {entry.called}. {entry.reason}")
        for entry in order:
            if entry.caution:
                out.say(f"Caution: {entry.called}. {entry.caution}")
        usage = Usage.model_validate(ended["usage"])
        out.print(
            f"{ended['progress']['items']} items, {usage.calls} calls, "
            f"{number(usage.tokens, 'd')} tokens, {cost(usage.usd)}."
        )
        out.print(f"{ended['stop_reason']}: {ended['stop_detail']}")
    require_completed(ended)


def _named(text: str) -> tuple[str, str | None]:
    """Split URL and model; a saved endpoint has no model."""
    url, _, model = text.strip().partition(" ")
    if not is_url(text):
        return text, None
    if not model or " " in model.strip():
        raise InvalidInputError(
            f"--endpoint: expected 'URL MODEL' or a saved endpoint by name or id, got {text!r}."
        )
    return url, model.strip()


class _Entry(Ranked, Scored):
    endpoint_id: str = ""
    name: str | None = None
    model: str
    theta: float | None
    interval: Interval | None = None
    items: int
    scored: int
    usd: float | None
    left_behind: str | None = None
    reason: str | None = None
    caution: str | None = at("extrapolation", "caution", default=None)

    @property
    def called(self) -> str:
        return self.name or self.model


class _Board:
    """State of a ranking, as its events report it."""

    def __init__(self) -> None:
        self._order: list[_Entry] | None = None
        self._items = 0

    def take(self, _: str, data: JsonObject) -> str | None:
        """Apply one event; now and then returns a line for terminals that cannot redraw."""
        order = read_all(_Entry, data.get("order") or [])  # some events hold a step instead
        self._order = order or self._order
        items = data.get("progress", {}).get("items", 0)
        if items < self._items + _EVERY:
            return None
        self._items = items
        return f"{items} items: {_leading(order)}"

    def __rich__(self) -> RenderableType:
        return "" if self._order is None else _table(self._order)


def _leading(order: Sequence[_Entry]) -> str:
    """Say which endpoints lead which; an endpoint without a result yet leads none."""
    placed = (one.model for one in order if one.theta is not None or one.score is not None)
    return " > ".join(placed) or "no result yet"


#: Items between two lines of progress, where a table cannot be redrawn.
_EVERY = 10


def _table(order: Sequence[_Entry]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    names = ("rank", "endpoint", "score", "95 % interval", "theta", "95 % of theta")
    for name in (*names, "items", "scored", "cost"):
        table.add_column(name, justify="left" if name == "endpoint" else "right")
    for entry in order:
        table.add_row(
            entry.ranks,
            entry.called,
            entry.percent,
            interval(entry.score.interval if entry.score else None, ".1%"),
            "?" if entry.theta is None else f"{entry.theta:+z.2f}",
            interval(entry.interval),
            str(entry.items),
            str(entry.scored),
            money(entry.usd),
        )
    return table
