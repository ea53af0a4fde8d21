"""`sextant rank`: rank several endpoints from the shell."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer
from rich.console import RenderableType
from rich.table import Table

from app.cli.commands.run import OPTIONS as OF_SESSION
from app.cli.servers.connection import FAILED, connected, ended_with_us, path_of, run_to_the_end
from app.cli.servers.options import alike, also_json, chosen, on_server
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err, interval, number, out, require_writable
from app.cli.terminal.examinees import KindOption, ModeOption, Shots, System, examinee, is_url
from app.cli.terminal.options import given
from app.cli.terminal.replies import Ranked, Scored, at, failure_of
from app.cli.terminal.watch import cost, follow
from app.errors import InvalidInputError
from app.items import Json
from sextant_client.models import Interval, Model, Usage


@on_server(json="Write the ranking as JSON; - for stdout.", runs=True)
def command(
    endpoint: Annotated[
        list[str],
        typer.Option(
            metavar="URL MODEL",
            help="Base URL and model name in one argument, 'URL MODEL', or name or id of a saved "
            "endpoint; once for each endpoint to rank.",
        ),
    ],
    bank: Annotated[str, typer.Option(help="Bank of the questions; `demo` comes with Sextant.")],
    kind: KindOption = "openai_chat",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="SEXTANT_ENDPOINT_KEY",
            help="API key of the endpoints; better set as environment variable.",
        ),
    ] = None,
    preset: options.RankingPresetOption = None,
    metric: Annotated[
        Literal["score", "theta"] | None,
        typer.Option(
            help="Rank by the score (default) or by ability, which takes fewer questions."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence with which a pair is decided; 0.95 by default.")
    ] = None,
    holm: options.HolmOption = False,
    min_items: Annotated[
        int | None, typer.Option(help="Scored answers of each endpoint before any decision.")
    ] = None,
    max_items: Annotated[int | None, typer.Option(help="Most questions for one endpoint.")] = None,
    tie_width: Annotated[
        float | None,
        typer.Option(help="Difference that does not matter: a share of the score, or logits."),
    ] = None,
    budget_items: Annotated[
        int | None, typer.Option(help="Most questions for all endpoints together.")
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Cost limit, US dollars.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Token limit.")] = None,
    selector: Annotated[
        str | None, typer.Option(help="Criterion for choosing questions, such as random.")
    ] = None,
    prediction: options.PredictionOption = None,
    shots: Shots = None,
    system: System = None,
    mode: ModeOption = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Asked at once, for each endpoint; 4 by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    quiet: options.QuietOption = False,
) -> None:
    """Rank several endpoints with as few questions as possible, at the given confidence.

    Prices differ between endpoints: save the endpoints (`sextant endpoints save`)
    and give their names.
    """
    require_writable(chosen().json)
    body: dict[str, Json] = {
        "bank": bank,
        **given(
            preset=preset,
            metric=metric,
            concurrency=concurrency,
            confidence=confidence,
            correction="holm" if holm else None,
            min_items=min_items,
            max_items=max_items,
            tie_width=tie_width,
            prompt=given(shots=shots, system=system, mode=mode),
            seed=seed,
            budget=given(items=budget_items, usd=budget_usd, tokens=budget_tokens),
            selection=given(criterion=selector.replace("-", "_") if selector else None),
            prediction=given(method=prediction),
        ),
    }

    async def rank() -> JsonObject:
        named = _options(len(endpoint))
        async with connected(named, bank=bank) as client:
            body["endpoints"] = [
                await examinee(client, *_named(text), given(kind=kind, api_key=api_key))
                for text in endpoint
            ]
            created = await client.request("POST", "/v1/rankings", json=body)
            ranking_id = str(created["id"])
            async with ended_with_us(client, "rankings", ranking_id):
                path = path_of("rankings", ranking_id)
                return await follow(client, path, None if quiet else _Board())

    ended = run_to_the_end(rank)
    if also_json(ended):
        ranking = _Ranking.model_validate(ended)
        out.print(_table(ranking.order))
        names = {entry.endpoint_id: entry.called for entry in ranking.order}
        for tie in ranking.ties:
            out.print(f"Tied: {', '.join(names[endpoint_id] for endpoint_id in tie)}.")
        for entry in ranking.order:
            if entry.left_behind is not None:
                err.say(f"Left behind: {entry.called}. {entry.left_behind}")
            elif entry.reason is not None:
                err.say(f"Not ranked: {entry.called}. {entry.reason}")
        for entry in ranking.order:
            if entry.caution:
                out.say(f"Caution: {entry.called}. {entry.caution}")
        usage = ranking.usage
        out.print(
            f"{ranking.items} items, {usage.calls} calls, "
            f"{number(usage.tokens, 'd')} tokens, {cost(usage.usd)}."
        )
        out.print(f"{ranking.stop_reason}: {ranking.stop_detail}")
    if ended["status"] != "completed":
        err.print(f"Error: {failure_of(ended) or ended['stop_detail']}", style="red")
        raise typer.Exit(FAILED)


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


def _options(n_endpoints: int) -> dict[str, str]:
    """Field of a ranking -> the option that sets it."""
    shared = ("stopping", "pretest", "unparsed_policy", "prompt", "repeats", "cache", "endpoint")
    own = {
        field: option
        for field, option in OF_SESSION.items()
        if not field.removeprefix("/").startswith(shared)
    }
    places = {f"/endpoints/{nth}": f"--endpoint {nth + 1}" for nth in range(n_endpoints)}
    own |= alike("confidence", "min_items", "max_items", "tie_width")
    return own | places | {"/correction": "--holm", "/budget/items": "--budget-items"}


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


class _Event(Model):
    """Data of an event; some hold a step, others the order."""

    order: list[_Entry] | None = None
    items: int = at("progress", "items", default=0)


class _Ranking(Model):
    order: list[_Entry]
    ties: list[list[str]]
    items: int = at("progress", "items")
    usage: Usage
    stop_reason: str | None
    stop_detail: str | None


class _Board:
    """State of a ranking, as its events report it."""

    def __init__(self) -> None:
        self._order: list[_Entry] | None = None
        self._items = 0

    def take(self, _: str, data: JsonObject) -> str | None:
        """Apply one event; now and then returns a line for terminals that cannot redraw."""
        event = _Event.model_validate(data)
        self._order = self._order if event.order is None else event.order
        if event.items < self._items + _EVERY:
            return None
        self._items = event.items
        return f"{self._items} items: {_leading(event.order or [])}"

    def __rich__(self) -> RenderableType:
        return "" if self._order is None else _table(self._order)


def _leading(order: Sequence[_Entry]) -> str:
    """Say which endpoints lead which; an endpoint without an ability yet leads none."""
    return " > ".join(one.model for one in order if one.theta is not None) or "no result yet"


#: Items between two lines of progress, where a table cannot be redrawn.
_EVERY = 10


def _table(order: Sequence[_Entry]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("rank", "endpoint", "score", "theta", "95 % interval", "items", "scored", "cost"):
        table.add_column(name, justify="left" if name == "endpoint" else "right")
    for entry in order:
        table.add_row(
            entry.ranks,
            entry.called,
            entry.percent,
            "?" if entry.theta is None else f"{entry.theta:+.2f}",
            interval(entry.interval),
            str(entry.items),
            str(entry.scored),
            "" if entry.usd is None else f"${entry.usd:.4f}",
        )
    return table
