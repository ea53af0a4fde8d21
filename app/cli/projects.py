"""`sextant projects`: whose banks, endpoints, sessions and all else there is."""

import math
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from app.cli.console import err, fail_clearly, out
from app.cli.database import on_database
from app.errors import InvalidInputError
from app.records.projects import Project
from app.services.projects import ProjectService
from app.settings import Settings
from app.storage.database import Database
from app.storage.paging import PageRequest

_PAGE = 100

app = typer.Typer(no_args_is_help=True, help="Create, list, limit and delete projects.")


@app.command()
@fail_clearly
def create(
    name: Annotated[str, typer.Argument(help="What it is called.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Create a project. Its id is printed alone on stdout."""
    made = on_database(
        Settings(), lambda db: ProjectService(db).create(name, description=description)
    )
    err.print(f"Created project {made.name!r}.", markup=False, soft_wrap=True)
    out.print(made.id, markup=False, soft_wrap=True)


@app.command()
@fail_clearly
def limit(
    project: Annotated[str, typer.Argument(help="Its id or name.")],
    usd_per_day: Annotated[
        float | None, typer.Option(help="US dollars that its calls may take in a day (UTC).")
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(help="Tokens that its calls may take in a day (UTC).")
    ] = None,
    requests_per_s: Annotated[float | None, typer.Option(help="Requests a second.")] = None,
    open_sessions: Annotated[int | None, typer.Option(help="Sessions that have not ended.")] = None,
) -> None:
    """Set what a project may use, 0 for as much as there is; other limits stay. Prints them all."""
    told: dict[str, Any] = {
        "usd_per_day": usd_per_day,
        "tokens_per_day": tokens_per_day,
        "requests_per_s": requests_per_s,
        "open_sessions": open_sessions,
    }
    given = {name: value for name, value in told.items() if value is not None}
    if refused := [name for name, value in given.items() if not 0 <= value < math.inf]:
        raise InvalidInputError(f"{refused[0]}: expected 0 or more, got {given[refused[0]]}.")
    changes = {name: value or None for name, value in given.items()}

    async def set_limits(database: Database) -> Project:
        projects = ProjectService(database)
        found = await projects.find(project)
        if not changes:
            return found
        limits = replace(found.limits, **changes)
        return await projects.update(found.id, found.revision, {"limits": limits})

    changed = on_database(Settings(), set_limits)
    for name, value in asdict(changed.limits).items():
        out.print(f"{name}  {'-' if value is None else value}", markup=False, soft_wrap=True)


@app.command("list")
@fail_clearly
def list_projects() -> None:
    """List all projects."""
    for project in on_database(Settings(), _all):
        out.print(f"{project.id}  {project.name}", markup=False, soft_wrap=True)


@app.command()
@fail_clearly
def delete(project: Annotated[str, typer.Argument(help="Its id or name.")]) -> None:
    """Delete a project that holds nothing, with its keys."""

    async def remove(database: Database) -> Project:
        projects = ProjectService(database)
        found = await projects.find(project)
        await projects.delete(found.id, found.revision)
        return found

    gone = on_database(Settings(), remove)
    err.print(f"Deleted project {gone.name!r}.", markup=False, soft_wrap=True)


async def _all(database: Database) -> list[Project]:
    projects = ProjectService(database)
    found: list[Project] = []
    after = None
    while True:
        page = await projects.page(PageRequest(limit=_PAGE, after=after, descending=False))
        found += page.items
        if not page.has_more:
            return found
        after = found[-1].id
