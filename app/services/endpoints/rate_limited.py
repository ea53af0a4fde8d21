"""How services call endpoints: in turn, over all workers, and as they can be reached by then."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app import adapters
from app.adapters import EndpointConfig, Transport
from app.adapters.base import Completion, CompletionRequest, Examinee, ProbeReport
from app.adapters.likelihood import Likelihood, LikelihoodRequest, TellsLikelihoods
from app.calling import GenerationParams
from app.errors import NoLikelihoodsError
from app.items import Message
from app.services.endpoints.service import EndpointService, ReadyEndpoint
from app.services.patience import patiently

T = TypeVar("T")

#: Seconds between two looks whether an endpoint was changed.
LOOK_EVERY_S = 1.0
_ONE_TOKEN = GenerationParams(max_tokens=1)


class RateLimited:
    """An examinee that waits its turn: the endpoint's rate limits hold over all workers.

    A changed key, header, address, timeout or limit holds for the next call: who replaces a key has
    often withdrawn the old one. What makes the answers stays as when the endpoint was opened.

    Args:
        ready: The endpoint, opened.
        endpoints: Tells what has changed.
        transport: Makes the calls.
    """

    def __init__(
        self, ready: ReadyEndpoint, endpoints: EndpointService, transport: Transport
    ) -> None:
        self._ready = ready
        self._endpoints = endpoints
        self._transport = transport
        self._examinee = adapters.build(ready.config, transport)
        self._looked = time.monotonic()

    @property
    def config(self) -> EndpointConfig:
        """How the endpoint is called; within `in_turn`, by this call."""
        return self._ready.config

    @property
    def examinee(self) -> Examinee:
        """Makes the calls; within `in_turn`, this one."""
        return self._examinee

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once, when the limits allow it."""
        return await self.in_turn(request, lambda: self.examinee.complete(request))

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """How likely a text is after another, when the limits allow to ask.

        Raises:
            NoLikelihoodsError: Endpoints of this kind do not tell.
        """
        size = CompletionRequest(
            messages=(Message("user", request.context + request.continuation),), params=_ONE_TOKEN
        )

        async def call() -> Likelihood:
            examinee = self.examinee
            if not isinstance(examinee, TellsLikelihoods):
                kind = self.config.kind
                raise NoLikelihoodsError(f"An endpoint of kind {kind!r} does not tell likelihoods.")
            return await examinee.likelihood(request)

        return await self.in_turn(size, call)

    async def in_turn(self, request: CompletionRequest, call: Callable[[], Awaitable[T]]) -> T:
        """Make another call to the same endpoint, as large as `request`, when the limits allow."""
        await patiently(lambda: self._endpoints.wait_for_turn(self._ready, request))
        await patiently(self._renew)
        async with self._ready.slots:
            return await call()

    async def probe(self) -> ProbeReport:
        """As the examinee itself."""
        return await self.examinee.probe()

    async def _renew(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        present = await self._endpoints.renewed(self._ready)
        if present is not self._ready:
            self._examinee = adapters.build(present.config, self._transport)
            self._ready = present
        self._looked = now
