"""Cache of answers, so that the same call is not paid for twice.

Within a project, the cache key of a call is independent of the caller. It contains the address, the
credentials, the exact body, and the number of the repeat. For a withheld bank it also contains the
bank: otherwise a user who guesses a question could find out whether it was asked before.
"""

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from app.acting import owner
from app.adapters.base import Completion, CompletionRequest
from app.adapters.likelihood import Likelihood, LikelihoodRequest, ShowsRequests
from app.errors import ConflictError
from app.items import FinishReason
from app.services.endpoints.calls import Call, RateLimited
from app.services.outages import retry_outages
from app.storage.database import Database

#: Largest number of characters of a cached answer.
MAX_CHARS = 200_000
#: Cached: complete answers, and those cut off at the token limit. Others are asked for again.
_KEPT = frozenset({FinishReason.STOP, FinishReason.LENGTH})
_NOT_KEPT = frozenset({"cached", "origin"})
_VERSION = 2  # of the cache key: older entries may belong to another address than they state

T = TypeVar("T", Completion, Likelihood)


@dataclass(frozen=True, eq=False)
class Cached:
    """Calls an endpoint only for requests whose answers are not cached.

    Attributes:
        realm: Id of the withheld bank to which all calls belong; empty for open banks.
    """

    inner: RateLimited
    database: Database
    realm: str
    session_id: str

    @property
    def next(self) -> Call:
        """The endpoint and adapter that a call would use now."""
        return self.inner.next

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the cached answer, or ask the endpoint."""
        return await self.kept(request, request.repeat) or await self.asked(request, request.repeat)

    async def kept(self, request: CompletionRequest, number: int) -> Completion | None:
        """The cached answer; `number` counts the repeats of the same request."""
        key = self._key(request, number)
        if key is None or (kept := await self._find(key)) is None:
            return None
        return Completion(
            **{**kept, "finish": FinishReason(kept["finish"])}, cached=True, origin=self._origin
        )

    async def asked(self, request: CompletionRequest, number: int) -> Completion:
        """Ask the endpoint, and cache the answer."""
        made = await self.inner.complete(request)
        if made.finish in _KEPT and len(made.raw) <= MAX_CHARS:
            await self._keep(request, number, made)
        return made

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Return the cached likelihood, or ask the endpoint."""
        key = self._key(request, 0)
        if key is not None and (kept := await self._find(key)) is not None:
            return Likelihood(**kept, cached=True, origin=self._origin)
        made = await self.inner.likelihood(request)
        await self._keep(request, 0, made)
        return made

    @property
    def _origin(self) -> dict[str, Any]:
        return {"endpoint_revision": self.next.ready.endpoint.revision}

    def _key(self, request: CompletionRequest | LikelihoodRequest, repeat: int) -> str | None:
        """Cache key of a call; None if the adapter does not show its requests: it always asks."""
        ready, examinee = self.next
        if not isinstance(examinee, ShowsRequests):
            return None
        exact, config = examinee.exact(request), ready.config
        who = [
            *(config.kind, exact.url, config.api_key),
            *(sorted(config.headers.items()), dict(config.options)),
        ]
        canonical = json.dumps(
            [_VERSION, owner(), self.realm, who, exact.body, repeat],
            sort_keys=True,
            ensure_ascii=False,
        )
        return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()

    async def _find(self, key: str) -> dict[str, Any] | None:
        async def find() -> dict[str, Any] | None:
            async with self.database.unit_of_work() as uow:
                return await uow.answers.find(key)

        return await retry_outages(find)

    async def _keep(
        self, request: CompletionRequest | LikelihoodRequest, number: int, made: T
    ) -> None:
        """Cache an answer, unless the endpoint was changed before the answer came."""
        key = self._key(request, number)
        if key is None or made.origin["endpoint_revision"] != self._origin["endpoint_revision"]:
            return
        value = {name: held for name, held in asdict(made).items() if name not in _NOT_KEPT}

        async def keep() -> None:
            async with self.database.unit_of_work() as uow:
                await uow.answers.keep(key, value, session_id=self.session_id)

        with contextlib.suppress(ConflictError):  # the session was deleted meanwhile
            await retry_outages(keep)
