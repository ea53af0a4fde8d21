"""The examinee's contract: a prompt in, a completion out, or a classified `ExamineeError`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from app.adapters.prompting import LAYOUT, Layout
from app.calling import GenerationParams
from app.items import FinishReason, JsonValue, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationHints:
    """What a simulated examinee needs to answer; adapters to real models never read it.

    Attributes:
        right: An answer that the item's scorer marks as right.
        wrong: An answer that it marks as wrong.
        probability_right: Chance of the right answer at a given theta: the item's curve.
        key: Names the item, so that the draw is a pure function of (seed, item).
    """

    right: str
    wrong: str
    probability_right: Callable[[float], float]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One item, as it is put to the examinee.

    Attributes:
        messages: The prompt.
        layout: How they become one text, where the endpoint has no chat.
        params: Sampling settings; `None` takes those of the endpoint's configuration.
        hints: For simulated examinees.
        repeat: Number of the repeat, from 0, where one item is asked several times.
        schema: JSON schema that the answer is to follow; a wish, which endpoints that know
            structured output fulfil.
    """

    messages: tuple[Message, ...]
    layout: Layout = LAYOUT
    params: GenerationParams | None = None
    hints: SimulationHints | None = None
    repeat: int = 0
    schema: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a call took, whatever it was about.

    Attributes:
        tokens_in: Prompt tokens as reported by the endpoint; `None` when it does not say.
        tokens_out: Completion tokens as reported, reasoning included.
        latency_s: Seconds from request to complete reply, of the attempt that succeeded.
        model: The model name that the endpoint echoed.
        cached: The answer was kept, and no call was made.
        origin: The endpoint's revision, and which counts it did not tell; said by who calls it.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    latency_s: float = 0.0
    model: str | None = None
    cached: bool = False
    origin: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion(Answered):
    """What the endpoint wrote, reasoning split off, and what it took.

    Attributes:
        text: Visible answer.
        raw: The whole text as it came.
        reasoning: The reasoning part; `None` when there was none.
        finish: Why it stopped; an unfinished thought is `LENGTH`.
    """

    text: str
    raw: str
    reasoning: str | None = None
    finish: FinishReason = FinishReason.STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What an endpoint can do, found by asking it.

    Attributes:
        capabilities: `chat`, `logprobs`, `prompt_logprobs`, `system_role`, `seed` (two calls with
            one seed wrote the same), `reasoning_field` (its answer had one): True, False, or None
            where it could not be told.
        latency_ms: Of the first successful call; `None` when none succeeded.
        error_code: Code of the `ExamineeError` that ended the probe, else `None`.
        detail: One sentence for the person who asked.
    """

    capabilities: Mapping[str, bool | None]
    latency_ms: float | None
    error_code: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExactRequest:
    """A call as it goes over the wire, but for headers."""

    url: str
    body: Mapping[str, JsonValue]


class Examinee(Protocol):
    """Something that answers prompts: one attempt a call, no retries, many calls at once."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once.

        Raises:
            ExamineeError: Classified; `retryable` and `retry_after_s` advise the retry loop.
        """
        ...

    async def probe(self) -> ProbeReport:
        """Find out what the endpoint can do. Never raises an `ExamineeError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Everything an adapter needs to call an endpoint, secrets decrypted.

    Attributes:
        kind: Registered adapter name (`openai_chat`, `hf_tgi`, ...).
        base_url: As given by the user; empty for kinds that make no call.
        model: Model name sent with each call.
        api_key: Bearer key or `None`. Kept out of `repr`.
        headers: Extra request headers. Kept out of `repr`.
        sampling: For every call that brings no settings of its own.
        reasoning_tags: Opening and closing mark of a thought inside the text.
        timeout_s: For one attempt, from connect to the last byte.
        options: Settings of one kind only (`theta` and `seed` of `scripted`, for instance).
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
