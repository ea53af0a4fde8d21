"""`sextant run`: measure one endpoint from the shell."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from app.cli.client import ApiClient
from app.cli.console import err, fail_clearly, write_json
from app.cli.runtime import run_until_signal
from app.cli.server import LocalServer, serving
from app.cli.watch import report, watch
from app.observability import configure_logging
from app.settings import Settings
from app.storage.repositories.api_keys import Scope

#: Exit code of a test that ended without a result, and of one that a signal ended.
FAILED, INTERRUPTED = 1, 130


@fail_clearly
def command(
    endpoint: Annotated[str, typer.Option(help="Base URL of the model's API, such as .../v1.")],
    model: Annotated[str, typer.Option(help="Model name that the endpoint knows.")],
    bank: Annotated[str, typer.Option(help="Bank to ask from; `demo` comes with Sextant.")],
    kind: Annotated[
        str, typer.Option(help="openai_chat, openai_completions, hf_endpoint or hf_tgi.")
    ] = "openai_chat",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="SEXTANT_ENDPOINT_KEY", help="Key of the endpoint; better set by the variable."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="default or atlas.")] = None,
    selector: Annotated[str | None, typer.Option(help="Criterion that chooses items.")] = None,
    se_target: Annotated[float | None, typer.Option(help="Stop at this standard error.")] = None,
    min_items: Annotated[int | None, typer.Option(help="Ask at least so many items.")] = None,
    max_items: Annotated[int | None, typer.Option(help="Ask at most so many items.")] = None,
    pretest: Annotated[
        int | None,
        typer.Option(help="Items without parameters to ask beside the test, unscored."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Items in flight.")] = 1,
    budget_usd: Annotated[float | None, typer.Option(help="Stop when this is spent.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Stop at so many tokens.")] = None,
    budget_seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    price_input: Annotated[
        float | None, typer.Option(help="US dollars per million prompt tokens.")
    ] = None,
    price_output: Annotated[
        float | None, typer.Option(help="US dollars per million completion tokens.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    seed: Annotated[int | None, typer.Option(help="For every random choice.")] = None,
    server: Annotated[
        str | None, typer.Option(help="Use this Sextant server instead of one of our own.")
    ] = None,
    server_key: Annotated[
        str | None, typer.Option(envvar="SEXTANT_API_KEY", help="API key for --server.")
    ] = None,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the session as JSON; - for stdout.")
    ] = None,
) -> None:
    """Measure one endpoint from the shell, with live progress.

    Runs the API and a worker for as long as the test takes, on DATABASE_URL or the embedded
    Postgres, unless --server names a Sextant server that is up.
    """
    body: dict[str, Any] = {
        "bank": bank,
        "endpoint": given(
            kind=kind,
            base_url=endpoint,
            model=model,
            api_key=api_key,
            price=given(input_per_1m=price_input, output_per_1m=price_output),
            sampling=given(max_tokens=max_tokens, temperature=temperature),
        ),
        "concurrency": concurrency,
        **given(
            preset=preset,
            seed=seed,
            selection=given(criterion=selector.replace("-", "_") if selector else None),
            stopping=given(se=se_target, min_items=min_items, max_items=max_items),
            pretest=given(items_per_session=pretest),
            budget=given(usd=budget_usd, tokens=budget_tokens, seconds=budget_seconds),
        ),
    }

    async def measure() -> dict[str, Any]:
        async with connected(server, server_key, bank=bank) as client:
            created = await client.post("/v1/sessions", body)
            return await watch(client, created["id"])

    session = run_to_the_end(measure)
    if json != "-":
        report(session)
    write_json(json, session)
    if session["status"] != "completed":
        failure = session["failure"] or {"detail": session["stop_detail"]}
        err.print(f"Error: {failure['detail']}", style="red", markup=False)
        raise typer.Exit(FAILED)


@asynccontextmanager
async def connected(
    server: str | None, server_key: str | None, *, bank: str | None
) -> AsyncIterator[ApiClient]:
    """A client of a Sextant server that is up, or of one of our own as long as it is needed.

    Args:
        server: Its URL; our own, on the configured database, if there is none.
        server_key: API key for `server`.
        bank: What will be asked; our own server installs `demo`.
    """
    async with AsyncExitStack() as stack:
        if server is not None:
            yield await stack.enter_async_context(ApiClient(server, server_key))
            return
        settings = Settings(port=0, host="127.0.0.1", log_level="warning")
        configure_logging(settings)
        local = await stack.enter_async_context(serving(settings))
        if bank == "demo":
            await local.services.banks.ensure_demo_bank()
        yield await stack.enter_async_context(await own_client(local))


def run_to_the_end(measure: Any) -> dict[str, Any]:
    """Run a command's coroutine; a signal ends the command quietly with code 130."""
    try:
        result: dict[str, Any] = run_until_signal(measure())
    except KeyboardInterrupt:
        err.print("Interrupted; what was asked so far is kept.")
        raise typer.Exit(INTERRUPTED) from None
    return result


async def own_client(local: LocalServer) -> ApiClient:
    """A client of our own server, with a key that outlives no test by long."""
    _, secret = await local.services.api_keys.create(
        name="sextant run",
        scopes=[Scope.READ, Scope.RUN],
        expires_at=datetime.now(UTC) + timedelta(days=1),
    )
    return ApiClient(local.base_url, secret)


def given(**values: Any) -> dict[str, Any]:
    """Only what was given: the server's defaults hold for the rest."""
    return {name: value for name, value in values.items() if value not in (None, {})}
