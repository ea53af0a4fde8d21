"""The examinee of a command: a URL with a model's name, or a saved endpoint."""

from collections.abc import Mapping
from typing import Literal

from app.cli.servers.connection import path_of
from app.cli.terminal.console import JsonObject
from app.cli.terminal.fields import Fields, option, reading
from app.cli.terminal.options import object_of
from app.errors import InvalidInputError, did_you_mean
from app.items import Json
from sextant_client import AsyncSextant

#: Settings of an endpoint that is called.
SETTINGS: Fields = {
    "/kind": option(
        str,
        "API of the endpoint: openai_chat (default), openai_completions, hf_endpoint or hf_tgi.",
    ),
    "/api_key": option(
        str,
        "API key of the endpoint; better set as environment variable.",
        envvar="SEXTANT_ENDPOINT_KEY",
    ),
    "/price/input_per_1m": option(float, "US dollars per million prompt tokens.", "--price-input"),
    "/price/output_per_1m": option(
        float, "US dollars per million completion tokens.", "--price-output"
    ),
    "/sampling/max_tokens": option(int, "Maximum number of tokens of an answer."),
    "/sampling/temperature": option(float, "Sampling temperature."),
    "/sampling/stop": option(
        list[str],
        "Stop sequence; may be repeated. \\n is a line break.",
        callback=reading(lambda stops: [one.replace("\\n", "\n") for one in stops]),
    ),
    "/options/extra_body": option(
        str,
        "JSON object whose fields are added to the body of each call; no secrets.",
        callback=reading(object_of),
    ),
}
#: How questions are asked.
PROMPT: Fields = {
    "/prompt/shots": option(int, "Number of the bank's examples to use, from the first."),
    "/prompt/system": option(str, "System prompt instead of the bank's; '' for none."),
    "/prompt/mode": option(
        Literal["generate", "loglikelihood"],
        "How multiple choice is asked; by default as the bank says, if the endpoint can.",
    ),
}
#: Fields of who is asked, beside those of `SETTINGS` -> the option that sets them.
ENDPOINT: Mapping[str, str] = {
    "/endpoint_id": "--endpoint",
    "/endpoint/base_url": "--endpoint",
    "/endpoint/model": "--model",
}
USUAL_KIND = "openai_chat"
#: Prefix of the ids of saved endpoints.
SAVED = "end_"


def is_url(text: str) -> bool:
    """Whether an endpoint is given as an address, and not by name."""
    return "://" in text


async def saved_endpoint(client: AsyncSextant, name: str) -> JsonObject:
    """Look up a saved endpoint by name or id; the error suggests similar names."""
    if name.startswith(SAVED):
        return await client.request("GET", path_of("endpoints", name))
    params = {"name": name.strip()}
    if params["name"] and (found := await client.list_all("/v1/endpoints", limit=1, params=params)):
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
    # These two do not count: a kind does no harm, and the key may come from a variable.
    own = settings.keys() - {"kind", "api_key"}
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
        settings = {"kind": USUAL_KIND, **settings}
        return {"endpoint": {**settings, "base_url": endpoint, "model": model}}
    return {"endpoint_id": (await saved_endpoint(client, endpoint))["id"]}
