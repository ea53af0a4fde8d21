"""What commands have in common that work over the API: a connection, signals, exit codes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import typer
from pydantic import ValidationError

import sextant_client
from app.cli.servers.logins import Target
from app.cli.servers.options import chosen
from app.cli.servers.problems import in_words, is_missing
from app.cli.terminal.console import JsonObject, err
from app.cli.terminal.signals import run_until_signal
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

T = TypeVar("T")

#: Exit code of a test that ended without a result, and of one that a signal ended.
FAILED, INTERRUPTED = 1, 130
#: Seconds in which a server must have cancelled what a signal has ended.
_CANCEL_S = 10.0
#: Of a request: a server that is gone for a moment ends no test, and one that is none is told soon.
_RETRIES = 2
#: Seconds between two looks at what runs.
_POLL_S = 0.2
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@asynccontextmanager
async def reached(
    named: Target, options: Mapping[str, str] = _NO_OPTIONS
) -> AsyncIterator[AsyncSextant]:
    """A client of a server that is up; faults are told in the words of a command's options."""
    project = chosen().project or ""
    try:
        opened = AsyncSextant(named.url, named.key or "", project=project, retries=_RETRIES)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
    async with opened as client:
        with in_words(client, options):
            yield client


@asynccontextmanager
async def connected(
    options: Mapping[str, str] = _NO_OPTIONS, *, bank: str | None = None, changes: bool = False
) -> AsyncIterator[AsyncSextant]:
    """A client of the server that is named, else of one on the configured database.

    The latter is a server with a worker where the command needs one; else the API of this process,
    without a socket and without a worker.

    Args:
        options: Of the command, by pointers to the fields that they set.
        bank: What will be asked; our own server installs `demo`.
        changes: Our own server lets the client change banks.
    """
    if (named := chosen().target) is not None:
        async with reached(named, options) as client:
            yield client
        return
    # Whoever only talks to a server need not wait until all that a server is made of is loaded.
    from app.cli.servers.server import in_process, own_server

    own = own_server(bank, changes_banks=changes) if chosen().runs else in_process()
    async with own as client:
        with in_words(client, options):
            yield client


@asynccontextmanager
async def there(
    client: AsyncSextant, kind: str, name: str, new: JsonObject | None
) -> AsyncIterator[bool]:
    """What is called so, and whether it is new: what is made goes again if the block fails.

    Args:
        client: Of the server.
        kind: Collection that it is in, `banks` or `response-sets`.
        name: Its name.
        new: What is made where there is none; None in a dry run, which makes none.
    """
    path, made = path_of(kind, name), False
    try:
        await client.request("GET", path)
    except sextant_client.ProblemError as error:
        if not is_missing(error):
            raise
        if new is None:
            what = kind.removesuffix("s").replace("-", " ")
            raise InvalidInputError(
                f"--dry-run: the server has no {what} {name!r} yet, and a dry run makes none."
            ) from None
        await client.request("POST", path_of(kind), json=new)
        made = True
    try:
        yield made
    except BaseException:
        if made:
            await client.remove(path)
        raise


async def events(client: AsyncSextant, path: str) -> AsyncIterator[tuple[str, JsonObject]]:
    """Type and data of each event of a resource, until the last one.

    They are polled: the API of this process streams nothing.
    """
    after, ended = 0, False
    while not ended:
        page = await client.request("GET", f"{path}/events", params={"after": after})
        for event in page["data"]:
            yield event["type"], event["data"]
        after, ended = page["last_seq"], page["ended"]
        if not ended and not page["data"]:
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def ended_with_us(client: AsyncSextant, kind: str, resource_id: str) -> AsyncIterator[None]:
    """Cancel what this command has started where a signal, or an unreadable reply, ends it.

    Else it would go on to call models, and to cost, with nobody who waits for what it finds: at the
    server, or as soon as a worker comes to our own database again.

    Args:
        client: Of the server that runs it.
        kind: Collection that it is in, such as `sessions`.
        resource_id: Its id.
    """
    try:
        yield
    except (asyncio.CancelledError, ValidationError, KeyError):
        try:
            async with asyncio.timeout(_CANCEL_S):
                await client.request("POST", f"/v1/{kind}/{resource_id}:cancel")
        except (sextant_client.SextantError, TimeoutError) as error:
            if getattr(error, "code", None) != "invalid_state":  # it has ended
                err.print(
                    f"{resource_id} could not be cancelled and may go on: {error}", soft_wrap=True
                )
        else:
            err.print(f"Cancelled {resource_id}.")
        raise


def asked(
    use: Callable[[AsyncSextant], Coroutine[Any, Any, T]],
    options: Mapping[str, str] = _NO_OPTIONS,
) -> T:
    """What `use` finds out through the client of `connected`."""

    async def run() -> T:
        async with connected(options) as client:
            return await use(client)

    return asyncio.run(run())


def request(
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
    path: str,
    body: JsonObject | None = None,
    options: Mapping[str, str] = _NO_OPTIONS,
) -> JsonObject:
    """What one call of the API gives."""
    return asked(lambda client: client.request(method, path, json=body), options)


def listed(path: str, limit: int | None = None) -> list[JsonObject]:
    """All that a list of the API holds, or so many."""
    return [*asked(lambda client: client.list_all(path, limit=limit))]


def path_of(*parts: str) -> str:
    """Path of a resource, such as `/v1/banks/NAME`."""
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def run_to_the_end(measure: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; a signal ends the command quietly with code 130."""
    try:
        return run_until_signal(measure())
    except KeyboardInterrupt:
        err.print("Interrupted; what was asked so far is kept.")
        raise typer.Exit(INTERRUPTED) from None
