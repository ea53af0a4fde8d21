"""Calls of scorers to endpoints, within the scorers' budgets."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np

from app.adapters.base import Completion, CompletionRequest
from app.adapters.callback import CallbackEndpoint
from app.adapters.embeddings import embed
from app.adapters.transport import Transport
from app.calling import GenerationParams
from app.errors import BudgetSpentError, EndpointRejectedError, ScorerBudgetError
from app.items import Message
from app.printable import plain
from app.records.figures import NOT_TOLD, CallsFigures, Marking
from app.records.sessions import Origin
from app.scorers.calling import Budget, Embedded, Written
from app.services.endpoints.calls import Cached, Call, RateLimited, persist
from app.services.endpoints.service import EndpointService
from app.services.waiting import OnWait, retry_outages

T = TypeVar("T")

#: Exceeds the number of judgements that one judge gives of one answer.
_JUDGEMENTS = 1000
#: Parameters of calls whose answers take no tokens.
_NOTHING_WRITTEN = GenerationParams(max_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Calls, and their usage; a sum is `None` where a part of it is unknown."""

    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    usd: float | None = 0.0

    def figures(self) -> CallsFigures:
        """The stored form."""
        return cast(CallsFigures, asdict(self))

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(
            calls=self.calls + other.calls,
            tokens_in=total((self.tokens_in, other.tokens_in)),
            tokens_out=total((self.tokens_out, other.tokens_out)),
            usd=total((self.usd, other.usd)),
        )


def spent_by(usages: Iterable[CallsFigures]) -> CallsFigures:
    """The sum of the usages of some calls."""
    return sum((Spending(**usage) for usage in usages), Spending()).figures()


def total(values: Iterable[Any]) -> Any:
    """Sum of the values; None if one of them is None, as the sum would be too low."""
    known = list(values)
    return None if None in known else sum(known)


@dataclass(slots=True)
class _Purse:
    """Budget of one scorer in a session, and what it has spent.

    Attributes:
        unmetered: Whether an endpoint did not report usage that is capped, so no cap can be kept.
    """

    name: str
    budget: Budget | None
    spent: Spending
    unmetered: bool = False

    def require(self) -> None:
        """Refuse another call once the budget is spent."""
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
            (budget.tokens, total((spent.tokens_in, spent.tokens_out)), "tokens"),
            (budget.calls, spent.calls, "calls"),
        ):
            if cap is not None and used is not None and used >= cap:
                raise ScorerBudgetError(
                    f"The budget of scorer {self.name!r}, {plain(cap)} {unit} a session, is spent."
                )


class ScorerCalls:
    """Calls of the scorers of one session, and their usage.

    Args:
        resolved: Endpoint as scorers name it -> its origin when the session was created.
        stored: Scoring records of the session's earlier answers, whose usage counts against the
            budgets.
        keeping: Makes the cache that keeps an endpoint's answers and replaces calls by them.
    """

    def __init__(
        self,
        *,
        endpoints: EndpointService,
        transport: Transport,
        resolved: Mapping[str, Origin],
        seed: int = 0,
        stored: Iterable[Marking | None] = (),
        keeping: Callable[[RateLimited], Cached] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self.transport = transport
        self._resolved = resolved
        self.rng = np.random.default_rng(seed)
        self._keeping = keeping
        self._opened: dict[str, tuple[RateLimited, Cached | None]] = {}
        self._purses: dict[str, _Purse] = {}
        self._earlier: dict[str, Spending] = {}
        for marking in stored:
            if marking is not None:
                by, took = marking["spec_hash"], marking.get("at_most", marking["usage"])
                self._earlier[by] = self._earlier.get(by, Spending()) + Spending(**took)

    def for_answer(
        self,
        name: str,
        spec_hash: str,
        budget: Budget | None,
        on_wait: OnWait | None,
        repeat: int = 0,
    ) -> "AnswerCalls":
        """The calls for one answer.

        A scorer's spending is counted by `spec_hash`. Each `repeat` of an item is judged
        separately.
        """
        purse = self._purses.get(spec_hash)
        if purse is None:
            purse = _Purse(name, budget, self._earlier.get(spec_hash, Spending()))
            self._purses[spec_hash] = purse
        return AnswerCalls(self, purse, on_wait, repeat)

    async def open(
        self, endpoint: str, on_wait: OnWait | None
    ) -> tuple[RateLimited, Cached | None]:
        """Open an endpoint, as a scorer names it, and the cache if its answers are kept.

        Each is opened once per session.

        Raises:
            SecretsError: Its key cannot be decrypted, and `on_wait` is None.
        """
        found = self._opened.get(endpoint)
        if found is None:
            origin = self._resolved.get(endpoint)
            endpoint_id = endpoint if origin is None else origin["id"]
            ready = await retry_outages(lambda: self._endpoints.ready(endpoint_id, origin), on_wait)
            limited = RateLimited(ready, self._endpoints, self.transport)
            found = limited, self._keeping and self._keeping(limited)
            self._opened[endpoint] = found
        return found


@dataclass(eq=False)
class AnswerCalls:
    """The calls for one answer, and their usage.

    Attributes:
        spent: Usage of the calls that were made.
        at_most: The same, with what was reserved where an endpoint reported no usage.
        saved: Usage that cached answers saved.
    """

    calls: ScorerCalls
    purse: _Purse
    on_wait: OnWait | None
    repeat: int
    _asked: Counter[tuple[str, tuple[Message, ...]]] = field(init=False, default_factory=Counter)
    spent: Spending = field(init=False, default=Spending())
    at_most: Spending = field(init=False, default=Spending())
    saved: Spending = field(init=False, default=Spending())

    async def complete(
        self, endpoint: str, messages: tuple[Message, ...], schema: Mapping[str, Any]
    ) -> Written:
        """Ask an endpoint for an answer in the form of `schema`."""
        limited, cache = await self.calls.open(endpoint, self.on_wait)
        config = limited.next.ready.config
        request = CompletionRequest(messages=messages, params=config.sampling, schema=schema)
        written = await self._written(limited, cache, request)
        took = Spending(tokens_in=written.tokens_in, tokens_out=written.tokens_out, usd=written.usd)
        if written.cached:
            self.saved += replace(took, calls=1)
        else:
            self._settle(took, written.origin)
        model = written.model or config.model
        return Written(text=written.text, finish=written.finish, model=model)

    async def _written(
        self, limited: RateLimited, cache: Cached | None, request: CompletionRequest
    ) -> Completion:
        if cache is None:
            return await self._call(limited, lambda: limited.complete(request))
        # Separate judgements with equal requests are cached under separate numbers.
        asked = (limited.next.ready.endpoint.id, request.messages)
        numbered = replace(request, repeat=self.repeat * _JUDGEMENTS + self._asked[asked])
        self._asked[asked] += 1
        if (kept := await cache.kept(numbered)) is not None:
            return kept
        return await self._call(limited, lambda: cache.asked(numbered))

    async def embed(self, endpoint: str, texts: Sequence[str]) -> Embedded:
        """Embedding vectors of texts."""
        limited, _ = await self.calls.open(endpoint, self.on_wait)
        size = CompletionRequest(
            messages=tuple(Message("user", text) for text in texts), params=_NOTHING_WRITTEN
        )
        made, took = await self._call(
            limited,
            lambda: limited.in_turn(
                size,
                lambda call: embed(call.ready.config, self.calls.transport, texts),
                lambda found: (found.tokens_in, 0),
            ),
        )
        spent = Spending(tokens_in=took["tokens_in"], tokens_out=0, usd=took["usd"])
        self._settle(spent, took["origin"])
        return Embedded(made.vectors, made.model)

    async def post(self, endpoint: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The reply of a callback endpoint."""
        limited, _ = await self.calls.open(endpoint, self.on_wait)

        async def send(call: Call) -> Mapping[str, Any]:
            callback = call.examinee
            if not isinstance(callback, CallbackEndpoint):
                raise EndpointRejectedError(f"Endpoint {endpoint!r} is not of kind 'callback'.")
            return await callback.send(payload)

        size = CompletionRequest(messages=(), params=_NOTHING_WRITTEN)
        made, _ = await self._call(limited, lambda: limited.in_turn(size, send, lambda _: (0, 0)))
        return made

    async def _call(self, limited: RateLimited, attempt: Callable[[], Awaitable[T]]) -> T:
        async def counted() -> T:
            self.purse.require()
            self._count(Spending(calls=1))
            try:
                return await attempt()
            except BudgetSpentError:  # no call was made
                self._count(Spending(calls=-1))
                raise

        result, _ = await persist(counted, limited.next.ready.retry, self.calls.rng, self.on_wait)
        return result

    def _settle(self, took: Spending, origin: Mapping[str, Any]) -> None:
        """Count the tokens of a call, which are the reserved ones by its `origin` or are told."""
        unknown = Spending(tokens_in=None, tokens_out=None, usd=None)
        self._count(took, told=unknown if origin.get("usage") == NOT_TOLD else took)
        if (budget := self.purse.budget) is not None:
            tokens = took.tokens_in, took.tokens_out
            self.purse.unmetered |= budget.tokens is not None and None in tokens
            self.purse.unmetered |= budget.usd is not None and took.usd is None

    def _count(self, most: Spending, *, told: Spending | None = None) -> None:
        self.spent += told or most
        self.at_most += most
        self.purse.spent += most
