"""`sextant gates` and `baselines`: past decisions, and named results that gates compare with."""

import re
from typing import Annotated

import typer

from app.cli.gating.judging import Gate
from app.cli.servers.connection import asked, listed, path_of, request, version_of
from app.cli.servers.options import SAME, also_json, on_server, tell_list
from app.cli.terminal.console import JsonObject, number, out, show_facts, when
from app.cli.terminal.options import YesOption, confirm
from app.cli.terminal.replies import Baseline, Session, read_all
from app.cli.terminal.watch import further
from app.errors import InvalidInputError
from app.validation import NAME_IN_URL
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)
baselines = typer.Typer(no_args_is_help=True)


@on_server(app, "list", json=SAME)
def list_gates(
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 20,
) -> None:
    """List gates, the newest first."""
    tell_list(
        listed("/v1/gates", limit),
        {
            "id": "id",
            "outcome": lambda one: one.result.replace("_", " "),
            "held against": _threshold,
            "session": "session_id",
            "made": lambda one: when(one.created_at),
        },
        Gate,
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
        less = f"{100 * held:+z.1f} points" if is_score else f"{held:+zg}"
        mark = f"{gate.baseline} {less}"
    return f"{what} {gate.direction} {mark} at {100 * gate.confidence:g} %"


_Name = Annotated[str, typer.Argument(help="Name of a baseline, such as `production`.")]


@on_server(baselines, "set", json=SAME, names={"/session_id": "SESSION"})
def set_baseline(
    name: _Name,
    session: Annotated[str, typer.Argument(help="Id of an ended session.")],
) -> None:
    """Name the result of a session, or move an existing name to it."""
    if re.match(NAME_IN_URL, name) is None:
        raise InvalidInputError(
            f"NAME: expected a name without / and :, without blanks at either end, got {name!r}."
        )
    found = request("PUT", path_of("baselines", name), {"session_id": session})
    if also_json(found):
        made = Baseline.model_validate(found)
        told = f"{name} is {made.examinee} now"
        if made.certainty is not None:
            told += f", {made.certainty}"
            ended = Session.model_validate(request("GET", path_of("sessions", made.session_id)))
            if (longer := further(ended)) is not None:
                told += (
                    f". For a smaller one extend the session ({longer}), and set its baseline again"
                )
        out.say(f"{told}.")


@on_server(baselines, "list", json=SAME)
def list_baselines() -> None:
    """List baselines by name."""

    async def read(client: AsyncSextant) -> tuple[list[JsonObject], dict[str, str]]:
        found: list[JsonObject] = [*await client.list_all("/v1/baselines")]
        names = {one.bank_version_id: one.bank for one in read_all(Baseline, found)}
        for version, bank in names.items():
            told = await version_of(client, bank, version)
            names[version] = f"{bank} " + (f"({version})" if told is None else f"v{told['number']}")
        return found, names

    found, versions = asked(read)
    tell_list(
        found,
        {
            "name": "name",
            "model": "examinee",
            "bank": lambda one: versions[one.bank_version_id],
            "score": lambda one: number(one.score, ".1%"),
            "questions": "n_items",
            "set": lambda one: when(one.set_at),
        },
        Baseline,
    )


@on_server(baselines, "delete")
def delete_baseline(name: _Name, yes: YesOption = False) -> None:
    """Delete a name; gates that used it do not change."""
    confirm(f"Delete the baseline {name!r}?", yes=yes)
    asked(lambda client: client.remove(path_of("baselines", name)))
