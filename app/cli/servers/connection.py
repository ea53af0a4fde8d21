"""What commands that use the API share: requests, events, waiting, signals and exit codes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import typer
import uvloop

import sextant_client
from app.cli.servers.logins import Target
from app.cli.servers.options import UNREADABLE, Word, chosen, in_words, is_missing
from app.cli.terminal.console import JsonObject, err
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

T = TypeVar("T")

#: Exit codes of a test without a result, and of a test that a signal ended.
FAILED, INTERRUPTED = 1, 130
#: Seconds that a server has to cancel work after a signal.
_CANCEL_S = 10.0
#: Retries of a request: enough for a short outage, and few enough to report a wrong address soon.
_RETRIES = 2
#: Seconds between two requests for new events.
_POLL_S = 0.2


@asynccontextmanager
async def reached(named: Target, word: Word | None = None) -> AsyncIterator[AsyncSextant]:
    """Client of a running server; errors name the options of the command, or what `word` gives."""
    project = chosen().project or ""
    try:
        opened = AsyncSextant(named.url, named.key or "", project=project, retries=_RETRIES)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
    async with opened as client:
        with in_words(client, word):
            yield client


@asynccontextmanager
async def connected(
    *, bank: str | None = None, word: Word | None = None
) -> AsyncIterator[AsyncSextant]:
    """Client of the named server, or else of the API of this process on the configured database.

    Where the command needs one, this process then has a worker, too.

    Args:
        bank: Bank that the test will ask; a worker of our own installs `demo`.
        word: Names a field in errors; by default after the option that sets it.
    """
    if (named := chosen().target) is not None:
        async with reached(named, word) as client:
            yield client
        return
    # Imported late: commands that only talk to a server need not wait for these modules.
    from app.cli.servers.server import in_process

    async with in_process(worker=chosen().runs) as (client, services):
        if chosen().runs and bank == "demo":
            await services.banks.ensure_demo_bank()
        with in_words(client, word):
            yield client


@asynccontextmanager
async def there(
    client: AsyncSextant, kind: str, name: str, new: JsonObject | None
) -> AsyncIterator[bool]:
    """Whether a resource of this name had to be created; a failing block removes it again.

    Args:
        client: Client of the server.
        kind: Collection, `banks` or `response-sets`.
        name: Name of the resource.
        new: Request body that creates it; None in a dry run, which creates nothing.
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
                f"--dry-run: the server has no {what} {name!r} yet, and a dry run makes none. "
                "Check the files on this machine with --server local, or create it by an import "
                "without --dry-run."
            ) from None
        await client.request("POST", path_of(kind), json=new)
        made = True
    try:
        yield made
    except BaseException:
        if made:
            await client.remove(path)
        raise


async def version_of(client: AsyncSextant, bank: str, version: str) -> JsonObject | None:
    """A version of a bank; None if that bank is no longer there."""
    try:
        return await client.request("GET", path_of("banks", bank, "versions", version))
    except sextant_client.ProblemError as problem:
        if is_missing(problem):
            return None
        raise


async def events(client: AsyncSextant, path: str) -> AsyncIterator[tuple[str, JsonObject]]:
    """Yield type and data of each event of a resource, until the last one.

    Events are polled, because the API of this process cannot stream.
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
    """Cancel the work that this command started if a signal or an unreadable reply ends the block.

    Otherwise the work would go on to call models, at a cost, with nobody waiting for the result: on
    the server, or as soon as a worker uses our own database again. A server that
    cannot be reached cannot cancel it: then its id is said. `kind` is the collection, such as
    `sessions`.
    """
    try:
        yield
    except sextant_client.UnreachableError:
        err.say(f"{resource_id} was begun and may go on: the server gives no answer.")
        raise
    except (asyncio.CancelledError, *UNREADABLE):
        try:
            async with asyncio.timeout(_CANCEL_S):
                await client.request("POST", f"/v1/{kind}/{resource_id}:cancel")
        except (sextant_client.SextantError, TimeoutError) as error:
            if getattr(error, "code", None) != "invalid_state":  # it has ended
                err.say(f"{resource_id} could not be cancelled and may go on: {error}")
        else:
            err.print(f"Cancelled {resource_id}.")
        raise


def asked(use: Callable[[AsyncSextant], Coroutine[Any, Any, T]]) -> T:
    """Run `use` with the client of `connected`, and return its result."""

    async def run() -> T:
        async with connected() as client:
            return await use(client)

    return asyncio.run(run())


def request(
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
    path: str,
    body: JsonObject | None = None,
) -> JsonObject:
    """Make one call of the API, and return the reply."""
    return asked(lambda client: client.request(method, path, json=body))


def listed(path: str, limit: int | None = None) -> list[JsonObject]:
    """All entries of a list of the API, or the first `limit`."""
    return [*asked(lambda client: client.list_all(path, limit=limit))]


def path_of(*parts: str) -> str:
    """Path of a resource, such as `/v1/banks/NAME`."""
    if unusable := {"", ".", ".."}.intersection(parts):  # they would name another path
        raise InvalidInputError(f"Expected a name or an id, got {unusable.pop()!r}.")
    return "/".join(["/v1", *(quote(part, safe="") for part in parts)])


def run_to_the_end(measure: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; a signal ends the command quietly with code 130."""
    try:
        return run_until_signal(measure())
    except KeyboardInterrupt:
        err.print("Interrupted; what was asked so far is kept.")
        raise typer.Exit(INTERRUPTED) from None


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; SIGINT and SIGTERM cancel it, so that it closes everything.

    Raises:
        KeyboardInterrupt: A signal cancelled the coroutine.
    """

    async def cancellable() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(main)

        def stop() -> None:
            # Cancels only once: `uv run` passes on a Ctrl-C that all processes have received
            # already, and a second cancellation would cut the clean-up short.
            if not task.cancelling():
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(cancellable())
