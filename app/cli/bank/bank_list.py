"""`sextant banks list`, apart from `app.cli.commands.banks`, which takes long to load."""

import asyncio
from dataclasses import asdict
from typing import Any

import typer

from app.cli.servers.logins import Target, target
from app.cli.terminal.console import fail_clearly
from app.cli.terminal.options import AskServerOption, ServerKeyOption
from app.cli.terminal.tables import show_table

_PAGE = 100

app = typer.Typer(help="List item banks.")

#: Of a bank: name, items, version, active items, response model, id.
_Row = tuple[str, str, str, str, str, str]


@app.callback()
def _group() -> None:
    """A group, although there is one command in it."""


@app.command("list")
@fail_clearly
def list_banks(
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """List all banks."""
    named = target(server, server_key)
    rows = asyncio.run(_stored() if named is None else _served(named))
    show_table(("name", "items", "version", "active", "model", "id"), rows)


async def _served(server: Target) -> list[_Row]:
    from app.cli.servers.connection import reached

    async with reached(server) as client:
        banks = await client.list_all("/v1/banks?order=asc")
    return [_row(bank, bank["n_items"], bank["latest_version"]) for bank in banks]


async def _stored() -> list[_Row]:
    from app.cli.terminal.runtime import open_database
    from app.services.banks.overviews import list_banks
    from app.settings import Settings
    from app.storage.paging import PageRequest

    rows: list[_Row] = []
    after = None
    async with open_database(Settings()) as database:
        while True:
            request = PageRequest(limit=_PAGE, after=after, descending=False)
            page = await list_banks(database, request)
            for overview in page.items:
                latest = None if overview.latest is None else asdict(overview.latest)
                rows.append(_row(asdict(overview.bank), overview.n_items, latest))
            if not page.has_more:
                return rows
            after = page.items[-1].bank.id


def _row(bank: dict[str, Any], n_items: int, version: dict[str, Any] | None) -> _Row:
    if version is None:
        return (bank["name"], str(n_items), "-", "-", "-", bank["id"])
    provisional = " (provisional)" if version["provisional"] else ""
    return (
        bank["name"],
        str(n_items),
        f"{version['number']}{provisional}",
        str(version["lint"]["items"]["active"]),
        version["response_model"],
        bank["id"],
    )
