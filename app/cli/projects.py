"""`sextant projects`: whose banks, endpoints, sessions and all else there is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Annotated, Any
from urllib.parse import quote

import typer

from app.cli.archives import write_archive
from app.cli.chosen_project import chosen_project
from app.cli.client import ApiClient
from app.cli.connection import asked
from app.cli.console import err, fail_clearly, out, write_json
from app.cli.limits import changes_of, show_limits
from app.cli.logins import Target, target
from app.cli.options import (
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
        server, server_key, lambda client: client.post("/v1/projects", body, options=_OPTIONS)
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

    async def set_limits(client: ApiClient) -> dict[str, Any]:
        if not changes:
            return await client.get(path)
        return await client.patch(path, lambda found: {"limits": found["limits"] | changes})

    show_limits(asked(server, server_key, set_limits)["limits"])


@app.command("list")
@fail_clearly
def list_projects(
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List all projects."""
    found = asked(server, server_key, lambda client: client.every("/v1/projects?order=asc"))
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
    asked(server, server_key, lambda client: client.delete(_path(project), erase=erase))
    err.say(f"Deleted project {project!r}.")


@app.command()
@fail_clearly
def export(
    project: Annotated[str, typer.Argument(help="Its id or name.")],
    file: Annotated[Path, typer.Argument(help="Where to write it; nothing may be there.")],
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """Write all that a project holds to a ZIP file of JSON lines.

    Without secrets, but with the texts of withheld banks.
    """

    async def read(target_file: IO[bytes]) -> None:
        async for block in _exported(project, target(server, server_key)):
            target_file.write(block)

    rows = write_archive(file, lambda opened: asyncio.run(read(opened)))
    held = ", ".join(f"{n} {table}" for table, n in rows.items() if n)
    out.say(f"Wrote {file}: {held}.")


async def _exported(project: str, named: Target | None) -> AsyncIterator[bytes]:
    if named is not None:
        async with ApiClient(named.url, named.key, project=chosen_project()) as client:
            async for block in client.blocks(f"{_path(project)}/export"):
                yield block
        return
    # Those who only talk to a server need none of it. And no server of our own: what is called
    # within this process comes as a whole.
    from app.cli.runtime import open_database
    from app.services.projects import ProjectService
    from app.settings import Settings

    async with open_database(Settings()) as database:
        async for block in (await ProjectService(database).export(project)).blocks:
            yield block


def _path(project: str) -> str:
    return f"/v1/projects/{quote(project, safe='')}"
