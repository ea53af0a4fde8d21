"""What adapters put to an endpoint to find out what it can do."""

from collections.abc import Awaitable, Callable
from typing import Final

from app.adapters.base import Completion, CompletionRequest, ProbeReport
from app.adapters.likelihood import LikelihoodRequest, TellsLikelihoods
from app.calling import GenerationParams
from app.errors import EndpointRejectedError, ExamineeError, NoLikelihoodsError
from app.items import Message

#: A question with many equally good answers: two equal ones at temperature 1 show that the seed
#: (or a deterministic endpoint) makes answers repeatable.
PROBE_MESSAGES: Final = (
    Message("system", "You answer with digits only."),
    Message("user", "Write a random number of twelve digits."),
)
PROBE_PARAMS: Final = GenerationParams(temperature=1.0, max_tokens=24, seed=20)
PROBE_REQUEST: Final = CompletionRequest(messages=PROBE_MESSAGES, params=PROBE_PARAMS)
#: So many at most are made in one probe.
PROBE_CALLS: Final = 5
#: These as one call: how much they take is not told.
PROBE_AS_A_WHOLE: Final = CompletionRequest(
    messages=PROBE_MESSAGES * PROBE_CALLS, params=GenerationParams(max_tokens=24 * PROBE_CALLS)
)
PLAIN_PARAMS: Final = GenerationParams(temperature=None, max_tokens=24)

_CAPABILITIES: Final = (
    "chat",
    "logprobs",
    "prompt_logprobs",
    "system_role",
    "seed",
    "reasoning_field",
)


def capabilities(**known: bool | None) -> dict[str, bool | None]:
    """All capabilities in their order; those not `known` could not be told."""
    return {name: known.get(name) for name in _CAPABILITIES}


def succeeded(
    found: dict[str, bool | None], latency_s: float, model: str | None, note: str = ""
) -> ProbeReport:
    """The report of an endpoint that answered."""
    said = f"Answered as {model!r}." if model else "Answered."
    return ProbeReport(
        capabilities=found, latency_ms=latency_s * 1000, detail=f"{said} {note}".rstrip()
    )


def failed(exc: ExamineeError) -> ProbeReport:
    """The report of an endpoint that did not."""
    return ProbeReport(
        capabilities=capabilities(), latency_ms=None, error_code=exc.code, detail=exc.detail
    )


async def repeats(first: Completion, again: Awaitable[Completion]) -> bool | None:
    """Whether a second call with the same seed writes the same.

    `None` when nothing was written or the second call failed: that much was learned by then that a
    rate limit must not spoil the report.
    """
    try:
        second = await again
    except ExamineeError:
        return None
    if not (first.raw or first.reasoning):
        return None
    return (first.raw, first.reasoning) == (second.raw, second.reasoning)


async def tells_likelihoods(examinee: TellsLikelihoods) -> bool | None:
    """Whether it says how likely a text is; `None` when the call failed for another reason."""
    try:
        await examinee.likelihood(LikelihoodRequest(context="One, two,", continuation=" three"))
    except NoLikelihoodsError:
        return False
    except ExamineeError:
        return None
    return True


async def probe_by_text(
    examinee: TellsLikelihoods,
    ask: Callable[[CompletionRequest], Awaitable[tuple[Completion, bool | None]]],
) -> ProbeReport:
    """What an endpoint without chat can do: asked twice with one seed, and for likelihoods.

    Args:
        examinee: The endpoint.
        ask: Asks it, for log-probabilities too; whether they came, None where that is not told.
    """
    note = ""
    try:
        try:
            first, logprobs = await ask(PROBE_REQUEST)
        except EndpointRejectedError as rejected:
            note = f"A call with every feature was rejected: {rejected.detail}"
            plain = CompletionRequest(messages=PROBE_MESSAGES, params=PLAIN_PARAMS)
            first, logprobs = await ask(plain)
    except ExamineeError as exc:
        return failed(exc)
    found = capabilities(
        chat=False,
        logprobs=logprobs,
        prompt_logprobs=await tells_likelihoods(examinee),
        seed=None if note else await repeats(first, _completion(ask(PROBE_REQUEST))),
    )
    return succeeded(found, first.latency_s, first.model, note)


async def _completion(asked: Awaitable[tuple[Completion, bool | None]]) -> Completion:
    return (await asked)[0]
