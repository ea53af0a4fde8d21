"""`sextant gate`: may this model go out? The answer is the exit code.

| exit code | meaning |
|---|---|
| 0 | go |
| 1 | no go |
| 2 | inconclusive, also when the session failed |
| 64 | the gate could not be asked: wrong options, no such session, server away |
| 70 | a fault of Sextant itself |
| 130 | interrupted |

No other command uses 64: 2, which means wrong input elsewhere, is taken here.
"""

import functools
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from typer.core import TyperCommand
from typing_extensions import override

from app.cli.commands.run import OPTIONS as OF_SESSION
from app.cli.servers.connection import connected, ended_with_us, given, run_to_the_end
from app.cli.terminal.console import err, fail_clearly, out, require_writable, write_json
from app.cli.terminal.examinees import examinee, is_url, require_fitting
from app.cli.terminal.options import (
    ConcurrencyOption,
    EndpointKeyOption,
    KindOption,
    MarginOption,
    PredictionOption,
    QuietOption,
    ServerKeyOption,
    ServerOption,
    share_of,
)
from app.cli.terminal.watch import announce, report, watch
from app.errors import InvalidInputError

#: As in sysexits.h: wrong usage, and a fault of the program itself.
USAGE, SOFTWARE = 64, 70
#: Fields of a gate by the options that set them.
_OPTIONS = {
    **{f"/session{field}": option for field, option in OF_SESSION.items()},
    "/session_id": "--session",
    "/threshold": "--threshold",
    "/metric": "--metric",
    "/tag": "--tag",
    "/direction": "--direction",
    "/confidence": "--confidence",
}
EXIT_CODES = {"go": 0, "no_go": 1, "inconclusive": 2}


class Command(TyperCommand):
    """The command, with exit codes of its own where click and Python would use 1 or 2."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit:  # --help
            raise
        except Exception as error:
            error.exit_code = USAGE  # type: ignore[attr-defined]  # click exits with it
            raise

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:  # noqa: BLE001  (Python's own exit code would say: no go)
            err.print(f"Error: {type(error).__name__}: {error}", style="red", markup=False)
            raise typer.Exit(SOFTWARE) from None


@functools.partial(fail_clearly, code=USAGE)
def command(
    threshold: Annotated[float, typer.Option(help="What the metric is held against.")],
    metric: Annotated[
        Literal["score", "theta"],
        typer.Option(help="The score (0 to 1), or the ability."),
    ] = "score",
    tag: Annotated[
        str | None,
        typer.Option(
            help="Of whose items the score is, where the bank measures several abilities; by "
            "default of the whole bank."
        ),
    ] = None,
    direction: Annotated[
        Literal["above", "below"], typer.Option(help="Where a go lies.")
    ] = "above",
    confidence: Annotated[
        float, typer.Option(help="Of the interval that must lie wholly on one side.")
    ] = 0.95,
    session: Annotated[
        str | None, typer.Option(help="Id of a session; else one is started.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Base URL of the model's API, such as .../v1, or a saved endpoint by name or id."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name that the endpoint knows.")] = None,
    bank: Annotated[
        str | None, typer.Option(help="Bank to ask from; `demo` comes with Sextant.")
    ] = None,
    kind: KindOption = "openai_chat",
    api_key: EndpointKeyOption = None,
    prediction: PredictionOption = None,
    margin: MarginOption = None,
    se_target: Annotated[
        float | None, typer.Option(help="Stop at this standard error of the ability.")
    ] = None,
    max_items: Annotated[int | None, typer.Option(help="Ask at most so many items.")] = None,
    concurrency: ConcurrencyOption = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Stop at so many tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="For every random choice.")] = None,
    quiet: QuietOption = False,
    server: ServerOption = None,
    server_key: ServerKeyOption = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the gate as JSON; - for stdout.")
    ] = None,
) -> None:
    """Decide by one test whether a model may go out: exit code 0 go, 1 no go, 2 inconclusive.

    Holds --session against the threshold, or tests --endpoint on --bank; such a test stops as soon
    as the decision is clear. Wrong options and servers that are away give exit code 64.
    """
    require_writable(json)
    body: dict[str, Any] = {
        "threshold": threshold,
        "metric": metric,
        "direction": direction,
        "confidence": confidence,
        **given(tag=tag),
    }
    asked_model: dict[str, Any] = {}
    if session is not None:
        if endpoint or model or bank or prediction:
            raise InvalidInputError(
                "Give --session, or --endpoint with --model and --bank; how a session predicts is "
                "settled when it starts (--prediction)."
            )
        body["session_id"] = session
    elif endpoint and bank and (model or not is_url(endpoint)):
        asked_model = given(kind=kind, api_key=api_key)
        require_fitting(endpoint, model, asked_model)
        body["session"] = {
            "bank": bank,
            **given(
                seed=seed,
                concurrency=concurrency,
                prediction=given(method=prediction),
                stopping=given(se=se_target, score_margin=share_of(margin), max_items=max_items),
                budget=given(tokens=budget_tokens),
            ),
        }
    else:
        raise InvalidInputError(
            "Give --session, or all of --endpoint, --model and --bank; a saved endpoint needs no "
            "--model."
        )

    async def decide() -> dict[str, Any]:
        async with connected(server, server_key, bank=bank, options=_OPTIONS) as client:
            if "session" in body and endpoint is not None:
                body["session"] |= await examinee(client, endpoint, model, asked_model)
            made = await client.request("POST", "/v1/gates", json=body)
            if made["status"] == "pending":
                if not quiet:
                    announce(await client.request("GET", f"/v1/sessions/{made['session_id']}"))
                async with ended_with_us(client, "sessions", made["session_id"]):
                    ended = await watch(client, made["session_id"], quiet=quiet)
                if json != "-" and not quiet:
                    report(ended)
            return await client.request("GET", f"/v1/gates/{made['id']}")

    gate = run_to_the_end(decide)
    if json != "-":
        _show(gate)
    write_json(json, gate)
    raise typer.Exit(EXIT_CODES[gate["outcome"]])


def _show(gate: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    table.add_row("gate", gate["outcome"].replace("_", " "))
    table.add_row("because", gate["detail"])
    table.add_row("session", gate["session_id"])
    out.print(table)
