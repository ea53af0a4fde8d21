"""The examinee of a command: a URL with a model's name, or a saved endpoint."""

from collections.abc import Mapping
from typing import Annotated, Literal

import typer

from app.cli.servers.connection import path_of
from app.cli.terminal.console import JsonObject
from app.cli.terminal.options import given, object_of
from app.errors import InvalidInputError, did_you_mean
from app.items import Json
from sextant_client import AsyncSextant

EndpointKeyOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_ENDPOINT_KEY",
        help="API key of the endpoint; better set as environment variable.",
    ),
]
KindOption = Annotated[
    str,
    typer.Option(
        help="API of the endpoint: openai_chat, openai_completions, hf_endpoint or hf_tgi."
    ),
]
PriceInputOption = Annotated[
    float | None, typer.Option(help="US dollars per million prompt tokens.")
]
PriceOutputOption = Annotated[
    float | None, typer.Option(help="US dollars per million completion tokens.")
]
Shots = Annotated[
    int | None,
    typer.Option("--shots", help="Number of the bank's examples to use, from the first."),
]
System = Annotated[
    str | None, typer.Option("--system", help="System prompt instead of the bank's; '' for none.")
]
ModeOption = Annotated[
    Literal["generate", "loglikelihood"] | None,
    typer.Option(
        "--mode",
        help="How multiple choice is asked; by default as the bank says, if the endpoint can.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", help="Stop sequence; may be repeated. \\n is a line break."),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(
        "--extra-body",
        help="JSON object whose fields are added to the body of each call; no secrets.",
    ),
]

#: Prefix of the ids of saved endpoints.
SAVED = "end_"
#: Field of an endpoint -> the option that sets it.
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
    """Whether an endpoint is given as an address, and not by name."""
    return "://" in text


async def saved_endpoint(client: AsyncSextant, name: str) -> JsonObject:
    """Look up a saved endpoint by name or id; the error suggests similar names."""
    if name.startswith(SAVED):
        return await client.request("GET", path_of("endpoints", name))
    found = await client.list_all("/v1/endpoints", limit=1, params={"name": name})
    if found:
        return found[0]
    names = [one["name"] for one in await client.list_all("/v1/endpoints", limit=1000)]
    raise InvalidInputError(
        f"There is no saved endpoint {name!r}.{did_you_mean(name, names)} `sextant endpoints list` "
        "lists them; an address begins with http:// or https://."
    )


def require_fitting(endpoint: str, model: str | None, settings: JsonObject) -> None:
    """Refuse a URL without a model, and a saved endpoint with settings of its own."""
    if is_url(endpoint):
        if model is None:
            raise InvalidInputError(
                "--model: expected the name of a model at the endpoint, got none."
            )
        return
    # These two do not count: the kind has a default, and the key may come from a variable.
    own = {name for name, value in given(**settings).items() if name not in ("kind", "api_key")}
    if model is not None and not own:
        raise InvalidInputError(
            "--endpoint: expected an address that begins with http:// or https:// (such as "
            f"http://{endpoint}), got {endpoint!r}. A saved endpoint of that name has its own "
            "model: leave --model out."
        )
    if model is not None or own:
        raise InvalidInputError(
            f"{endpoint} is saved with its model, price and sampling: leave --model, "
            "--price-input, --price-output, --max-tokens, --temperature, --stop and "
            "--extra-body out."
        )


async def examinee(
    client: AsyncSextant, endpoint: str, model: str | None, settings: JsonObject
) -> dict[str, Json]:
    """Make the `endpoint_id` or `endpoint` of a session, after `require_fitting`."""
    if is_url(endpoint):
        return {"endpoint": given(base_url=endpoint, model=model, **settings)}
    return {"endpoint_id": (await saved_endpoint(client, endpoint))["id"]}


def stops_of(stop: list[str] | None) -> list[str] | None:
    """Make `sampling.stop` of an endpoint."""
    return stop and [mark.replace("\\n", "\n") for mark in stop]


def options_of(extra_body: str | None) -> JsonObject:
    """Parse `options` of an endpoint."""
    return given(extra_body=object_of(extra_body, "--extra-body"))
