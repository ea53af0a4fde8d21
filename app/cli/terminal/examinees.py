"""Which model a command asks: a URL with a model's name, or a saved endpoint by name or id."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from app.cli.servers.connection import given
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

#: Begins the id of a saved endpoint.
SAVED = "end_"
#: Fields of an endpoint by the options that set them.
OPTIONS: Mapping[str, str] = {
    "/name": "NAME",
    "/base_url": "--endpoint",
    "/model": "--model",
    "/kind": "--kind",
    "/api_key": "--api-key",
    "/price/input_per_1m": "--price-input",
    "/price/output_per_1m": "--price-output",
    "/limits/usd_per_day": "--usd-per-day",
    "/limits/tokens_per_day": "--tokens-per-day",
    "/sampling/max_tokens": "--max-tokens",
    "/sampling/temperature": "--temperature",
    "/sampling/stop": "--stop",
    "/options/extra_body": "--extra-body",
}


def is_url(text: str) -> bool:
    """Whether an endpoint is given by its address, not by a name."""
    return "://" in text


async def saved_endpoint(client: AsyncSextant, name: str) -> dict[str, Any]:
    """A saved endpoint by name or id.

    Raises:
        InvalidInputError: There is none; suggests near misses.
    """
    if name.startswith(SAVED):
        return await client.request("GET", f"/v1/endpoints/{quote(name, safe='')}")
    found = await client.list_all(f"/v1/endpoints?name={quote(name, safe='')}", limit=1)
    if found:
        return found[0]
    names = [one["name"] for one in await client.list_all("/v1/endpoints", limit=1000)]
    close = get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInputError(
        f"There is no saved endpoint {name!r}.{hint} `sextant endpoints list` lists them; an "
        "address begins with http:// or https://."
    )


def require_fitting(endpoint: str, model: str | None, settings: Mapping[str, Any]) -> None:
    """Refuse options that do not go together, before anything is started for them.

    Args:
        endpoint: `--endpoint`.
        model: `--model`.
        settings: What else the options say of an endpoint; empty values do not count.

    Raises:
        InvalidInputError: A URL without a model, or settings of what is saved with its own.
    """
    if is_url(endpoint):
        if model is None:
            raise InvalidInputError("--model: say which model of the endpoint is meant.")
        return
    # The kind has a default, and the key may come from a variable that is meant for others.
    own = {name for name, value in given(**settings).items() if name not in ("kind", "api_key")}
    if model is not None and not own:
        raise InvalidInputError(
            f"{endpoint!r} is no address, which begins with http:// or https:// (such as "
            f"http://{endpoint}), and of a saved endpoint of that name the model is known: leave "
            "--model out."
        )
    if model is not None or own:
        raise InvalidInputError(
            f"{endpoint} is saved with its model, price and sampling: leave --model, "
            "--price-input, --price-output, --max-tokens, --temperature, --stop and "
            "--extra-body out."
        )


async def examinee(
    client: AsyncSextant, endpoint: str, model: str | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """`endpoint_id`, or `endpoint`, of a session; see `require_fitting`.

    Raises:
        InvalidInputError: There is no such endpoint.
    """
    if is_url(endpoint):
        return {"endpoint": given(base_url=endpoint, model=model, **settings)}
    return {"endpoint_id": (await saved_endpoint(client, endpoint))["id"]}
