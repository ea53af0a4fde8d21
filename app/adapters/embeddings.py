"""Vectors of texts, from an endpoint that speaks OpenAI's API: `POST {base_url}/embeddings`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.adapters.base import EndpointConfig
from app.adapters.endpoint import clean, json_endpoint, require_model, token_count
from app.adapters.transport import Reply, Transport
from app.errors import InvalidInputError

#: Kinds of endpoints whose servers have this route.
KINDS: Final = ("openai_chat", "openai_completions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors in the order of the texts.

    Attributes:
        vectors: All of one length.
        tokens_in: As reported; `None` when the endpoint does not say.
        model: The name that it echoed, or the one asked for.
    """

    vectors: tuple[tuple[float, ...], ...]
    tokens_in: int | None
    model: str


async def embed(config: EndpointConfig, transport: Transport, texts: Sequence[str]) -> Embeddings:
    """Ask once for the vectors of `texts`.

    Raises:
        InvalidInputError: The endpoint is not of a kind that has the route.
        ExamineeError: Classified, as for completions.
    """
    if config.kind not in KINDS:
        raise InvalidInputError(
            f"Embeddings need an endpoint of kind {' or '.join(KINDS)}, got {config.kind!r}."
        )
    require_model(config)
    endpoint = json_endpoint(config, transport, route="/embeddings")
    payload = {"model": config.model, "input": [clean(text) for text in texts]}

    def read(reply: Reply) -> Embeddings:
        body = endpoint.read(reply)
        vectors = _vectors(body.get("data"), len(texts))
        if vectors is None:
            what = f"has not one vector of numbers for each of {len(texts)}"
            raise endpoint.malformed(reply, what)
        usage = body.get("usage")
        return Embeddings(
            vectors=vectors,
            tokens_in=token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None,
            model=body["model"] if isinstance(body.get("model"), str) else config.model,
        )

    return await endpoint.ask({**payload, "encoding_format": "float"}, read)


def _vectors(data: Any, expected: int) -> tuple[tuple[float, ...], ...] | None:
    """The vectors in order of their `index`, if there is a usable one for each text."""
    if not isinstance(data, list) or len(data) != expected:
        return None
    found: dict[int, tuple[float, ...]] = {}
    for place, entry in enumerate(data):
        vector = entry.get("embedding") if isinstance(entry, dict) else None
        if not isinstance(vector, list) or not all(map(_is_number, vector)):
            return None
        index = entry.get("index", place)
        if not isinstance(index, int):
            return None
        found[index] = tuple(map(float, vector))
    if sorted(found) != list(range(expected)) or len(set(map(len, found.values()))) != 1:
        return None
    return tuple(found[index] for index in range(expected))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        return False
