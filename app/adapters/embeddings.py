"""Embeddings of texts, from an endpoint with OpenAI's API: `POST {base_url}/embeddings`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

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
        vectors: One vector per text, all of the same length.
        tokens_in: Tokens as reported; `None` if the endpoint does not report them.
        model: The model name that the endpoint returned, or else the requested name.
    """

    vectors: tuple[tuple[float, ...], ...]
    tokens_in: int | None
    model: str


async def embed(config: EndpointConfig, transport: Transport, texts: Sequence[str]) -> Embeddings:
    """Request the vectors of `texts`, in one attempt.

    Raises:
        InvalidInputError: The endpoint's kind does not have the route.
        ExamineeError: A classified error, as for completions.
    """
    if config.kind not in KINDS:
        raise InvalidInputError(
            f"Embeddings need an endpoint of kind {' or '.join(KINDS)}, got {config.kind!r}."
        )
    require_model(config)
    endpoint = json_endpoint(config, transport, route="/embeddings")
    payload: dict[str, JsonValue] = {
        "model": config.model,
        "input": [clean(text) for text in texts],
        "encoding_format": "float",
    }

    def read(reply: Reply) -> Embeddings:
        body = endpoint.read(reply)
        vectors = _vectors(body.get("data"), len(texts))
        if vectors is None:
            what = f"does not hold one vector of numbers for each of the {len(texts)} texts"
            raise endpoint.malformed(reply, what)
        usage = body.get("usage")
        return Embeddings(
            vectors=vectors,
            tokens_in=token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None,
            model=model if isinstance(model := body.get("model"), str) else config.model,
        )

    return await endpoint.ask(payload, read)


class _Vector(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    embedding: list[float]
    index: int | None = None


_VECTORS: Final = TypeAdapter(list[_Vector])


def _vectors(data: JsonValue, expected: int) -> tuple[tuple[float, ...], ...] | None:
    """The vectors in the order of `index`; None unless each text has a usable vector."""
    try:
        listed = _VECTORS.validate_python(data)
    except ValidationError:
        return None
    found = {
        place if vector.index is None else vector.index: tuple(vector.embedding)
        for place, vector in enumerate(listed)
    }
    lengths = set(map(len, found.values()))
    if len(listed) != expected or sorted(found) != list(range(expected)) or len(lengths) != 1:
        return None
    return tuple(found[index] for index in range(expected))
