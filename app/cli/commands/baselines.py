"""`sextant baselines`: results that gates hold later ones against."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.servers.connection import asked
from app.cli.terminal.console import fail_clearly, out, write_json
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.cli.terminal.tables import show_table, when
from app.errors import InvalidInputError
from app.printable import percent

app = typer.Typer(no_args_is_help=True, help="Name results that gates hold later ones against.")

_Name = Annotated[str, typer.Argument(help="Name of a baseline, such as `production`.")]


@app.command("set")
@fail_clearly
def set_baseline(
    name: _Name,
    session: Annotated[str, typer.Argument(help="Id of an ended session.")],
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Name the result of a session, or move the name to it."""
    if "/" in name or ":" in name:
        raise InvalidInputError(f"NAME: expected a name without / and :, got {name!r}.")
    path, body = f"/v1/baselines/{quote(name, safe='')}", {"session_id": session}
    found = asked(
        server,
        server_key,
        lambda client: client.request("PUT", path, json=body),
        options={"/session_id": "SESSION"},
    )
    write_json(json, found)
    if json != "-":
        out.say(f"{name} is {found['examinee']} now{_known_to(found)}.")


def _known_to(baseline: dict[str, Any]) -> str:
    """How exactly its score is known, and what tolerance that allows."""
    if (known := baseline["score_interval"]) is None:
        return ""
    width = 100.0 * (known["hi"] - known["lo"])
    # Of two such scores the difference has the error 2^0.5 se; with a chance of 0.8 its interval
    # ends above -2^0.5 (1.96 + 0.84) se for equals, and that is the width, 2 * 1.96 se.
    return (
        f", known to ±{width / 2:.1f} points by {baseline['n_items']} questions: a release as good "
        f"passes a tolerance of {width:.0f} points four times of five. For a smaller one extend "
        "the session, and set its baseline again"
    )


@app.command("list")
@fail_clearly
def list_baselines(
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List baselines by name."""
    found = asked(server, server_key, lambda client: client.list_all("/v1/baselines"))
    write_json(json, {"data": found})
    if json != "-":
        show_table(
            ("name", "model", "bank", "score", "questions", "set"),
            (
                (
                    one["name"],
                    one["examinee"],
                    one["bank"],
                    "-" if one["score"] is None else percent(one["score"], 1),
                    str(one["n_items"]),
                    when(one["set_at"]),
                )
                for one in found
            ),
        )


@app.command("delete")
@fail_clearly
def delete_baseline(
    name: _Name, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """Forget a name; gates that were made against it stay as they are."""
    path = f"/v1/baselines/{quote(name, safe='')}"
    asked(server, server_key, lambda client: client.remove(path))
