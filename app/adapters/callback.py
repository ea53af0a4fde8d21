"""Endpoints of kind `callback`: they score answers, and cannot be asked items.

Each request is signed with the endpoint's `api_key`.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.adapters.base import Completion, CompletionRequest, EndpointConfig, ProbeReport
from app.adapters.endpoint import JsonEndpoint, json_endpoint
from app.adapters.signing import signature
from app.adapters.transport import Transport, json_bytes
from app.errors import EndpointRejectedError, InvalidInputError
from app.items import JsonValue

KIND = "callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackEndpoint:
    """One URL that takes signed JSON and replies with JSON."""

    endpoint: JsonEndpoint
    key: str = field(repr=False)

    async def send(self, payload: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """POST `payload`, signed, and return the JSON object of the reply.

        Raises:
            ExamineeError: A classified error, as for completions.
        """
        key, message_id = self.key.encode(), f"msg_{secrets.token_hex(12)}"
        signed = signature(key, message_id, int(time.time()), json_bytes(payload))
        endpoint = replace(self.endpoint, credentials={**self.endpoint.credentials, **signed})
        return await endpoint.ask(payload, endpoint.read)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Not possible: raises an `EndpointRejectedError`."""
        raise EndpointRejectedError(
            "An endpoint of kind 'callback' scores answers; it cannot answer questions (it got "
            f"one of {len(request.messages)} messages)."
        )

    async def probe(self) -> ProbeReport:
        """Report that it can score, without a call; its first reply shows whether it is up."""
        return ProbeReport(
            capabilities={"chat": False},
            latency_ms=None,
            detail="A callback scores answers; the first answer calls it.",
        )


def callback(config: EndpointConfig, transport: Transport) -> CallbackEndpoint:
    """Build an external scorer; `base_url` is the whole URL, `api_key` the signing key.

    Raises:
        InvalidInputError: No key, or a URL or header that cannot be used.
    """
    if config.options:
        detail = f"An endpoint of kind {config.kind!r} takes no options, got {[*config.options]}."
        raise InvalidInputError.at("/options", detail)
    if not config.api_key:
        what = "an endpoint of kind 'callback' needs the key that signs its requests"
        raise InvalidInputError.of_field("api_key", what)
    # The key signs and is never sent.
    unsigned = replace(config, api_key=None)
    return CallbackEndpoint(
        endpoint=json_endpoint(unsigned, transport, route=""), key=config.api_key
    )
