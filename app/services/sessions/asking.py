"""Asks an endpoint one item, once or several times, and has the answers scored; previews one."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import expit

from app import scorers
from app.adapters.base import Completion, CompletionRequest, ExactRequest, SimulationHints
from app.adapters.likelihood import (
    Likelihood,
    LikelihoodRequest,
    OptionText,
    ShowsRequests,
    option_texts,
)
from app.adapters.prompting import GENERATE, LOGLIKELIHOOD, PromptStyle, build_messages
from app.adapters.transport import Transport
from app.errors import (
    ExamineeError,
    FieldProblem,
    InvalidInputError,
    MissingScopeError,
    faults_within,
)
from app.items import Answer, FinishReason, ItemContent, Outcome, choice_letter
from app.observability import ENDPOINT_LATENCY, note_evaluation, span
from app.records.endpoints import SIMULATED, EndpointSettings
from app.records.fields import convert, shallow
from app.records.figures import NOT_TOLD, Cost, Marking, Method
from app.records.sessions import Closing, PromptChanges
from app.services.banks.loaded import BankItem
from app.services.endpoints.calls import Cached, RateLimited, persist
from app.services.endpoints.scorer_calls import spent_by, total
from app.services.endpoints.service import EndpointService, ReadyEndpoint
from app.services.endpoints.specs import EndpointSpec
from app.services.scoring import AnswerScorer
from app.services.sessions.drafts import require_answers
from app.services.sessions.figures import saved
from app.services.visibility import View, is_withheld
from app.services.waiting import OnWait
from app.storage.database import Database

#: Error code of an item that cannot be asked by likelihood, whatever the endpoint does.
UNUSABLE_OPTIONS = "options_unusable"


def chosen_style(
    style: PromptStyle,
    prompt: PromptChanges,
    settings: EndpointSettings,
    endpoints: EndpointService,
) -> PromptStyle:
    """The prompt style in which an endpoint is asked.

    `prompt` has changes to the bank's `style`. If the style needs likelihoods and the endpoint
    does not give them, the letter of the right option is asked for.

    Raises:
        InvalidInputError: There are fewer examples than `shots`, or `prompt` asks for likelihoods
            and the endpoint does not give them.
    """
    if "shots" in prompt:
        style = style.with_shots(prompt["shots"])
    style = replace(
        style, mode=prompt.get("mode", style.mode), system=prompt.get("system", style.system)
    )
    if style.mode != LOGLIKELIHOOD or endpoints.tells_likelihoods(settings):
        return style
    if prompt.get("mode") != LOGLIKELIHOOD:
        return replace(style, mode=GENERATE)
    detail = (
        f"an endpoint of kind {settings.kind!r} gives no likelihoods; kinds openai_completions "
        "and hf_tgi may"
    )
    raise InvalidInputError(f"mode: {detail}.", problems=[FieldProblem("/prompt/mode", detail)])


async def hints_of(
    item: BankItem, probability_right: Callable[[float], float], seed: Sequence[int]
) -> SimulationHints:
    """Simulation hints that a scripted examinee needs to answer an item."""
    right, wrong = await scorers.examples(item.scorer, item.content, seed)
    return SimulationHints(
        right=right, wrong=wrong, probability_right=probability_right, key=item.key
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Asks one endpoint the items of one session, each `repeats` times; the mean score counts."""

    examinee: RateLimited | Cached
    endpoint: ReadyEndpoint
    marker: AnswerScorer
    style: PromptStyle
    repeats: int = 1

    async def ask(
        self,
        item: BankItem,
        *,
        rng: np.random.Generator,
        hints: SimulationHints | None = None,
        on_wait: OnWait | None = None,
    ) -> Closing:
        """Ask an item, with retries, and score the answer; a failure gives no score.

        `rng` is for the jitter of waits, and does not affect the measurement; `on_wait` is called
        when a call waits.
        """
        if self.style.mode == LOGLIKELIHOOD:
            try:
                options = option_texts(item.content, self.style)
            except InvalidInputError as error:
                return Closing(
                    outcome=Outcome.ERROR,
                    error_code=UNUSABLE_OPTIONS,
                    reason=error.detail,
                    attempts=0,
                )
            return await self._closed(item, self._compare(options, rng, on_wait), on_wait)
        request = self.request(item, hints)
        if self.repeats == 1:
            return await self._closed(item, self._complete(request, rng, on_wait), on_wait)
        calls = [
            self._closed(item, self._complete(_again(request, nth), rng, on_wait), on_wait, nth)
            for nth in range(self.repeats)
        ]
        return combined(await asyncio.gather(*calls))

    def request(self, item: BankItem, hints: SimulationHints | None = None) -> CompletionRequest:
        """The request that asks an item of an endpoint that writes answers."""
        params = self.endpoint.config.sampling
        stop = tuple(dict.fromkeys((*params.stop, *self.style.stop)))
        return CompletionRequest(
            messages=build_messages(item.content, self.style),
            layout=self.style.layout,
            params=replace(params, stop=stop),
            hints=hints,
        )

    def exact(self, item: BankItem) -> list[ExactRequest]:
        """The calls that `ask` makes if none fails; nothing is sent.

        Raises:
            InvalidInputError: The item cannot be asked in this style, or endpoints of this kind
                are not called over HTTP.
        """
        examinee = self.examinee.next.examinee
        if not isinstance(examinee, ShowsRequests):
            raise InvalidInputError(
                f"An endpoint of kind {self.endpoint.config.kind!r} shows no requests."
            )
        if self.style.mode != LOGLIKELIHOOD:
            return [examinee.exact(self.request(item))]
        return [
            examinee.exact(_of_option(option)) for option in option_texts(item.content, self.style)
        ]

    async def _closed(
        self,
        item: BankItem,
        asking: Coroutine[Any, Any, "_Obtained"],
        on_wait: OnWait | None,
        repeat: int = 0,
    ) -> Closing:
        """Get an answer and score it; a failure gives a closing without a score."""
        try:
            obtained = await asking
            with span("score", {"sextant.scorer": item.scorer.name}):
                closing = await self.marker.close(
                    item, obtained.answer, on_wait=on_wait, repeat=repeat
                )
                note_evaluation(item.scorer.name, closing.score, closing.outcome)
        except ExamineeError as error:
            # Of several likelihoods, others may have been answered and paid.
            is_free = not error.may_cost and self.style.mode != LOGLIKELIHOOD
            return Closing(
                outcome=Outcome.ERROR,
                error_code=error.code,
                reason=error.detail,
                attempts=error.attempts,
                **(_cost([]) if is_free else _UNTOLD),
            )
        return replace(
            closing,
            latency_ms=obtained.latency_s * 1000,
            attempts=obtained.attempts,
            method=obtained.method,
            **obtained.paid,
        )

    async def _complete(
        self, request: CompletionRequest, rng: np.random.Generator, on_wait: OnWait | None
    ) -> "_Obtained":
        completion, attempts = await persist(
            lambda: self.examinee.complete(request), self.endpoint.retry, rng, on_wait
        )
        if not completion.cached:
            ENDPOINT_LATENCY.observe(completion.latency_s)
        answer = convert(Answer, completion)
        return self._obtained(answer, completion.latency_s, attempts, [completion])

    async def _compare(
        self, options: Sequence[OptionText], rng: np.random.Generator, on_wait: OnWait | None
    ) -> "_Obtained":
        """Ask for the likelihood of each option; the most likely one is the answer."""
        found, attempts = await self._likelihoods(options, rng, on_wait)
        latency_s = max(each.latency_s for each in found)
        ENDPOINT_LATENCY.observe(latency_s)
        values = [
            each.logprob / option.divisor(self.style.normalise)
            for each, option in zip(found, options, strict=True)
        ]
        best = [choice_letter(at) for at, value in enumerate(values) if value == max(values)]
        # Two equally likely options are no choice: the scorer finds this text unparseable.
        answer = Answer(text=" or ".join(best), raw=" or ".join(best), finish=FinishReason.STOP)
        compared: Method = {
            "mode": LOGLIKELIHOOD,
            "normalise": self.style.normalise,
            "options": [
                {
                    "option": choice_letter(at),
                    "logprob": each.logprob,
                    "tokens": each.n_tokens,
                    "bytes": option.n_bytes,
                }
                for at, (each, option) in enumerate(zip(found, options, strict=True))
            ],
        }
        return self._obtained(answer, latency_s, attempts, found, compared)

    def _obtained(
        self,
        answer: Answer,
        latency_s: float,
        attempts: int,
        calls: Sequence[Completion | Likelihood],
        method: Method | None = None,
    ) -> "_Obtained":
        """An answer with its origin and the cost of its calls; cached answers cost nothing."""
        kept = [call for call in calls if call.cached]
        origin = {name: value for call in calls for name, value in call.origin.items()}
        told = cast(Method, {**(method or {}), **origin})
        if kept:
            told["cached"] = {"calls": len(kept), **_cost(kept)}
        return _Obtained(
            answer=answer,
            latency_s=latency_s,
            attempts=attempts - len(kept),
            method=told or None,
            paid=_cost([call for call in calls if not call.cached]),
        )

    async def _likelihoods(
        self, options: Sequence[OptionText], rng: np.random.Generator, on_wait: OnWait | None
    ) -> tuple[list[Likelihood], int]:
        """Likelihoods of all options, asked in parallel, and the number of calls; all or none."""

        async def likelihood(option: OptionText) -> tuple[Likelihood, int]:
            request = _of_option(option)
            return await persist(
                lambda: self.examinee.likelihood(request), self.endpoint.retry, rng, on_wait
            )

        calls = [asyncio.create_task(likelihood(option)) for option in options]
        try:
            found = await asyncio.gather(*calls)
        except ExamineeError as error:
            # The attempts of calls that have ended successfully count as well.
            error.attempts += sum(
                call.result()[1] for call in calls if call.done() and call.exception() is None
            )
            raise
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        return [each for each, _ in found], sum(attempts for _, attempts in found)


def _cost(calls: Sequence[Completion | Likelihood]) -> Cost:
    into = total(each.tokens_in for each in calls)
    out = total(each.tokens_out for each in calls)
    usd = total(each.usd for each in calls) if calls else 0.0
    return {"tokens_in": into, "tokens_out": out, "usd": usd}


_UNTOLD: Cost = {"tokens_in": None, "tokens_out": None, "usd": None}


def _of_option(option: OptionText) -> LikelihoodRequest:
    return LikelihoodRequest(context=option.context, continuation=option.continuation)


def _again(request: CompletionRequest, repeat: int) -> CompletionRequest:
    """The request of a repeat; its seed counts on, as the same seed would give the same answer."""
    params = request.params
    if params is not None and params.seed is not None:
        params = replace(params, seed=params.seed + repeat)
    return replace(request, params=params, repeat=repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Obtained:
    """An answer, and the cost of its calls."""

    answer: Answer
    latency_s: float
    attempts: int
    method: Method | None
    paid: Cost


def combined(closings: Sequence[Closing]) -> Closing:
    """One closing for several answers to an item; its score is the mean of the known scores.

    The answer is that of the first closing with a score, or of the first one without any score.
    `method` lists all answers, and their costs are summed.
    """
    scored = [closing for closing in closings if closing.score is not None]
    first = (scored or list(closings))[0]
    mean = None if not scored else math.fsum(c.score or 0.0 for c in scored) / len(scored)
    latencies = [c.latency_ms for c in closings if c.latency_ms is not None]
    cached = saved(c.method.get("cached") for c in closings if c.method is not None)
    of_call = {name: kept for name, kept in (first.method or {}).items() if name in _OF_CALL}
    method = cast(Method, {**of_call, "mode": GENERATE})
    if any(c.reported is not c for c in closings):
        method["usage"] = NOT_TOLD
    if cached is not None:
        method["cached"] = cached
    method["repeats"] = [
        {
            **{name: told for name, told in shallow(c.reported).items() if name in _TOLD},
            "endpoint_revision": (c.method or {}).get("endpoint_revision"),
        }
        for c in closings
    ]
    return replace(
        first,
        score=mean,
        tokens_in=total(c.tokens_in for c in closings if c.attempts),
        tokens_out=total(c.tokens_out for c in closings if c.attempts),
        usd=total(c.usd for c in closings if c.attempts),
        latency_ms=max(latencies, default=None),
        attempts=sum(c.attempts or 0 for c in closings),
        marking=_marking(closings),
        method=method,
    )


def repeats_in(closing: Closing) -> list[Closing]:
    """The single closings of a closing that `combined` made, each without its old marking."""
    stored = [] if closing.method is None else closing.method.get("repeats", [])
    told = [{name: each[name] for name in _TOLD} for each in stored]
    return [replace(closing, method=None, marking=None, **each) for each in told]


_OF_CALL = ("endpoint_revision",)
_TOLD = (
    *("outcome", "score", "extracted", "extractor", "reason", "error_code"),
    *("answer_text", "raw_text", "reasoning", "finish_reason"),
    *("tokens_in", "tokens_out", "usd", "latency_ms", "attempts"),
)


def _marking(closings: Sequence[Closing]) -> Marking | None:
    """Marking of the first closing that has one, with the usage of all."""
    found = [closing.marking for closing in closings if closing.marking is not None]
    if not found:
        return None
    whole: Marking = {**found[0], "usage": spent_by(marking["usage"] for marking in found)}
    if any("at_most" in marking for marking in found):
        whole["at_most"] = spent_by(marking.get("at_most", marking["usage"]) for marking in found)
    if kept := [marking["cached"] for marking in found if "cached" in marking]:
        whole["cached"] = spent_by(kept)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A preview of one item.

    Attributes:
        requests: The calls; one for each option if likelihoods are compared, none for simulated
            examinees.
        closing: The answer and its score; None if nothing was sent.
    """

    item: BankItem
    requests: list[ExactRequest]
    style: PromptStyle
    closing: Closing | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Previews:
    """Previews of items; nothing is stored."""

    database: Database
    endpoints: EndpointService
    transport: Transport

    async def preview(
        self,
        bank: str,
        item: str,
        endpoint: str | EndpointSpec,
        view: View,
        *,
        prompt: PromptChanges,
        send: bool,
    ) -> Preview:
        """Preview one item with one endpoint; `send` false sends nothing.

        Raises:
            NotFoundError: The bank, item or endpoint does not exist.
            MissingScopeError: The bank is withheld, and the caller may not write banks.
            InvalidInputError: The item cannot be asked in this way, or not to this endpoint.
        """
        async with self.database.reading() as uow:
            found = await uow.banks.find(bank)
            if not view.shows(withheld=is_withheld(found)):
                raise MissingScopeError(
                    f"Bank {found.name!r} is withheld: a preview shows an item's text and how its "
                    "answer is scored, which needs a key with the scope 'banks:write'."
                )
            stored = await uow.items.find(found.id, item)
        if stored.content == ItemContent():
            raise InvalidInputError(
                f"Item {stored.key!r} has parameters but no content: there is nothing to ask."
            )
        with faults_within("/endpoint"):
            ready = await self.endpoints.open(endpoint)
        kind = ready.config.kind
        require_answers(kind)
        style = chosen_style(
            PromptStyle.from_dict(found.prompt), prompt, ready.endpoint.settings, self.endpoints
        )
        shown = BankItem.of(stored, 0, found.default_scorer, style)
        asker = Asker(
            examinee=RateLimited(ready, self.endpoints, self.transport),
            endpoint=ready,
            marker=await AnswerScorer.of_trial(
                shown.scorer,
                self.database,
                self.endpoints,
                self.transport,
                unparsed_is_wrong=found.unparsed_policy == "wrong",
            ),
            style=style,
        )
        is_simulated, closing = kind == SIMULATED, None
        requests = [] if is_simulated else asker.exact(shown)
        if send:
            # For an item of average difficulty.
            hints = await hints_of(shown, expit, [0]) if is_simulated else None
            asked = await asker.ask(shown, rng=np.random.default_rng(), hints=hints)
            closing = asked.reported
        return Preview(item=shown, requests=requests, style=style, closing=closing)
