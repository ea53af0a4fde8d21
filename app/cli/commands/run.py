"""`sextant run`: measure one endpoint from the shell."""

from copy import copy
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typing_extensions import override

from app.cli.servers.connection import connected, run_to_the_end
from app.cli.servers.options import also_json, chosen, on_server
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err
from app.cli.terminal.examinees import (
    ENDPOINT,
    PROMPT,
    SETTINGS,
    examinee,
    is_url,
    require_fitting,
)
from app.cli.terminal.fields import Fields, below, option
from app.cli.terminal.watch import conduct, report, require_completed
from app.errors import InvalidInputError

#: Further settings of a session.
FIELDS: Fields = {
    **options.DESIGN,
    "/pretest/items_per_session": option(
        int,
        "Number of questions without parameters to ask as well; they do not count.",
        "--pretest",
    ),
    "/budget/usd": option(float, "Cost limit, US dollars.", "--budget-usd"),
    "/budget/tokens": option(int, "Token limit.", "--budget-tokens"),
    "/budget/seconds": option(float, "Time limit, seconds.", "--budget-seconds"),
    "/unparsed_policy": options.unparsed_option(
        "How unparseable answers count; by default as in the calibration."
    ),
    **PROMPT,
    "/repeats": option(int, "Ask each question this many times; the mean is its score."),
    "/cache": option(bool, "Keep answers, and use kept answers instead of calls.", "--cache"),
    "/seed": option(int, "Random seed."),
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


@on_server(
    json="Write the session as JSON; - for stdout.",
    runs=True,
    fields={**below("/endpoint", SETTINGS), **FIELDS},
    names=ENDPOINT,
)
def command(
    body: dict[str, Any],
    endpoint: Annotated[
        str,
        typer.Option(help="URL of the model's API, such as .../v1, or a saved endpoint."),
    ],
    bank: Annotated[str, typer.Option(help="Bank of the questions; `demo` comes with Sextant.")],
    model: Annotated[str | None, typer.Option(help="Model name; required with a URL.")] = None,
    quiet: options.QuietOption = False,
) -> None:
    """Measure one endpoint, with live progress.

    Works on the database of this machine, unless --server or `sextant login` names a
    server.
    The endpoint's key is read from SEXTANT_ENDPOINT_KEY.
    """
    body["bank"] = bank
    settings = body.pop("endpoint", {})
    require_fitting(endpoint, model, settings)
    if is_url(endpoint) and "usd" in body.get("budget", {}) and "price" not in settings:
        raise InvalidInputError(
            "--budget-usd needs the price of a call: give --price-input and --price-output, or "
            "limit the tokens with --budget-tokens."
        )

    async def measure() -> JsonObject:
        async with connected(bank=bank) as client:
            body.update(await examinee(client, endpoint, model, settings))
            created = await client.request("POST", "/v1/sessions", json=body)
            return await conduct(client, created, quiet=quiet)

    session = run_to_the_end(measure)
    if also_json(session):
        report(session, error_follows=True)
        if not quiet:
            at = chosen().target
            found = f"sextant sessions report {session['id']}"
            if at is not None:
                found = f"{at.url}/sessions/{session['id']}"
            err.print(f"As a page: {found}", style="dim", soft_wrap=True)
    require_completed(session)
