"""Daily budgets: the most that a call may cost is reserved before the call is made.

All paid calls pass through here, whoever makes them. With a budget, each call needs one more
database statement, which also settles the calls that ended before it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta

import structlog
from cachetools import TTLCache

from app.acting import maker
from app.adapters.base import CompletionRequest
from app.adapters.callback import KIND as CALLBACK
from app.errors import (
    BlockedAddressError,
    BudgetSpentError,
    ColdStartError,
    DatabaseUnavailableError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    InvalidInputError,
    RateLimitedError,
    UnreachableError,
)
from app.records.endpoints import SIMULATED, CallLimits, Endpoint, EndpointSettings
from app.records.projects import Limits, Refusal, Taken
from app.services.waiting import Recent, retry_outages
from app.storage.database import Database
from app.storage.identifiers import new_id

logger = structlog.get_logger(__name__)

#: How long looked-up budgets are cached, seconds.
_KEPT_S = 1.0
#: How long this process does not repeat a refused reservation, seconds, and for how many.
_REFUSED_S, _MOST_REFUSED = 5.0, 1000
#: Ended calls are settled with the next call, at the latest after this time, seconds.
_SETTLED_WITHIN_S = 1.0
#: Added to a call's own time limit, for the work before and after the call.
_LAPSE = timedelta(seconds=15)
#: Tokens that mark the beginning and end of a message: more than in any chat template.
_TOKENS_PER_MESSAGE = 16
_CHARACTERS_PER_TOKEN = 4  # in English prose, with the usual tokenizers
#: Kinds of endpoints whose calls cost nothing.
_FREE = frozenset({SIMULATED, CALLBACK})
_NO_PRICE = (
    "{what} has no price, so {whose} in US dollars a day cannot be kept: set its price, 0 where it "
    "costs nothing."
)
_NO_END = (
    "{what} has no sampling.max_tokens, so what a call may take is not known and {whose} a day "
    "cannot be kept: set it."
)
#: Failures for which providers charge nothing; calls that were cut off may be charged.
UNPAID = (
    BlockedAddressError,
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    RateLimitedError,
    UnreachableError,
)


Budget = Limits | CallLimits
"""Daily budget; None for no limit."""


@dataclass(slots=True)
class Held:
    """What is reserved for a running call; the caller sets `taken`, which the call really took."""

    taken: Taken = field(default_factory=Taken)


class Budgets:
    """The budgets of projects, keys and endpoints, for the calls of this process.

    A call counts for the acting key. For a session that is the key that made it, whoever resumes.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._limits = Recent(self._found, _KEPT_S)
        self._refused: TTLCache[tuple[str, str, str | None], BudgetSpentError] = TTLCache(
            _MOST_REFUSED, _REFUSED_S
        )
        self._ended: defaultdict[str, dict[str, Taken]] = defaultdict(dict)
        self._settling: asyncio.Task[None] | None = None

    def require_hope(self, endpoint: Endpoint) -> None:
        """Refuse at once a call that was refused a moment ago, so that it waits in no queue.

        Raises:
            BudgetSpentError: A call of this endpoint was just refused.
        """
        refused = self._refused.get((endpoint.project_id, endpoint.id, maker()))
        if refused is not None:
            raise refused

    @asynccontextmanager
    async def held(
        self, endpoint: Endpoint, most: Taken, *, timeout_s: float
    ) -> AsyncIterator[Held]:
        """Reserve the most that a call may take until the block ends, then count what it took.

        Without a report of what it took, all that was reserved counts: aborted calls may be billed.

        Raises:
            BudgetSpentError: A budget does not allow the call now.
        """
        held = Held()
        if most.tokens == 0 or not await retry_outages(lambda: self._is_kept(endpoint)):
            yield held
            return
        reservation_id = new_id("rsv")
        await retry_outages(lambda: self._reserve(reservation_id, endpoint, most, timeout_s))
        try:
            yield held
        except UNPAID:
            held.taken = Taken(usd=0.0, tokens=0)
            raise
        finally:
            self._ended[endpoint.project_id][reservation_id] = held.taken
            if self._settling is None:
                self._settling = asyncio.create_task(self._settle_soon(), name="spend")

    async def require_bounds(self, settings: EndpointSettings, project_id: str) -> None:
        """Refuse an endpoint whose calls cannot be reserved, before anything is made with it.

        Raises:
            InvalidInputError: It lacks a price or a token limit that a budget requires.
        """
        for owner, limits in (await self._set(project_id)).items():
            require_bounds(settings, limits, f"the {owner}'s budget")

    async def close(self) -> None:
        """Settle the remaining ended calls, if the database is available."""
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.wait([self._settling])  # when cancelled, it puts its calls back
        try:
            await self._settle_all()
        except DatabaseUnavailableError:
            logger.warning("spend_not_settled", calls=sum(map(len, self._ended.values())))

    async def _is_kept(self, endpoint: Endpoint) -> bool:
        owners = await self._set(endpoint.project_id)
        budgets: tuple[Budget, ...] = (endpoint.settings.limits, *owners.values())
        return any(
            cap is not None
            for budget in budgets
            for cap in (budget.usd_per_day, budget.tokens_per_day)
        )

    async def _set(self, project_id: str) -> dict[str, Limits]:
        """The limits of a project and of the acting key, by whose limits they are."""
        return await self._limits.get((project_id, maker()))

    async def _found(self, whose: tuple[str, str | None]) -> dict[str, Limits]:
        async with self._database.reading() as uow:
            whole, own = await uow.projects.limits(*whose)
        return {"project": whole, "key": own}

    async def _reserve(
        self, reservation_id: str, endpoint: Endpoint, most: Taken, timeout_s: float
    ) -> None:
        project_id, key_id = endpoint.project_id, maker()
        ended = self._ended.pop(project_id, {})
        try:
            async with self._database.reading() as uow:
                refusal = await uow.spend.reserve(
                    reservation_id,
                    most,
                    project_id=project_id,
                    endpoint_id=endpoint.id,
                    key_id=key_id,
                    lapse=timedelta(seconds=timeout_s) + _LAPSE,
                    used=ended,
                )
        except BaseException:
            self._ended[project_id].update(ended)  # settling a call twice is harmless
            raise
        if refusal is not None:
            error = _error(refusal, most, endpoint)
            if not error.passes:
                self._refused[project_id, endpoint.id, key_id] = error
            raise error

    async def _settle_soon(self) -> None:
        try:
            while self._ended:  # other calls may end meanwhile
                await asyncio.sleep(_SETTLED_WITHIN_S)
                await retry_outages(self._settle_all)
        finally:
            self._settling = None

    async def _settle_all(self) -> None:
        for project_id in list(self._ended):
            ended = self._ended.pop(project_id)
            try:
                async with self._database.reading() as uow:
                    await uow.spend.settle(project_id, ended)
            except BaseException:
                self._ended[project_id].update(ended)
                raise


def most_tokens(request: CompletionRequest, settings: EndpointSettings) -> tuple[int, int | None]:
    """Most tokens of a prompt (its bytes) and of its answer (the token limit; None: no limit)."""
    if settings.kind == CALLBACK:
        return 0, 0
    prompt = _TOKENS_PER_MESSAGE + sum(
        len(message.content.encode(errors="surrogatepass")) + _TOKENS_PER_MESSAGE
        for message in request.messages
    )
    return prompt, (request.params or settings.sampling).max_tokens


def rough_tokens(request: CompletionRequest, settings: EndpointSettings) -> float:
    """Rough prompt tokens plus the longest answer: so providers count before the answer exists."""
    characters = sum(len(message.content) for message in request.messages)
    answer = (request.params or settings.sampling).max_tokens or 0
    return characters / _CHARACTERS_PER_TOKEN + answer


def charged_tokens(
    kind: str, told: tuple[int | None, int | None], most: tuple[int, int | None]
) -> tuple[int | None, int | None]:
    """Prompt and answer tokens that count; where unreported, as many as were reserved.

    Every prompt has tokens, so an endpoint that reports 0 reports nothing.
    """
    if kind in _FREE:
        return told
    return told[0] or most[0], most[1] if told[1] is None else told[1]


def taken(settings: EndpointSettings, tokens_in: int | None, tokens_out: int | None) -> Taken:
    """What a call of so many tokens takes."""
    if tokens_in is None or tokens_out is None:
        return Taken()
    usd = settings.price.usd(tokens_in, tokens_out)
    is_free = usd is None and settings.kind in _FREE
    return Taken(usd=0.0 if is_free else usd, tokens=tokens_in + tokens_out)


def require_bounds(settings: EndpointSettings, budget: Budget, whose: str) -> None:
    """Refuse an endpoint whose calls could not be reserved.

    Raises:
        InvalidInputError: It lacks a price or a token limit that the budget requires.
    """
    what = f"The endpoint {settings.name or settings.model!r}"
    if settings.kind == CALLBACK or (budget.usd_per_day is None and budget.tokens_per_day is None):
        return
    if budget.usd_per_day is not None and not _has_price(settings):
        raise InvalidInputError.at("/price", _NO_PRICE.format(what=what, whose=whose))
    if settings.sampling.max_tokens is None:
        raise InvalidInputError.at("/sampling/max_tokens", _NO_END.format(what=what, whose=whose))


def _has_price(settings: EndpointSettings) -> bool:
    return settings.price.known or settings.kind in _FREE


def _error(refusal: Refusal, most: Taken, endpoint: Endpoint) -> BudgetSpentError:
    settings = endpoint.settings
    wanted = most.usd if refusal.unit == "usd" else most.tokens
    midnight = datetime.combine(refusal.day + timedelta(days=1), time(), UTC)
    until_s = max(1.0, (midnight - datetime.now(UTC)).total_seconds())
    whose = f"the {refusal.budget_of}'s budget"
    if wanted is None:
        words = _NO_END if _has_price(settings) else _NO_PRICE
        name = f"The endpoint {settings.name or settings.model!r}"
        return BudgetSpentError(words.format(what=name, whose=whose), retry_after_s=until_s)
    budget = f"{whose[0].upper()}{whose[1:]} of {_amount(refusal.cap, refusal.unit)}"
    left = max(0.0, refusal.cap - refusal.spent)
    if wanted > refusal.cap:
        detail = (
            f"{budget} a day is less than the next call may take, "
            f"{_amount(wanted, refusal.unit)}: raise it, or lower sampling.max_tokens."
        )
    elif wanted > left:
        detail = (
            f"{budget} for {refusal.day} (UTC) is spent: {_amount(left, refusal.unit)} are "
            f"left, and the next call may take {_amount(wanted, refusal.unit)}. It continues "
            "tomorrow, or when the budget is raised."
        )
    else:
        detail = (
            f"{budget} for {refusal.day} (UTC) is reserved by calls in progress: what they do "
            "not spend is free when they end."
        )
        return BudgetSpentError(detail, retry_after_s=1.0, passes=True)
    return BudgetSpentError(detail, retry_after_s=until_s)


def _amount(amount: float, unit: str) -> str:
    if unit == "tokens":
        return f"{amount:,.0f} tokens"
    return f"{amount:,.2f} USD" if amount >= 0.1 or amount == 0 else f"{amount:.2g} USD"
