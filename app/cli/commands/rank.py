"""`sextant rank`: rank several endpoints from the shell."""

from typing import Annotated, Literal

import typer
from rich.console import RenderableType
from rich.table import Table

from app.cli.commands.run import OPTIONS as OF_SESSION
from app.cli.servers.connection import FAILED, connected, ended_with_us, path_of, run_to_the_end
from app.cli.servers.options import also_json, chosen, on_server
from app.cli.servers.problems import alike
from app.cli.terminal.console import Json, err, out, require_writable
from app.cli.terminal.examinees import KindOption, ModeOption, Shots, System, examinee, is_url
from app.cli.terminal.options import (
    HolmOption,
    PredictionOption,
    QuietOption,
    RankingPresetOption,
    given,
)
from app.cli.terminal.tables import interval, number, ranks
from app.cli.terminal.watch import follow
from app.errors import InvalidInputError


@on_server(json="Write the ranking as JSON; - for stdout.", runs=True)
def command(
    endpoint: Annotated[
        list[str],
        typer.Option(
            metavar="URL MODEL",
            help="Base URL and model name, as 'URL MODEL' in one argument, or a saved endpoint by "
            "name or id; once for each that is ranked.",
        ),
    ],
    bank: Annotated[str, typer.Option(help="Bank to ask from; `demo` comes with Sextant.")],
    kind: KindOption = "openai_chat",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="SEXTANT_ENDPOINT_KEY", help="Key of the endpoints; better set by the variable."
        ),
    ] = None,
    preset: RankingPresetOption = None,
    metric: Annotated[
        Literal["score", "theta"] | None,
        typer.Option(
            help="Rank by the score, as usual, or by ability, which takes fewer questions."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="With which a pair is decided; 0.95 by default.")
    ] = None,
    holm: HolmOption = False,
    min_items: Annotated[int | None, typer.Option(help="Warm-up: items of each.")] = None,
    max_items: Annotated[int | None, typer.Option(help="Most items of one endpoint.")] = None,
    tie_width: Annotated[
        float | None,
        typer.Option(help="Difference that does not matter: a share of the score, or logits."),
    ] = None,
    budget_items: Annotated[int | None, typer.Option(help="Most items of all.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Stop at so many US dollars.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Stop at so many tokens.")] = None,
    selector: Annotated[
        str | None, typer.Option(help="Criterion that chooses items, such as random.")
    ] = None,
    prediction: PredictionOption = None,
    shots: Shots = None,
    system: System = None,
    mode: ModeOption = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Items in flight, of each endpoint; 4 by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Rank several endpoints, as surely as asked for and with as few items as possible.

    Prices differ between endpoints: save them (`sextant endpoints save`) and give their names.
    """
    require_writable(chosen().json)
    body: Json = {
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

    async def rank() -> Json:
        named = _options(len(endpoint))
        async with connected(named, bank=bank) as client:
            body["endpoints"] = [
                await examinee(client, *_named(text), given(kind=kind, api_key=api_key))
                for text in endpoint
            ]
            created = await client.request("POST", "/v1/rankings", json=body)
            async with ended_with_us(client, "rankings", created["id"]):
                path = path_of("rankings", created["id"])
                return await follow(client, path, None if quiet else _Board())

    ranking = run_to_the_end(rank)
    if also_json(ranking):
        out.print(_table(ranking))
        for tie in ranking["ties"]:
            out.print(f"Tied: {', '.join(_names(ranking, tie))}.")
        named = [(entry["name"] or entry["model"], entry) for entry in ranking["order"]]
        for name, entry in named:
            if entry["left_behind"] is not None:
                err.print(f"Left behind: {name}. {entry['left_behind']}", soft_wrap=True)
            elif entry["reason"] is not None:
                err.say(f"Not ranked: {name}. {entry['reason']}")
        for name, entry in named:
            stands = entry["extrapolation"] or {}
            if stands.get("caution"):
                out.say(f"Caution: {name}. {stands['caution']}")
        out.print(_cost(ranking))
        out.print(f"{ranking['stop_reason']}: {ranking['stop_detail']}")
    if ranking["status"] != "completed":
        failure = ranking["failure"] or {"detail": ranking["stop_detail"]}
        err.print(f"Error: {failure['detail']}", style="red")
        raise typer.Exit(FAILED)


def _named(text: str) -> tuple[str, str | None]:
    """URL and model, or the name of a saved endpoint."""
    url, _, model = text.strip().partition(" ")
    if not is_url(text):
        return text, None
    if not model or " " in model.strip():
        raise InvalidInputError(
            f"--endpoint: expected 'URL MODEL' or a saved endpoint by name or id, got {text!r}."
        )
    return url, model.strip()


def _options(n_endpoints: int) -> dict[str, str]:
    """Fields of a ranking by the options that set them."""
    shared = ("stopping", "pretest", "unparsed_policy", "prompt", "repeats", "cache", "endpoint")
    own = {
        field: option
        for field, option in OF_SESSION.items()
        if not field.removeprefix("/").startswith(shared)
    }
    places = {f"/endpoints/{nth}": f"--endpoint {nth + 1}" for nth in range(n_endpoints)}
    own |= alike("confidence", "min_items", "max_items", "tie_width")
    return own | places | {"/correction": "--holm", "/budget/items": "--budget-items"}


class _Board:
    """What the events have told so far."""

    def __init__(self) -> None:
        self._ranking: Json | None = None
        self._items = 0

    def take(self, _: str, data: Json) -> str | None:
        """Take in one event; returns a line now and then."""
        if "order" in data:
            self._ranking = data
        items: int = data.get("progress", {}).get("items", 0)
        if items < self._items + _EVERY:
            return None
        self._items = items
        return f"{items} items: {_leading(data)}"

    def __rich__(self) -> RenderableType:
        return _table(self._ranking) if self._ranking else ""


def _leading(ranking: Json) -> str:
    """Who leads whom; who has no ability yet leads nobody."""
    names = [entry["model"] for entry in ranking["order"] if entry["theta"] is not None]
    return " > ".join(names) or "no result yet"


#: Items between two lines of progress where a table cannot be redrawn.
_EVERY = 10


def _table(ranking: Json) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("rank", "endpoint", "score", "theta", "95 % interval", "items", "scored", "cost"):
        table.add_column(name, justify="left" if name == "endpoint" else "right")
    for entry in ranking["order"]:
        table.add_row(
            ranks(entry),
            entry["name"] or entry["model"],
            number((entry.get("score") or {}).get("value"), ".1%"),
            "?" if entry["theta"] is None else f"{entry['theta']:+.2f}",
            interval(entry.get("interval")),
            str(entry["items"]),
            str(entry["scored"]),
            "" if entry["usd"] is None else f"${entry['usd']:.4f}",
        )
    return table


def _names(ranking: Json, ids: list[str]) -> list[str]:
    named = {e["endpoint_id"]: e["name"] or e["model"] for e in ranking["order"]}
    return [named[endpoint_id] for endpoint_id in ids]


def _cost(ranking: Json) -> str:
    usage, items = ranking["usage"], ranking["progress"]["items"]
    usd = "price unknown" if usage["usd"] is None else f"${usage['usd']:.4f}"
    tokens = usage["tokens_in"] + usage["tokens_out"]
    return f"{items} items, {usage['calls']} calls, {tokens} tokens, {usd}."
