"""How services call endpoints: in turn, and with patience for a database that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from app.adapters.base import Completion, CompletionRequest, Examinee, ProbeReport
from app.errors import DatabaseUnavailableError
from app.services.endpoints import EndpointService, ReadyEndpoint

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: Pause between attempts to write while Postgres is away, seconds: first and longest.
_DATABASE_RETRY_S = (0.2, 2.0)


@dataclass(frozen=True, slots=True)
class Paced:
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


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """Do it again while Postgres is away: an answer in hand is worth more than a fast error."""
    pause, longest = _DATABASE_RETRY_S
    while True:
        try:
            return await attempt()
        except DatabaseUnavailableError:
            logger.warning("database_away", retry_in_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
