"""How services call endpoints: in turn, over all workers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from app.adapters.base import Completion, CompletionRequest, Examinee, ProbeReport
from app.services.endpoints.service import EndpointService, ReadyEndpoint
from app.services.patience import patiently

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RateLimited:
    """An examinee that waits its turn: the endpoint's rate limits hold over all workers."""

    examinee: Examinee
    endpoint: ReadyEndpoint
    endpoints: EndpointService

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once, when the limits allow it."""
        return await self.in_turn(request, lambda: self.examinee.complete(request))

    async def in_turn(self, request: CompletionRequest, call: Callable[[], Awaitable[T]]) -> T:
        """Make another call to the same endpoint, as large as `request`, when the limits allow."""
        await patiently(lambda: self.endpoints.wait_for_turn(self.endpoint, request))
        async with self.endpoint.slots:
            return await call()

    async def probe(self) -> ProbeReport:
        """As the examinee itself."""
        return await self.examinee.probe()
