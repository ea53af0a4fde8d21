"""The interface of examinees: a prompt in, a completion or a classified `ExamineeError` out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.adapters.prompting import LAYOUT, Layout
from app.calling import GenerationParams
from app.items import FinishReason, JsonObject, JsonValue, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationHints:
    """Information for simulated examinees; adapters to real models never read it.

    Attributes:
        right: An answer that the item's scorer scores as right.
        wrong: An answer that the item's scorer scores as wrong.
        probability_right: Probability of a right answer at a given theta, by the item's curve.
        key: Key of the item, so that the random answer is a pure function of (seed, item).
    """

    right: str
    wrong: str
    probability_right: Callable[[float], float]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One item, as it is sent to the examinee.

    Attributes:
        layout: How the turns become one text, if the endpoint has no chat.
        params: Sampling settings; `None` uses those of the endpoint's configuration.
        repeat: Number of the repeat, from 0, if an item is asked several times.
        schema: JSON schema that the answer should follow; only endpoints with structured output
            enforce it.
    """

    messages: tuple[Message, ...]
    layout: Layout = LAYOUT
    params: GenerationParams | None = None
    hints: SimulationHints | None = None
    repeat: int = 0
    schema: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Usage of a call of any kind.

    Attributes:
        tokens_in: Prompt tokens as reported by the endpoint; `None` if it does not report them.
        tokens_out: Completion tokens as reported, including reasoning.
        latency_s: Seconds from the request to the complete reply, in the successful attempt.
        model: The model name that the endpoint returned.
        cached: The answer came from the cache, without a call.
        origin: The endpoint's revision, and the counts that it did not report; set by the caller.
        usd: Cost of the tokens in US dollars, where it is known; set by the caller.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    latency_s: float = 0.0
    model: str | None = None
    cached: bool = False
    origin: Mapping[str, JsonValue] = field(default_factory=dict)
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Answered):
    """The text that the endpoint wrote, split into answer and reasoning, with its usage.

    Attributes:
        raw: The whole text as received.
        reasoning: The reasoning part; `None` without reasoning.
        finish: Why the text ended; an unfinished thought is `LENGTH`.
    """

    text: str
    raw: str
    reasoning: str | None = None
    finish: FinishReason = FinishReason.STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """Capabilities of an endpoint, found by calling it.

    Attributes:
        capabilities: `chat`, `logprobs`, `prompt_logprobs`, `system_role`, `seed` (two calls with
            one seed wrote the same text), `reasoning_field` (the answer had one): True, False, or
            None if unknown.
        latency_ms: Latency of the first successful call; `None` if no call succeeded.
        error_code: Code of the `ExamineeError` that ended the probe, else `None`.
        detail: One sentence for the user.
    """

    capabilities: Mapping[str, bool | None]
    latency_ms: float | None
    error_code: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExactRequest:
    """A call as it is sent. Headers are not shown, because they may contain keys."""

    url: str
    body: JsonObject


class Examinee(Protocol):
    """Something that answers prompts: one attempt per call, no retries, concurrent calls."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Make one attempt.

        Raises:
            ExamineeError: A classified error, with `retryable` and `retry_after_s` for retries.
        """

    async def probe(self) -> ProbeReport:
        """Find out the endpoint's capabilities; never raises an `ExamineeError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Everything an adapter needs to call an endpoint, secrets decrypted.

    Attributes:
        kind: Registered adapter name (`openai_chat`, `hf_tgi`, ...).
        base_url: URL as given by the user; empty for kinds that make no call.
        api_key: Bearer key or `None`. Kept out of `repr`.
        headers: Extra request headers. Kept out of `repr`.
        sampling: Sampling settings of calls that have no settings of their own.
        reasoning_tags: Opening and closing tag of reasoning inside the text.
        timeout_s: Time limit of one attempt, from connecting to the last byte, seconds.
        options: Settings of a single kind, such as `theta` and `seed` of `scripted`.
    """

    kind: str
    base_url: str = ""
    model: str = ""
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sampling: GenerationParams = field(default_factory=GenerationParams)
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    timeout_s: float = 120.0
    options: Mapping[str, object] = field(default_factory=dict)
