"""What commands have in common that work over the API: a connection, signals, exit codes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import typer

from app.cli.servers.chosen_project import chosen_project
from app.cli.servers.client import ApiClient, ApiError
from app.cli.servers.logins import target
from app.cli.terminal.console import err
from app.cli.terminal.signals import run_until_signal
from app.errors import SextantError

T = TypeVar("T")

#: Exit code of a test that ended without a result, and of one that a signal ended.
FAILED, INTERRUPTED = 1, 130
#: Seconds in which a server must have cancelled what a signal has ended.
_CANCEL_S = 10.0


@asynccontextmanager
async def connected(
    server: str | None, server_key: str | None, *, bank: str | None, changes_banks: bool = False
) -> AsyncIterator[ApiClient]:
    """A client of a Sextant server that is up, or of one of our own as long as it is needed.

    Args:
        server: Its URL; our own, on the configured database, if there is none.
        server_key: API key for `server`.
        bank: What will be asked; our own server installs `demo`.
        changes_banks: Our own server lets the client do so.
    """
    if (named := target(server, server_key)) is not None:
        async with ApiClient(named.url, named.key, project=chosen_project()) as client:
            yield client
        return
    # Whoever only talks to a server need not wait until all that a server is made of is loaded.
    from app.cli.servers.own_server import own_server

    async with own_server(bank, changes_banks=changes_banks) as client:
        yield client


@asynccontextmanager
async def stored(server: str | None, server_key: str | None) -> AsyncIterator[ApiClient]:
    """A client for what is stored: of a Sextant server, or of the configured database.

    The latter speaks to the API of this process, without a socket and without a worker.
    """
    if (named := target(server, server_key)) is not None:
        async with ApiClient(named.url, named.key, project=chosen_project()) as client:
            yield client
        return
    from app.cli.servers.own_server import in_process

    async with in_process() as client:
        yield client


@asynccontextmanager
async def ended_with_us(client: ApiClient, kind: str, resource_id: str) -> AsyncIterator[None]:
    """Cancel what this command has started where a signal ends the command.

    Else it would go on to call models, and to cost, with nobody who waits for what it finds: at the
    server, or as soon as a worker comes to our own database again.

    Args:
        client: Of the server that runs it.
        kind: Collection that it is in, `sessions` or `rankings`.
        resource_id: Its id.
    """
    try:
        yield
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(_CANCEL_S):
                await client.post(f"/v1/{kind}/{resource_id}:cancel", None)
        except (SextantError, TimeoutError) as error:
            if not (isinstance(error, ApiError) and error.kind == "invalid_state"):  # it has ended
                err.print(
                    f"{resource_id} could not be cancelled and may go on: {error}",
                    markup=False,
                    soft_wrap=True,
                )
        else:
            err.print(f"Cancelled {resource_id}.", markup=False)
        raise


def asked(
    server: str | None, server_key: str | None, use: Callable[[ApiClient], Coroutine[Any, Any, T]]
) -> T:
    """What `use` finds out through the client of `stored`."""

    async def run() -> T:
        async with stored(server, server_key) as client:
            return await use(client)

    return asyncio.run(run())


def run_to_the_end(measure: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    """Run a command's coroutine; a signal ends the command quietly with code 130."""
    try:
        result: dict[str, Any] = run_until_signal(measure())
    except KeyboardInterrupt:
        err.print("Interrupted; what was asked so far is kept.")
        raise typer.Exit(INTERRUPTED) from None
    return result


def given(**values: Any) -> dict[str, Any]:
    """Only what was given: the server's defaults hold for the rest."""
    return {name: value for name, value in values.items() if value not in (None, {})}
