"""`sextant run`: measure one endpoint from the shell."""

from copy import copy
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand
from typing_extensions import override

from app.cli.servers.connection import FAILED, connected, ended_with_us, run_to_the_end
from app.cli.servers.options import alike, also_json, chosen, on_server
from app.cli.terminal import examinees, options
from app.cli.terminal.console import JsonObject, err
from app.cli.terminal.examinees import OPTIONS as OF_ENDPOINT
from app.cli.terminal.examinees import examinee, options_of, require_fitting, stops_of
from app.cli.terminal.options import given, share_of
from app.cli.terminal.replies import failure_of
from app.cli.terminal.watch import announce, report, watch
from app.items import Json

#: Field of a session -> the option that sets it.
OPTIONS = {
    **{f"/endpoint{field}": option for field, option in OF_ENDPOINT.items()},
    **alike("bank", "preset", "concurrency", "repeats", "cache", "seed"),
    "/endpoint_id": "--endpoint",
    "/selection/criterion": "--selector",
    "/prediction/method": "--prediction",
    "/stopping/se": "--se-target",
    "/stopping/score_margin": "--margin",
    "/stopping/min_items": "--min-items",
    "/stopping/max_items": "--max-items",
    "/pretest/items_per_session": "--pretest",
    "/budget/usd": "--budget-usd",
    "/budget/tokens": "--budget-tokens",
    "/budget/seconds": "--budget-seconds",
    "/unparsed_policy": "--unparsed",
    "/prompt/shots": "--shots",
    "/prompt/system": "--system",
    "/prompt/mode": "--mode",
}


#: Panel -> options that only `--help-all` shows.
_PANELS = {
    "Design": "preset selector prediction se_target min_items pretest repeats seed",
    "Budget": "budget_tokens budget_seconds price_input price_output",
    "Prompt": "max_tokens temperature unparsed shots system mode stop extra_body cache",
    "Server": "kind api_key server server_key project",
}
_EXAMPLE = "sextant run --endpoint http://127.0.0.1:8080/v1 --model my-model --bank demo --margin 5"
_ALL = "--help-all"


class Command(TyperCommand):
    """A command whose `--help` shows only the options that people use first."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _ALL in args:
            ctx.meta[_ALL] = True
            args = ["--help"]
        return super().parse_args(ctx, args)

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        panel_of = {name: panel for panel, names in _PANELS.items() for name in names.split()}
        shown = copy(self)
        shown.params, shown.epilog = [], f"Example: {_EXAMPLE}"
        for param in self.params:
            panel = panel_of.get(param.name or "")
            if panel is None or _ALL in ctx.meta:
                shown.params.append(copy(param))
                shown.params[-1].rich_help_panel = panel  # type: ignore[attr-defined]  # an option
        if _ALL not in ctx.meta:
            shown.epilog += f"\n\n{len(panel_of)} more options ({', '.join(_PANELS)}): {_ALL}."
        TyperCommand.format_help(shown, ctx, formatter)


@on_server(json="Write the session as JSON; - for stdout.", runs=True)
def command(
    endpoint: Annotated[
        str,
        typer.Option(help="URL of the model's API, such as .../v1, or a saved endpoint."),
    ],
    bank: Annotated[str, typer.Option(help="Bank of the questions; `demo` comes with Sextant.")],
    model: Annotated[str | None, typer.Option(help="Model name; required with a URL.")] = None,
    kind: examinees.KindOption = "openai_chat",
    api_key: examinees.EndpointKeyOption = None,
    preset: Annotated[
        str | None,
        typer.Option(help="What to measure: score or ability; or atlas, a published design."),
    ] = None,
    selector: Annotated[
        str | None, typer.Option(help="Criterion for choosing questions, such as random.")
    ] = None,
    prediction: options.PredictionOption = None,
    margin: options.MarginOption = None,
    se_target: Annotated[
        float | None,
        typer.Option(
            help="Stop at this standard error of the ability, logits, instead of by the score."
        ),
    ] = None,
    min_items: Annotated[
        int | None,
        typer.Option(help="Ask at least this many questions; by default 20."),
    ] = None,
    max_items: Annotated[int | None, typer.Option(help="Ask at most this many questions.")] = None,
    pretest: Annotated[
        int | None,
        typer.Option(
            help="Number of questions without parameters to ask as well; they do not count."
        ),
    ] = None,
    concurrency: options.ConcurrencyOption = None,
    budget_usd: Annotated[float | None, typer.Option(help="Cost limit, US dollars.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Token limit.")] = None,
    budget_seconds: Annotated[float | None, typer.Option(help="Time limit, seconds.")] = None,
    price_input: examinees.PriceInputOption = None,
    price_output: examinees.PriceOutputOption = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum number of tokens of an answer.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    unparsed: Annotated[
        Literal["wrong", "missing"] | None,
        typer.Option(help="How unparseable answers count; by default as in the calibration."),
    ] = None,
    shots: examinees.Shots = None,
    system: examinees.System = None,
    mode: examinees.ModeOption = None,
    stop: examinees.Stop = None,
    extra_body: examinees.ExtraBody = None,
    repeats: Annotated[
        int | None, typer.Option(help="Ask each question this many times; the mean is its score.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Keep answers, and use kept answers instead of calls.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    quiet: options.QuietOption = False,
) -> None:
    """Measure one endpoint, with live progress.

    Starts a server of its own, unless --server or `sextant login` names one.
    The endpoint's key is read from SEXTANT_ENDPOINT_KEY.
    """
    asked_model = given(
        kind=kind,
        api_key=api_key,
        price=given(input_per_1m=price_input, output_per_1m=price_output),
        sampling=given(max_tokens=max_tokens, temperature=temperature, stop=stops_of(stop)),
        options=options_of(extra_body),
    )
    require_fitting(endpoint, model, asked_model)
    body: dict[str, Json] = {
        "bank": bank,
        **given(
            preset=preset,
            concurrency=concurrency,
            unparsed_policy=unparsed,
            prompt=given(shots=shots, system=system, mode=mode),
            repeats=repeats,
            cache=cache or None,
            seed=seed,
            selection=given(criterion=selector.replace("-", "_") if selector else None),
            prediction=given(method=prediction),
            stopping=given(
                se=se_target,
                score_margin=share_of(margin),
                min_items=min_items,
                max_items=max_items,
            ),
            pretest=given(items_per_session=pretest),
            budget=given(usd=budget_usd, tokens=budget_tokens, seconds=budget_seconds),
        ),
    }

    async def measure() -> JsonObject:
        async with connected(OPTIONS, bank=bank) as client:
            body.update(await examinee(client, endpoint, model, asked_model))
            created = await client.request("POST", "/v1/sessions", json=body)
            session_id = str(created["id"])
            async with ended_with_us(client, "sessions", session_id):
                if not quiet:
                    announce(created)
                return await watch(client, session_id, quiet=quiet)

    session = run_to_the_end(measure)
    if also_json(session):
        report(session, error_follows=True)
        if not quiet:
            at = chosen().target
            found = f"sextant sessions report {session['id']}"
            if at is not None:
                found = f"{at.url}/sessions/{session['id']}"
            err.print(f"As a page: {found}", style="dim", soft_wrap=True)
    if session["status"] != "completed":
        # Why the test ended, with the last failure; a test that could not run has only its failure.
        told = session["stop_detail"] or failure_of(session) or session["status"]
        err.say(f"Error: {told}", style="red")
        raise typer.Exit(FAILED)
