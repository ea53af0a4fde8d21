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
    name: Annotated[str, typer.Argument(help="What it is called.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Create a project. Its id is printed alone on stdout."""
    body = {"name": name, "description": description}
    made = request("POST", "/v1/projects", body, _OPTIONS)
    err.say(f"Created project {made['name']!r}.")
    out.say(str(made["id"]))


@on_server(app, limits=True)
def limit(
    project: Annotated[str, typer.Argument(help="Its id or name.")],
) -> None:
    """Set what a project may use, 0 for as much as there is; other limits stay. Prints them all."""
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
    project: Annotated[str, typer.Argument(help="Its id or name.")],
    erase: Annotated[bool, typer.Option("--erase", help="With all that it holds.")] = False,
) -> None:
    """Delete a project that holds nothing, with its keys; or one with all that it holds."""
    asked(lambda client: client.remove(path_of("projects", project), erase=erase))
    err.say(f"Deleted project {project!r}.")
