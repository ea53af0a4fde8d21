"""Requests that find out the capabilities of an endpoint."""

from collections.abc import Awaitable, Callable
from typing import Final

from app.adapters.base import Completion, CompletionRequest, Examinee, ProbeReport
from app.adapters.likelihood import LikelihoodRequest, TellsLikelihoods
from app.calling import GenerationParams
from app.errors import EndpointRejectedError, ExamineeError, NoLikelihoodsError
from app.items import Message

#: A question with many equally good answers: two equal answers at temperature 1 show that the seed
#: (or a deterministic endpoint) makes answers repeatable.
PROBE_MESSAGES: Final = (
    Message("system", "You answer with digits only."),
    Message("user", "Write a random number of twelve digits."),
)
PROBE_REQUEST: Final = CompletionRequest(
    messages=PROBE_MESSAGES, params=GenerationParams(temperature=1.0, max_tokens=24, seed=20)
)
#: Most calls of one probe.
PROBE_CALLS: Final = 5
#: All calls of a probe as one request, to bound its cost, as its usage is not reported.
PROBE_AS_A_WHOLE: Final = CompletionRequest(
    messages=PROBE_MESSAGES * PROBE_CALLS, params=GenerationParams(max_tokens=24 * PROBE_CALLS)
)
_PLAIN: Final = CompletionRequest(
    messages=PROBE_MESSAGES[1:], params=GenerationParams(temperature=None, max_tokens=24)
)

_CAPABILITIES: Final = (
    "chat",
    "logprobs",
    "prompt_logprobs",
    "system_role",
    "seed",
    "reasoning_field",
)


def capabilities(**known: bool | None) -> dict[str, bool | None]:
    """All capabilities in their order; those that are not `known` are None."""
    return {name: known.get(name) for name in _CAPABILITIES}


async def probed(
    examinee: Examinee,
    ask: Callable[[CompletionRequest], Awaitable[tuple[Completion, dict[str, bool | None]]]],
) -> ProbeReport:
    """Probe an endpoint: two calls with all features, or one plain call if it refuses them."""
    note = ""
    try:
        try:
            first, found = await ask(PROBE_REQUEST)
        except EndpointRejectedError as rejected:
            note = f" A call with every feature was rejected: {rejected.detail}"
            first, found = await ask(_PLAIN)
            words = rejected.detail.lower()
            for name in ("logprobs", "system_role", "seed"):
                if name.removesuffix("_role") in words:
                    found.setdefault(name, False)
    except ExamineeError as exc:
        return ProbeReport(
            capabilities=capabilities(), latency_ms=None, error_code=exc.code, detail=exc.detail
        )
    if isinstance(examinee, TellsLikelihoods):
        found["prompt_logprobs"] = await _tells_likelihoods(examinee)
    if not note:
        found["seed"] = await _repeats(first, examinee)
    said = f"Answered as {first.model!r}." if first.model else "Answered."
    return ProbeReport(
        capabilities=capabilities(**found), latency_ms=first.latency_s * 1000, detail=said + note
    )


async def _repeats(first: Completion, examinee: Examinee) -> bool | None:
    """Whether a second call with the same seed writes the same text.

    `None` if nothing was written or the second call failed: the report is useful without this, so a
    rate limit must not end the probe.
    """
    try:
        second = await examinee.complete(PROBE_REQUEST)
    except ExamineeError:
        return None
    if not (first.raw or first.reasoning):
        return None
    return (first.raw, first.reasoning) == (second.raw, second.reasoning)


async def _tells_likelihoods(examinee: TellsLikelihoods) -> bool | None:
    """Whether it gives likelihoods of texts; `None` if the call failed for another reason."""
    try:
        await examinee.likelihood(LikelihoodRequest(context="One, two,", continuation=" three"))
    except NoLikelihoodsError:
        return False
    except ExamineeError:
        return None
    return True
