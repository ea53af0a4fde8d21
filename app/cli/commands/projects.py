"""`sextant projects`: whose banks, endpoints, sessions and all else there is."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.servers.connection import asked
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.limits import changes_of, show_limits
from app.cli.terminal.options import (
    AskServerOption,
    EventStreamsOption,
    OpenSessionsOption,
    RequestsPerSOption,
    SameAsJsonOption,
    ServerKeyOption,
    StoredBytesOption,
    TokensPerDayOption,
    UsdPerDayOption,
)
from sextant_client import AsyncSextant

_OPTIONS = {"/name": "NAME", "/description": "--description"}

app = typer.Typer(no_args_is_help=True, help="Create, list, limit and delete projects.")


@app.command()
@fail_clearly
def create(
    name: Annotated[str, typer.Argument(help="What it is called.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """Create a project. Its id is printed alone on stdout."""
    body = {"name": name, "description": description}
    made = asked(
        server,
        server_key,
        lambda client: client.request("POST", "/v1/projects", json=body),
        _OPTIONS,
    )
    err.say(f"Created project {made['name']!r}.")
    out.say(made["id"])


@app.command()
@fail_clearly
def limit(
    project: Annotated[str, typer.Argument(help="Its id or name.")],
    usd_per_day: UsdPerDayOption = None,
    tokens_per_day: TokensPerDayOption = None,
    requests_per_s: RequestsPerSOption = None,
    stored_bytes: StoredBytesOption = None,
    open_sessions: OpenSessionsOption = None,
    event_streams: EventStreamsOption = None,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """Set what a project may use, 0 for as much as there is; other limits stay. Prints them all."""
    changes = changes_of(
        usd_per_day=usd_per_day,
        tokens_per_day=tokens_per_day,
        requests_per_s=requests_per_s,
        open_sessions=open_sessions,
        event_streams=event_streams,
        stored_bytes=stored_bytes,
    )
    path = _path(project)

    async def set_limits(client: AsyncSextant) -> dict[str, Any]:
        if not changes:
            return await client.request("GET", path)
        return await client.change(path, lambda found: {"limits": found["limits"] | changes})

    show_limits(asked(server, server_key, set_limits)["limits"])


@app.command("list")
@fail_clearly
def list_projects(
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List all projects."""
    found = asked(server, server_key, lambda client: client.list_all("/v1/projects?order=asc"))
    write_json(json, {"data": found})
    if json != "-":
        for project in found:
            out.say(f"{project['id']}  {project['name']}")


@app.command()
@fail_clearly
def delete(
    project: Annotated[str, typer.Argument(help="Its id or name.")],
    erase: Annotated[bool, typer.Option("--erase", help="With all that it holds.")] = False,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """Delete a project that holds nothing, with its keys; or one with all that it holds."""
    asked(server, server_key, lambda client: client.remove(_path(project), erase=erase))
    err.say(f"Deleted project {project!r}.")


def _path(project: str) -> str:
    return f"/v1/projects/{quote(project, safe='')}"
