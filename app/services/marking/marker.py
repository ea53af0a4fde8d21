"""Marks answers, and makes the calls of the scorers that call out, within their budgets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import structlog

from app import scorers
from app.adapters.base import CompletionRequest
from app.adapters.callback import CallbackEndpoint
from app.adapters.embeddings import embed
from app.adapters.retry import OnWait, persist
from app.adapters.transport import Transport
from app.calling import GenerationParams
from app.errors import BusyError, EndpointRejectedError, ScorerBudgetError
from app.items import Answer, Message, Outcome
from app.scorers.base import NotScored
from app.scorers.calling import Budget, CallingScorer, Embedded, Written
from app.scorers.workbench import Kind
from app.services.banks.loaded import BankItem
from app.services.endpoints.rate_limited import RateLimited
from app.services.endpoints.service import EndpointService, ReadyEndpoint
from app.services.marking.closing import Marked, Spending, hash_of, storable_mark
from app.services.patience import once_readable

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: Pauses before marking is tried again where the server has too much to mark, seconds.
_BUSY_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0)
#: Of calls that take no tokens for an answer.
_NOTHING_WRITTEN = GenerationParams(max_tokens=None)


@dataclass(slots=True)
class _Purse:
    """What one scorer has spent in a session, of what it may.

    Attributes:
        unmetered: An endpoint did not say what a call took that is capped: the cap cannot be kept.
    """

    name: str
    budget: Budget | None
    spent: Spending = field(default_factory=Spending)
    unmetered: bool = False

    def require(self) -> None:
        """Refuse another call once the budget is spent.

        Raises:
            ScorerBudgetError: It is.
        """
        budget, spent = self.budget, self.spent
        if budget is None:
            return
        if self.unmetered:
            raise ScorerBudgetError(
                f"An endpoint of scorer {self.name!r} does not say what a call took, so its budget "
                "cannot be kept: it counts as spent."
            )
        for cap, used, unit in (
            (budget.usd, spent.usd, "US dollars"),
            (budget.tokens, spent.tokens_in + spent.tokens_out, "tokens"),
            (budget.calls, spent.calls, "calls"),
        ):
            if cap is not None and used is not None and used >= cap:
                raise ScorerBudgetError(
                    f"The budget of scorer {self.name!r}, {cap:g} {unit} a session, is spent."
                )

    def is_metered(self, tokens: Sequence[int | None], usd: float | None) -> bool:
        """Whether what this call took is known, as far as the budget asks."""
        budget = self.budget
        if budget is None:
            return True
        tokens_known = budget.tokens is None or any(count is not None for count in tokens)
        return tokens_known and (budget.usd is None or usd is not None)


class AnswerMarker:
    """Marks the answers of one session.

    Args:
        endpoints: Opens the scorers' endpoints.
        transport: The client that calls them.
        resolved: Endpoint as scorers name it -> its id, settled when the session was made.
        owner: The session, or the key that tries a scorer: owners take turns where marking takes
            computing.
        kind: Whether it is a trial, which has no part in what sessions have to mark with.
        seed: For the jitter of waits.
        stored: What earlier answers of the session have stored of their marking: it counts against
            the budgets.
    """

    def __init__(
        self,
        *,
        endpoints: EndpointService,
        transport: Transport,
        resolved: Mapping[str, str],
        owner: str,
        kind: Kind = "sessions",
        seed: int = 0,
        stored: Iterable[Mapping[str, Any] | None] = (),
    ) -> None:
        self._endpoints = endpoints
        self.transport = transport
        self._resolved = resolved
        self._owner, self._kind = owner, kind
        self.rng = np.random.default_rng(seed)
        self._opened: dict[str, tuple[ReadyEndpoint, RateLimited]] = {}
        self._purses: dict[str, _Purse] = {}
        self._earlier: dict[str, Spending] = {}
        for marking in stored:
            if marking is not None:
                earlier = self._earlier.setdefault(marking["spec_hash"], Spending())
                earlier.add(Spending(**marking["usage"]))

    async def mark(
        self, item: BankItem, answer: Answer, *, on_wait: OnWait | None = None
    ) -> Marked:
        """Mark `answer` to `item`; told of waits where a scorer's endpoint makes us wait.

        Raises:
            BusyError: Too much is being marked, see `app.scorers.mark`.
            SecretsError: The key of a scorer's endpoint cannot be decrypted, and nobody is told of
                waits.
        """
        scorer, spec_hash = scorers.build(item.scorer), hash_of(item.scorer)
        if not isinstance(scorer, CallingScorer):
            with scorers.working_for(self._owner, kind=self._kind):
                return storable_mark(await scorers.mark(scorer, item.content, answer), spec_hash)
        purse = self._purses.get(spec_hash)
        if purse is None:
            purse = _Purse(item.scorer.name, scorer.budget)
            purse.spent = self._earlier.get(spec_hash, purse.spent)
            self._purses[spec_hash] = purse
        tools = _Tools(self, purse, on_wait)
        mark = await scorers.mark(scorers.build(item.scorer, tools), item.content, answer)
        if not tools.spent.calls and mark.evidence is None:
            return storable_mark(mark, spec_hash)  # settled without a call
        marking = {
            "scorer": item.scorer.name,
            "version": scorer.version,
            "spec_hash": spec_hash,
            **(mark.evidence or {}),
            "usage": asdict(tools.spent),
        }
        return storable_mark(mark, spec_hash, marking)

    async def mark_patiently(
        self, item: BankItem, answer: Answer, *, on_wait: OnWait | None = None
    ) -> Marked:
        """As `mark`; what finds no room waits, and in the end is no mark."""
        for pause_s in _BUSY_PAUSES_S:
            try:
                return await self.mark(item, answer, on_wait=on_wait)
            except BusyError:
                logger.warning("marking_waits", owner=self._owner, retry_in_s=pause_s)
                await asyncio.sleep(pause_s)
        try:
            return await self.mark(item, answer, on_wait=on_wait)
        except BusyError as error:
            reason = f"{error.detail} Rescore the session to mark it."
            return storable_mark(
                NotScored(outcome=Outcome.ERROR, reason=reason, code="scorer_busy"),
                hash_of(item.scorer),
            )

    async def open(
        self, endpoint: str, on_wait: OnWait | None
    ) -> tuple[ReadyEndpoint, RateLimited]:
        """An endpoint as a scorer names it, opened once a session.

        Raises:
            SecretsError: Its key cannot be decrypted, and nobody is told of waits.
        """
        found = self._opened.get(endpoint)
        if found is None:
            endpoint_id = self._resolved.get(endpoint, endpoint)
            ready = await once_readable(lambda: self._endpoints.ready(endpoint_id), on_wait)
            found = (
                ready,
                RateLimited(ready, self._endpoints, self.transport),
            )
            self._opened[endpoint] = found
        return found


class _Tools:
    """The calls for one answer, counted."""

    def __init__(self, marker: AnswerMarker, purse: _Purse, on_wait: OnWait | None) -> None:
        self._marker = marker
        self._purse = purse
        self._on_wait = on_wait
        self.spent = Spending()

    async def complete(
        self, endpoint: str, messages: tuple[Message, ...], schema: Mapping[str, Any]
    ) -> Written:
        ready, rate_limited = await self._marker.open(endpoint, self._on_wait)
        request = CompletionRequest(messages=messages, params=ready.config.sampling, schema=schema)
        written = await self._call(ready, lambda: rate_limited.complete(request))
        self._settle(ready, written.tokens_in, written.tokens_out)
        return Written(
            text=written.text, finish=written.finish, model=written.model or ready.config.model
        )

    async def embed(self, endpoint: str, texts: Sequence[str]) -> Embedded:
        ready, rate_limited = await self._marker.open(endpoint, self._on_wait)
        size = CompletionRequest(
            messages=tuple(Message("user", text) for text in texts), params=_NOTHING_WRITTEN
        )
        made = await self._call(
            ready,
            lambda: rate_limited.in_turn(
                size, lambda: embed(rate_limited.config, self._marker.transport, texts)
            ),
        )
        self._settle(ready, made.tokens_in, None)
        return Embedded(made.vectors, made.model)

    async def post(self, endpoint: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        ready, rate_limited = await self._marker.open(endpoint, self._on_wait)

        async def send() -> Mapping[str, Any]:
            callback = rate_limited.examinee
            if not isinstance(callback, CallbackEndpoint):
                raise EndpointRejectedError(f"Endpoint {endpoint!r} is not of kind 'callback'.")
            return await callback.send(payload)

        size = CompletionRequest(messages=(), params=_NOTHING_WRITTEN)
        return await self._call(ready, lambda: rate_limited.in_turn(size, send))

    async def _call(self, ready: ReadyEndpoint, attempt: Callable[[], Awaitable[T]]) -> T:
        async def counted() -> T:
            self._purse.require()
            for count in (self.spent, self._purse.spent):
                count.add(Spending(calls=1))
            return await attempt()

        result, _ = await persist(counted, ready.retry, self._marker.rng, self._on_wait)
        return result

    def _settle(self, ready: ReadyEndpoint, tokens_in: int | None, tokens_out: int | None) -> None:
        usd = ready.price.usd(tokens_in, tokens_out)
        took = Spending(tokens_in=tokens_in or 0, tokens_out=tokens_out or 0, usd=usd)
        for count in (self.spent, self._purse.spent):
            count.add(took)
        if not self._purse.is_metered((tokens_in, tokens_out), usd):
            self._purse.unmetered = True
