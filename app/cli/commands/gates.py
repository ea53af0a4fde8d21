"""`sextant gates`: list and show past decisions."""

from typing import Annotated

import typer

from app.cli.gating.judging import Gate
from app.cli.servers.connection import listed, path_of, request
from app.cli.servers.options import SAME, also_json, on_server, tell_list
from app.cli.terminal.tables import show_facts, when

app = typer.Typer(no_args_is_help=True)


@on_server(app, "list", json=SAME)
def list_gates(
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 20,
) -> None:
    """List gates, the newest first."""
    tell_list(
        Gate,
        listed("/v1/gates", limit),
        {
            "id": "id",
            "outcome": lambda one: one.result.replace("_", " "),
            "held against": _threshold,
            "session": "session_id",
            "made": lambda one: when(one.created_at),
        },
    )


@on_server(app, json=SAME)
def show(gate: Annotated[str, typer.Argument(help="Id of a gate.")]) -> None:
    """Show a gate: what was compared, and the outcome."""
    found = request("GET", path_of("gates", gate))
    if also_json(found):
        made = Gate.model_validate(found)
        facts = {
            "gate": made.result.replace("_", " "),
            "because": made.detail,
            "held against": _threshold(made),
            "session": made.session_id,
        }
        show_facts(made.id, facts)


def _threshold(gate: Gate) -> str:
    what = gate.metric + (f" of {gate.tag}" if gate.tag else "")
    is_score, held = gate.metric == "score", gate.threshold
    mark = f"{100 * held:g} %" if is_score else f"{held:g}"
    if gate.baseline is not None:
        less = f"{100 * held:+.1f} points" if is_score else f"{held:+g}"
        mark = f"{gate.baseline} {less}"
    return f"{what} {gate.direction} {mark} at {100 * gate.confidence:g} %"
