"""`sextant gates`: decisions that were made."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.gating.judging import outcome_in
from app.cli.servers.connection import asked
from app.cli.terminal.console import fail_clearly, write_json
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.cli.terminal.tables import show_facts, show_table, when

app = typer.Typer(no_args_is_help=True, help="List and show gates; `sextant gate` makes one.")


@app.command("list")
@fail_clearly
def list_gates(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List gates, the newest first."""
    found = asked(server, server_key, lambda client: client.list_all("/v1/gates", limit=limit))
    write_json(json, {"data": found})
    if json != "-":
        show_table(
            ("id", "outcome", "held against", "session", "made"),
            (
                (
                    one["id"],
                    outcome_in(one).replace("_", " "),
                    _threshold(one),
                    one["session_id"],
                    when(one["created_at"]),
                )
                for one in found
            ),
        )


@app.command()
@fail_clearly
def show(
    gate: Annotated[str, typer.Argument(help="Id of a gate.")],
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show a gate: what was held against what, and what came out."""
    path = f"/v1/gates/{quote(gate, safe='')}"
    found = asked(server, server_key, lambda client: client.request("GET", path))
    write_json(json, found)
    if json != "-":
        facts = {
            "gate": outcome_in(found).replace("_", " "),
            "because": found["detail"],
            "held against": _threshold(found),
            "session": found["session_id"],
        }
        show_facts(found["id"], facts)


def _threshold(gate: dict[str, Any]) -> str:
    what = gate["metric"] + (f" of {gate['tag']}" if gate["tag"] else "")
    is_score, held = gate["metric"] == "score", gate["threshold"]
    mark = f"{100 * held:g} %" if is_score else f"{held:g}"
    if gate["baseline"] is not None:
        less = f"{100 * held:+.1f} points" if is_score else f"{held:+g}"
        mark = f"{gate['baseline']} {less}"
    return f"{what} {gate['direction']} {mark} at {100 * gate['confidence']:g} %"
