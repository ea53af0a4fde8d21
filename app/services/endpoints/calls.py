"""Calls endpoints: within rate limits, again after failures, after a spent budget; cached."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np

from app.acting import owner
from app.adapters import registry
from app.adapters.base import Completion, CompletionRequest, EndpointConfig, Examinee
from app.adapters.likelihood import Likelihood, LikelihoodRequest, ShowsRequests, TellsLikelihoods
from app.adapters.transport import Transport
from app.calling import GenerationParams, RetryPolicy
from app.errors import (
    BudgetSpentError,
    ColdStartError,
    ConflictError,
    ExamineeError,
    NoLikelihoodsError,
)
from app.items import FinishReason, Message, sha256_of
from app.observability import CALLS, TOKENS, USD, note, span
from app.records.figures import NOT_TOLD
from app.services.endpoints.budgets import UNPAID, charged_tokens, most_tokens, taken
from app.services.endpoints.service import EndpointService, ReadyEndpoint
from app.services.waiting import OnWait, Waiting, retry_outages
from app.storage.database import Database

T = TypeVar("T")
Made = TypeVar("Made", Completion, Likelihood)

_USAGE = "gen_ai.usage"
_ONE_TOKEN = GenerationParams(max_tokens=1)


class Call(NamedTuple):
    """Endpoint and adapter of one call; later changes of the endpoint do not affect the call."""

    ready: ReadyEndpoint
    examinee: Examinee


class RateLimited:
    """An examinee that keeps the endpoint's rate limits, which all workers share.

    A changed key, header, timeout, price or limit holds for the next call, since a replaced key has
    often been revoked. The model and its parameters stay as when the endpoint was opened.
    """

    def __init__(
        self, ready: ReadyEndpoint, endpoints: EndpointService, transport: Transport
    ) -> None:
        self._endpoints = endpoints
        self._transport = transport
        #: Endpoint and adapter that a call would use now.
        self.next = Call(ready, registry.build(ready.config, transport))

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once, when the limits allow it."""

        def usage(made: Completion) -> tuple[int | None, int | None]:
            is_empty = not (made.raw or made.reasoning)
            return made.tokens_in, made.tokens_out if is_empty else made.tokens_out or None

        made, took = await self.in_turn(
            request, lambda call: call.examinee.complete(request), usage
        )
        return replace(made, **took)

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Ask for the likelihood of a text after another one, when the limits allow it.

        Raises:
            NoLikelihoodsError: Endpoints of this kind return no likelihoods.
        """
        size = CompletionRequest(
            messages=(Message("user", request.context + request.continuation),), params=_ONE_TOKEN
        )

        async def ask(call: Call) -> Likelihood:
            if not isinstance(call.examinee, TellsLikelihoods):
                kind = call.ready.config.kind
                raise NoLikelihoodsError(f"An endpoint of kind {kind!r} gives no likelihoods.")
            return await call.examinee.likelihood(request)

        made, took = await self.in_turn(size, ask, lambda made: (made.tokens_in, made.tokens_out))
        return replace(made, **took)

    async def in_turn(
        self,
        request: CompletionRequest,
        ask: Callable[[Call], Awaitable[T]],
        tokens_of: Callable[[T], tuple[int | None, int | None]],
    ) -> tuple[T, dict[str, Any]]:
        """Make another call to the same endpoint, when its limits allow it.

        `request` has the size of the call that `ask` makes; `tokens_of` gives prompt and answer
        tokens of a result, as the endpoint reports them.

        Returns:
            The result of the call, the counted `tokens_in` and `tokens_out`, their cost `usd` by
            the price of the called endpoint, and the `origin`: this endpoint's revision, and
            whether it reported its tokens.

        Raises:
            BudgetSpentError: The rest of a daily budget does not suffice.
            EndpointMovedError: The endpoint has another address by now.
        """
        budgets = self._endpoints.budgets
        budgets.require_hope(self.next.ready.endpoint)
        await retry_outages(lambda: self._endpoints.wait_for_turn(self.next.ready, request))
        await retry_outages(self._renew)
        async with self.next.ready.slots:
            call = self.next
            endpoint, config = call.ready.endpoint, call.ready.config
            reserved = most_tokens(request, endpoint.settings)
            most = taken(endpoint.settings, *reserved)
            async with budgets.held(endpoint, most, timeout_s=config.timeout_s) as held:
                with _traced(config):
                    try:
                        made = await ask(call)
                    except ExamineeError as error:
                        CALLS.labels(error.code).inc()
                        raise
                    told = tokens_of(made)
                    into, out = charged_tokens(config.kind, told, reserved)
                    is_told = (into, out) == told
                    if is_told:
                        note({f"{_USAGE}.input_tokens": into, f"{_USAGE}.output_tokens": out})
                held.taken = taken(endpoint.settings, into, out)
        CALLS.labels("answered").inc()
        origin: dict[str, Any] = {"endpoint_revision": endpoint.revision}
        if is_told:
            TOKENS.labels("in").inc(into or 0)
            TOKENS.labels("out").inc(out or 0)
            USD.inc(held.taken.usd or 0.0)
        else:
            origin["usage"] = NOT_TOLD
        usd = call.ready.price.usd(into, out)
        return made, {"tokens_in": into, "tokens_out": out, "usd": usd, "origin": origin}

    async def _renew(self) -> None:
        present = await self._endpoints.renewed(self.next.ready)
        if present is not self.next.ready:
            self.next = Call(present, registry.build(present.config, self._transport))


def _traced(config: EndpointConfig) -> AbstractContextManager[None]:
    """Trace span of a call, by OpenTelemetry's conventions for generative AI."""
    operation = "text_completion" if config.kind == "openai_completions" else "chat"
    address = urlsplit(config.base_url)
    about = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": config.kind.partition("_")[0],
        "gen_ai.request.model": config.model,
        "server.address": address.hostname,
        "server.port": address.port,
    }
    return span(f"{operation} {config.model}", about, is_call=True)


#: Seconds between two checks of a spent budget, and of one that is only reserved by running calls,
#: which is free again sooner.
BUDGET_LOOK_S, HELD_LOOK_S = 10.0, 0.25
#: A remaining time below this is a rounding error of no remaining time, seconds.
_NO_TIME_S = 1e-6


async def persist(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    rng: np.random.Generator,
    on_wait: OnWait | None = None,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> tuple[T, int]:
    """Try until there is an answer, the error is final, or the policy is used up.

    Waits are drawn uniformly from zero to an exponentially growing bound (full jitter); an
    endpoint's Retry-After is a lower bound of the wait. Cancelling ends a wait at once.

    With `on_wait`, a spent daily budget is waited for without limit.

    Source of the jitter: Brooker (2015), "Exponential Backoff And Jitter", AWS Architecture Blog.

    Returns:
        Result of the call, and the number of calls made.

    Raises:
        ExamineeError: The last failure, with the number of calls made and whether one may cost.
        BudgetSpentError: A daily budget is spent, and there is no `on_wait`.
    """
    looks = 0
    attempts = failures = cold_starts = 0
    waited_s = cold_waited_s = 0.0
    may_cost = False
    while True:
        attempts += 1
        try:
            return await attempt(), attempts
        except BudgetSpentError as exc:  # no call was made
            attempts -= 1
            if not exc.passes:
                if on_wait is None:
                    raise
                looks += 1
                await on_wait(
                    Waiting(
                        until=now() + timedelta(seconds=exc.retry_after_s),
                        reason=exc.detail,
                        attempt=looks,
                        error_code=exc.code,
                        is_repeat=looks > 1,
                    )
                )
            await sleep(HELD_LOOK_S if exc.passes else BUDGET_LOOK_S)
            continue
        except ExamineeError as exc:
            may_cost |= not isinstance(exc, UNPAID)
            exc.attempts, exc.may_cost = attempts, may_cost
            is_cold = isinstance(exc, ColdStartError)
            if is_cold:
                cold_starts += 1
                rounds, left_s = cold_starts, policy.cold_start_wait_s - cold_waited_s
            else:
                failures += 1
                rounds, left_s = failures, policy.max_wait_s - waited_s
            is_used_up = left_s < _NO_TIME_S or (failures >= policy.max_attempts and not is_cold)
            if not exc.retryable or is_used_up:
                raise
            bound_s = min(policy.cap_s, policy.base_s * 2.0 ** min(rounds - 1, 60))
            delay_s = min(left_s, (exc.retry_after_s or 0.0) + float(rng.uniform(0.0, bound_s)))
            waiting = Waiting(
                until=now() + timedelta(seconds=delay_s),
                reason=exc.detail,
                attempt=attempts,
                error_code=exc.code,
            )
        if is_cold:
            cold_waited_s += delay_s
        else:
            waited_s += delay_s
        if on_wait is not None:
            await on_wait(waiting)
        await sleep(delay_s)
        if on_wait is not None:
            await on_wait(None)


#: Largest number of characters of a cached answer.
MAX_CHARS = 200_000
#: Cached: complete answers, and those cut off at the token limit. Others are asked for again.
_KEPT = frozenset({FinishReason.STOP, FinishReason.LENGTH})
_NOT_KEPT = frozenset({"cached", "origin", "usd"})
_VERSION = 3  # of the cache key: older entries may belong to other tags of reasoning


@dataclass(frozen=True, eq=False)
class Cached:
    """Calls an endpoint only for requests whose answers are not cached.

    Within a project, the cache key of a call is independent of the caller. It contains the address,
    the credentials, the exact body, and the number of the repeat. For a withheld bank it also
    contains the bank: otherwise a user who guesses a question could find out whether it was asked
    before.

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
        return await self.kept(request) or await self.asked(request)

    async def kept(self, request: CompletionRequest) -> Completion | None:
        """The cached answer; each `repeat` of the same request has its own."""
        if (found := await self._found(request)) is None:
            return None
        return Completion(**found | {"finish": FinishReason(found["finish"])})

    async def asked(self, request: CompletionRequest) -> Completion:
        """Ask the endpoint, and cache the answer."""
        made = await self.inner.complete(request)
        if made.finish in _KEPT and len(made.raw) <= MAX_CHARS:
            await self._keep(request, made)
        return made

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Return the cached likelihood, or ask the endpoint."""
        if (found := await self._found(request)) is not None:
            return Likelihood(**found)
        made = await self.inner.likelihood(request)
        await self._keep(request, made)
        return made

    @property
    def _origin(self) -> dict[str, Any]:
        return {"endpoint_revision": self.next.ready.endpoint.revision}

    def _key(self, request: CompletionRequest | LikelihoodRequest) -> str | None:
        """Cache key of a call; None if the adapter does not show its requests: it always asks."""
        ready, examinee = self.next
        if not isinstance(examinee, ShowsRequests):
            return None
        exact, config = examinee.exact(request), ready.config
        who = [
            *(config.kind, exact.url, config.api_key),
            *(sorted(config.headers.items()), dict(config.options)),
        ]
        key = [_VERSION, owner(), self.realm, who, exact.body]
        if isinstance(request, LikelihoodRequest):
            return sha256_of([*key, 0])
        # Which part of a reply is the answer: the body has no tags, and not always the stops.
        stops = (request.params or config.sampling).stop
        return sha256_of([*key, request.repeat, config.reasoning_tags, *stops])

    async def _found(self, request: CompletionRequest | LikelihoodRequest) -> dict[str, Any] | None:
        """A call's cached answer, with what calling again would cost."""
        if (key := self._key(request)) is None:
            return None

        async def find() -> dict[str, Any] | None:
            async with self.database.unit_of_work() as uow:
                return await uow.answers.find(key)

        if (found := await retry_outages(find)) is None:
            return None
        usd = self.next.ready.price.usd(found["tokens_in"], found["tokens_out"])
        return {**found, "cached": True, "origin": self._origin, "usd": usd}

    async def _keep(self, request: CompletionRequest | LikelihoodRequest, made: Made) -> None:
        """Cache an answer, unless the endpoint was changed before the answer came."""
        key = self._key(request)
        if key is None or made.origin["endpoint_revision"] != self._origin["endpoint_revision"]:
            return
        value = {name: held for name, held in asdict(made).items() if name not in _NOT_KEPT}
        if made.origin.get("usage") == NOT_TOLD:
            value |= {"tokens_in": None, "tokens_out": None}

        async def keep() -> None:
            async with self.database.unit_of_work() as uow:
                await uow.answers.keep(key, value, session_id=self.session_id)

        with contextlib.suppress(ConflictError):  # the session was deleted meanwhile
            await retry_outages(keep)
