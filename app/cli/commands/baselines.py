"""`sextant baselines`: results that gates hold later ones against."""

from typing import Annotated

import typer

from app.cli.servers.connection import asked, listed, path_of, request
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import Json, out
from app.cli.terminal.tables import number, show_list, when
from app.cli.terminal.watch import further
from app.errors import InvalidInputError

app = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="Name of a baseline, such as `production`.")]


@on_server(app, "set", json=SAME)
def set_baseline(
    name: _Name,
    session: Annotated[str, typer.Argument(help="Id of an ended session.")],
) -> None:
    """Name the result of a session, or move the name to it."""
    if "/" in name or ":" in name:
        raise InvalidInputError(f"NAME: expected a name without / and :, got {name!r}.")
    path, options = path_of("baselines", name), {"/session_id": "SESSION"}
    found = request("PUT", path, {"session_id": session}, options)
    if also_json(found):
        ended = request("GET", path_of("sessions", found["session_id"]))
        out.say(f"{name} is {found['examinee']} now{_known_to(found, further(ended))}.")


def _known_to(baseline: Json, command: str | None) -> str:
    """How exactly its score is known, and what tolerance that allows."""
    if (known := baseline["score_interval"]) is None:
        return ""
    width = 100.0 * (known["hi"] - known["lo"])
    # Of two such scores the difference has the error 2^0.5 se; with a chance of 0.8 its interval
    # ends above -2^0.5 (1.96 + 0.84) se for equals, and that is the width, 2 * 1.96 se.
    longer = (
        f" For a smaller one extend the session ({command}), and set its baseline again"
        if command
        else ""
    )
    return (
        f", known to ±{width / 2:.1f} points by {baseline['n_items']} questions: a release as good "
        f"passes a tolerance of {width:.0f} points four times of five.{longer}"
    )


@on_server(app, "list", json=SAME)
def list_baselines() -> None:
    """List baselines by name."""
    found = listed("/v1/baselines")
    if also_json({"data": found}):
        show_list(
            found,
            {
                "name": "name",
                "model": "examinee",
                "bank": "bank",
                "score": lambda one: number(one["score"], ".1%"),
                "questions": "n_items",
                "set": lambda one: when(one["set_at"]),
            },
        )


@on_server(app, "delete")
def delete_baseline(name: _Name) -> None:
    """Forget a name; gates that were made against it stay as they are."""
    asked(lambda client: client.remove(path_of("baselines", name)))
