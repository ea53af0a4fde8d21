"""`sextant projects`: manage projects, each with its own banks, endpoints and sessions."""

from typing import Annotated

import typer

from app.cli.servers.connection import asked, listed, path_of, request
from app.cli.servers.options import SAME, also_json, chosen, on_server
from app.cli.terminal.console import JsonObject, err, out
from app.cli.terminal.replies import show_limits
from sextant_client import AsyncSextant

_OPTIONS = {"/name": "NAME", "/description": "--description"}

app = typer.Typer(no_args_is_help=True)


@on_server(app)
def create(
    name: Annotated[str, typer.Argument(help="Name of the project.")],
    description: Annotated[str, typer.Option(help="Purpose of the project.")] = "",
) -> None:
    """Create a project. Only its id is printed to stdout."""
    body = {"name": name, "description": description}
    made = request("POST", "/v1/projects", body, _OPTIONS)
    err.say(f"Created project {made['name']!r}.")
    out.say(str(made["id"]))


@on_server(app, limits=True)
def limit(
    project: Annotated[str, typer.Argument(help="Id or name of the project.")],
) -> None:
    """Set limits of a project, and print all its limits.

    0 removes a limit. Limits that are not given do not change.
    """
    path = path_of("projects", project)

    async def set_limits(client: AsyncSextant) -> JsonObject:
        if not (changes := chosen().limits):
            return await client.request("GET", path)
        return await client.change(path, lambda found: {"limits": {**found["limits"], **changes}})

    show_limits(asked(set_limits))


@on_server(app, "list", json=SAME)
def list_projects() -> None:
    """List all projects."""
    found = listed("/v1/projects?order=asc")
    if also_json({"data": found}):
        for project in found:
            out.say(f"{project['id']}  {project['name']}")


@on_server(app)
def delete(
    project: Annotated[str, typer.Argument(help="Id or name of the project.")],
    erase: Annotated[
        bool, typer.Option("--erase", help="Also delete everything in the project.")
    ] = False,
) -> None:
    """Delete an empty project with its keys, or with --erase a project with everything in it."""
    asked(lambda client: client.remove(path_of("projects", project), erase=erase))
    err.say(f"Deleted project {project!r}.")
