"""`sextant endpoints`: save, list, show, probe and delete endpoints."""

from typing import Annotated, Any

import typer

from app.cli.servers.connection import asked, listed, request
from app.cli.servers.options import SAME, also_json, on_server, tell_list
from app.cli.terminal.console import JsonObject, out, show_facts, when
from app.cli.terminal.examinees import SETTINGS, USUAL_KIND, saved_endpoint
from app.cli.terminal.fields import below
from app.cli.terminal.options import LIMITS, EraseOption, YesOption, confirm
from app.items import Json
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name or id of a saved endpoint.")]


@on_server(
    app,
    json=SAME,
    fields={**SETTINGS, **below("", LIMITS, "/limits/usd_per_day", "/limits/tokens_per_day")},
    names={"/base_url": "--endpoint"},
)
def save(
    body: dict[str, Any],
    name: Annotated[str, typer.Argument(help="Name to save the endpoint under.")],
    endpoint: Annotated[str, typer.Option(help="Base URL of the model's API, such as .../v1.")],
    model: Annotated[str, typer.Option(help="Model name, as the endpoint knows it.")],
) -> None:
    """Save an endpoint under a name; its key is stored encrypted and never shown."""
    body |= {"name": name, "base_url": endpoint, "model": model}
    saved = request("POST", "/v1/endpoints", {"kind": USUAL_KIND, **body})
    if also_json(saved):
        out.say(f"Saved {saved['name']}  {saved['id']}")


@on_server(app, "list", json=SAME)
def list_endpoints() -> None:
    """List saved endpoints."""
    tell_list(
        listed("/v1/endpoints?order=asc"),
        {
            "name": "name",
            "kind": "kind",
            "model": "model",
            "base URL": "base_url",
            "key": lambda one: "set" if one["api_key_set"] else "-",
            "id": "id",
        },
    )


@on_server(app, json=SAME)
def show(name: Name) -> None:
    """Show a saved endpoint."""
    found = asked(lambda client: saved_endpoint(client, name))
    if not also_json(found):
        return
    first, then = found["price"]["input_per_1m"], found["price"]["output_per_1m"]
    show_facts(
        found["name"] or found["model"],
        {
            "id": found["id"],
            "kind": found["kind"],
            "model": found["model"],
            "base URL": found["base_url"],
            "key": "set" if found["api_key_set"] else "none",
            "price": "unknown"
            if first is None
            else f"${first:g} in, ${then or 0:g} out per million tokens",
            "saved": when(found["created_at"]),
        },
    )


@on_server(app, json=SAME)
def probe(name: Name) -> None:
    """Call a saved endpoint, and show its capabilities and latency."""

    async def look(client: AsyncSextant) -> JsonObject:
        endpoint = await saved_endpoint(client, name)
        return await client.request("POST", f"/v1/endpoints/{endpoint['id']}:probe")

    found = asked(look)
    if also_json(found):
        facts = {"detail": found["detail"], **found}
        facts.pop("object", None)
        if facts.get("error_code") is None:
            facts.pop("error_code", None)
        if isinstance(capabilities := facts.pop("capabilities", None), dict):
            facts |= capabilities
        show_facts(name, {key.replace("_", " "): _shown(value) for key, value in facts.items()})


@on_server(app)
def delete(name: Name, yes: YesOption = False, erase: EraseOption = False) -> None:
    """Delete a saved endpoint. Tests that used it keep their results."""
    confirm(f"Delete the endpoint {name!r}?", yes=yes)

    async def remove(client: AsyncSextant) -> None:
        endpoint = await saved_endpoint(client, name)
        await client.remove(f"/v1/endpoints/{endpoint['id']}", erase=erase)

    asked(remove)
    out.say(f"Deleted {name}.")


def _shown(value: Json) -> str:
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
