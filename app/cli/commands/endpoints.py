"""`sextant endpoints`: models that can be called, under names."""

from typing import Annotated, Any

import typer

from app.cli.servers.connection import asked, given
from app.cli.terminal.asking import ExtraBody, Stop, options_of, stops_of
from app.cli.terminal.console import fail_clearly, out, write_json
from app.cli.terminal.examinees import OPTIONS, saved_endpoint
from app.cli.terminal.options import (
    AskServerOption,
    EndpointKeyOption,
    EraseOption,
    KindOption,
    PriceInputOption,
    PriceOutputOption,
    SameAsJsonOption,
    ServerKeyOption,
    TokensPerDayOption,
    UsdPerDayOption,
)
from app.cli.terminal.tables import show_facts, show_table, when
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True, help="Save, list, show, probe and delete endpoints.")

Name = Annotated[str, typer.Argument(help="Name or id of a saved endpoint.")]


@app.command()
@fail_clearly
def save(
    name: Annotated[str, typer.Argument(help="Under which it is saved.")],
    endpoint: Annotated[str, typer.Option(help="Base URL of the model's API, such as .../v1.")],
    model: Annotated[str, typer.Option(help="Model name that the endpoint knows.")],
    kind: KindOption = "openai_chat",
    api_key: EndpointKeyOption = None,
    price_input: PriceInputOption = None,
    price_output: PriceOutputOption = None,
    usd_per_day: UsdPerDayOption = None,
    tokens_per_day: TokensPerDayOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    stop: Stop = None,
    extra_body: ExtraBody = None,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Save an endpoint under a name; its key is kept encrypted and never shown."""
    body = given(
        name=name,
        kind=kind,
        base_url=endpoint,
        model=model,
        api_key=api_key,
        price=given(input_per_1m=price_input, output_per_1m=price_output),
        limits=given(usd_per_day=usd_per_day, tokens_per_day=tokens_per_day),
        sampling=given(max_tokens=max_tokens, temperature=temperature, stop=stops_of(stop)),
        options=options_of(extra_body),
    )
    saved = asked(
        server,
        server_key,
        lambda client: client.request("POST", "/v1/endpoints", json=body),
        OPTIONS,
    )
    write_json(json, saved)
    if json != "-":
        out.say(f"Saved {saved['name']}  {saved['id']}")


@app.command("list")
@fail_clearly
def list_endpoints(
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List saved endpoints."""
    found = asked(server, server_key, lambda client: client.list_all("/v1/endpoints?order=asc"))
    write_json(json, {"data": found})
    if json != "-":
        show_table(
            ("name", "kind", "model", "base URL", "key", "id"),
            (
                (
                    one["name"],
                    one["kind"],
                    one["model"],
                    one["base_url"],
                    "set" if one["api_key_set"] else "-",
                    one["id"],
                )
                for one in found
            ),
        )


@app.command()
@fail_clearly
def show(
    name: Name,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show a saved endpoint."""
    found = asked(server, server_key, lambda client: saved_endpoint(client, name))
    write_json(json, found)
    if json == "-":
        return
    price = found["price"]
    show_facts(
        found["name"] or found["model"],
        {
            "id": found["id"],
            "kind": found["kind"],
            "model": found["model"],
            "base URL": found["base_url"],
            "key": "set" if found["api_key_set"] else "none",
            "price": "unknown"
            if price["input_per_1m"] is None
            else f"${price['input_per_1m']:g} in, ${price['output_per_1m'] or 0:g} out "
            "per million tokens",
            "saved": when(found["created_at"]),
        },
    )


@app.command()
@fail_clearly
def probe(
    name: Name,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Call a saved endpoint once and say what it can do, and how fast."""

    async def look(client: AsyncSextant) -> dict[str, Any]:
        endpoint = await saved_endpoint(client, name)
        return await client.request("POST", f"/v1/endpoints/{endpoint['id']}:probe")

    found = asked(server, server_key, look)
    write_json(json, found)
    if json != "-":
        facts = {"detail": found["detail"], **found}
        facts.pop("object", None)
        if facts.get("error_code") is None:
            facts.pop("error_code", None)
        facts |= facts.pop("capabilities", {})
        show_facts(name, {key.replace("_", " "): _shown(value) for key, value in facts.items()})


@app.command()
@fail_clearly
def delete(
    name: Name,
    erase: EraseOption = False,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
) -> None:
    """Delete a saved endpoint. Tests that used it keep their results."""

    async def remove(client: AsyncSextant) -> None:
        endpoint = await saved_endpoint(client, name)
        await client.remove(f"/v1/endpoints/{endpoint['id']}", erase=erase)

    asked(server, server_key, remove)
    out.say(f"Deleted {name}.")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
