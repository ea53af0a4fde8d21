"""Tools of scorers that call directly, without a session: no retries, budget or database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.adapters import registry
from app.adapters.base import CompletionRequest, EndpointConfig
from app.adapters.callback import CallbackEndpoint
from app.adapters.embeddings import embed
from app.adapters.guard import AddressGuard
from app.adapters.transport import Transport
from app.items import Message
from app.scorers.calling import Embedded, Written


@dataclass(frozen=True)
class DirectTools:
    """Endpoint names are parts of the URL: base_url is `{url}/{endpoint}/v1`."""

    url: str
    model: str = "m"
    kind: str = "openai_chat"
    key: str | None = None

    def _config(self, endpoint: str) -> EndpointConfig:
        base_url = f"{self.url}/{endpoint}"
        if self.kind != "callback":
            base_url += "/v1"
        return EndpointConfig(
            kind=self.kind, base_url=base_url, model=self.model, api_key=self.key, timeout_s=60
        )

    async def complete(
        self, endpoint: str, messages: tuple[Message, ...], schema: Mapping[str, Any]
    ) -> Written:
        async with Transport(guard=AddressGuard(allow_private=True)) as transport:
            examinee = registry.build(self._config(endpoint), transport)
            said = await examinee.complete(CompletionRequest(messages=messages, schema=schema))
        return Written(text=said.text, finish=said.finish, model=said.model or self.model)

    async def embed(self, endpoint: str, texts: Sequence[str]) -> Embedded:
        async with Transport(guard=AddressGuard(allow_private=True)) as transport:
            made = await embed(self._config(endpoint), transport, texts)
        return Embedded(made.vectors, made.model)

    async def post(self, endpoint: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        async with Transport(guard=AddressGuard(allow_private=True)) as transport:
            callback = registry.build(self._config(endpoint), transport)
            assert isinstance(callback, CallbackEndpoint)
            return await callback.send(payload)
