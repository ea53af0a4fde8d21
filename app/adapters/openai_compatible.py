"""Endpoints that speak OpenAI's chat completions, or completions, which tell likelihoods too."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from typing_extensions import override

from app.adapters.base import (
    Completion,
    CompletionRequest,
    EndpointConfig,
    ExactRequest,
    ProbeReport,
)
from app.adapters.endpoint import (
    JsonEndpoint,
    completion,
    json_endpoint,
    require_model,
)
from app.adapters.failures import Complaint
from app.adapters.likelihood import (
    Likelihood,
    LikelihoodRequest,
    PromptToken,
    ask_likelihood,
    most_tokens,
    of_completions,
    of_vllm,
)
from app.adapters.passing import passed_on
from app.adapters.probing import PROBE_REQUEST, probed
from app.adapters.prompting import Layout, flatten
from app.adapters.transport import Reply, Transport, off_the_loop
from app.calling import GenerationParams
from app.errors import EndpointRejectedError, NoLikelihoodsError
from app.items import FinishReason

logger = logging.getLogger(__name__)

_UNSUPPORTED = frozenset({"unsupported_parameter", "unsupported_value"})
_STRUCTURED = "response_format"
_RENAMED = {"max_tokens": "max_completion_tokens"}


@dataclass(slots=True)
class _Dialect:
    """Sampling parameters that an endpoint does not take, learned from its rejections.

    OpenAI's reasoning models want `max_completion_tokens` for `max_tokens` and accept no
    temperature but their own; a 400 says so and names the parameter.
    """

    refused: set[str] = field(default_factory=set)
    #: Ways to ask for log-probabilities of a prompt that gave none.
    mute: set[str] = field(default_factory=set)

    def spoken(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """`sampling` in the words that the endpoint takes."""
        return {
            _RENAMED.get(name, name) if name in self.refused else name: value
            for name, value in sampling.items()
            if name not in self.refused or name in _RENAMED
        }

    def learn(self, complaint: Complaint, sent: Mapping[str, Any]) -> bool:
        """Whether `complaint` objects to a parameter that was `sent`: then resending helps."""
        name = complaint.param
        if complaint.code not in _UNSUPPORTED or name is None or name not in sent:
            return False
        if name not in self.refused:
            remedy = f"sent as {_RENAMED[name]}" if name in _RENAMED else "left out"
            logger.warning("The endpoint refuses %r; from now on it is %s.", name, remedy)
            self.refused.add(name)
        return True


@dataclass(frozen=True, slots=True)
class Answered:
    """A completion, and the choice that it was read from."""

    completion: Completion
    choice: Mapping[str, Any]


_FILTERED = Answered(Completion(text="", raw="", finish=FinishReason.CONTENT_FILTER), {})


@dataclass(frozen=True, slots=True)
class OpenAICompatible(ABC):
    """One attempt a call. The only thing it remembers is what was refused."""

    ROUTE: ClassVar[str]

    config: EndpointConfig
    endpoint: JsonEndpoint
    dialect: _Dialect = field(default_factory=_Dialect)

    @classmethod
    def of(cls, config: EndpointConfig, transport: Transport) -> Self:
        """Any server with this route of OpenAI's; base_url usually ends in `/v1`."""
        require_model(config)
        endpoint = json_endpoint(config, transport, route=cls.ROUTE, passed=passed_on(config))
        return cls(config, endpoint)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once; see `Examinee.complete`."""
        return (await self._ask(request)).completion

    async def _ask(
        self, request: CompletionRequest, extras: Mapping[str, Any] | None = None
    ) -> Answered:
        prompt = self._body(request, extras)
        sampling = self._sampling(request.params or self.config.sampling, request.layout)
        while True:
            sent = self.dialect.spoken(sampling)
            reply = await self.endpoint.post(prompt | sent)
            if reply.status < 300:
                return await off_the_loop(reply, self._answered)
            complaint = await self.endpoint.complaint(reply)
            if complaint.is_content_filter:
                return _FILTERED
            # What was learned is not sent again, so this ends.
            if not self.dialect.learn(complaint, sent):
                raise self.endpoint.failure(reply, complaint)

    def _body(self, request: CompletionRequest, extras: Mapping[str, Any] | None) -> dict[str, Any]:
        """All of a call but the sampling parameters."""
        asked = {"model": self.config.model, **self._prompt(request)}
        return {**self.endpoint.passed.body, **asked, **(extras or {})}

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """See `ShowsRequests.exact`."""
        if isinstance(request, LikelihoodRequest):
            raise NoLikelihoodsError(f"{self.endpoint.where} is not asked for likelihoods.")
        sampling = self._sampling(request.params or self.config.sampling, request.layout)
        body = self._body(request, self._structure(request)) | self.dialect.spoken(sampling)
        return ExactRequest(self.endpoint.url, body)

    @abstractmethod
    def _structure(self, request: CompletionRequest) -> Mapping[str, Any]:
        """Fields that ask for an answer of a certain form."""

    def _answered(self, reply: Reply) -> Answered:
        body = self.endpoint.read(reply)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise self.endpoint.malformed(reply, "has no choices")
        choice: dict[str, Any] = choices[0]
        raw, reasoning, finish = self._text(choice, reply)
        usage = body.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Answered(
            completion(
                raw=raw,
                reasoning=reasoning,
                finish_word=finish,
                tags=self.config.reasoning_tags,
                tokens_in=usage.get("prompt_tokens"),
                tokens_out=usage.get("completion_tokens"),
                latency_s=reply.latency_s,
                model=body.get("model"),
            ),
            choice,
        )

    @abstractmethod
    def _prompt(self, request: CompletionRequest) -> dict[str, Any]: ...

    @abstractmethod
    def _sampling(self, params: GenerationParams, layout: Layout) -> dict[str, Any]: ...

    @abstractmethod
    def _text(self, choice: Mapping[str, Any], reply: Reply) -> tuple[str, str | None, object]:
        """Raw text, reasoning of a field of its own, finish reason as given."""


class OpenAIChat(OpenAICompatible):
    """`POST {base_url}/chat/completions`."""

    ROUTE = "/chat/completions"

    @override
    async def complete(self, request: CompletionRequest) -> Completion:
        extras = self._structure(request)
        if not extras:
            return await super().complete(request)
        try:
            return (await self._ask(request, extras)).completion
        except EndpointRejectedError:
            # Servers refuse what they do not know in many words. If it was this, the plain call
            # goes through.
            completion = await super().complete(request)
            logger.warning("The endpoint refuses structured output; from now on it is left out.")
            self.dialect.refused.add(_STRUCTURED)
            return completion

    @override
    def _structure(self, request: CompletionRequest) -> Mapping[str, Any]:
        if request.schema is None or _STRUCTURED in self.dialect.refused:
            return {}
        wanted = {"name": "answer", "strict": True, "schema": dict(request.schema)}
        return {_STRUCTURED: {"type": "json_schema", "json_schema": wanted}}

    @override
    def _prompt(self, request: CompletionRequest) -> dict[str, Any]:
        return {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}

    @override
    def _sampling(self, params: GenerationParams, layout: Layout) -> dict[str, Any]:
        return sampling_fields(params, params.stop)

    @override
    def _text(self, choice: Mapping[str, Any], reply: Reply) -> tuple[str, str | None, object]:
        message = choice.get("message")
        if not isinstance(message, dict):
            raise self.endpoint.malformed(reply, "has no message")
        raw, thoughts = _content(message.get("content"))
        if raw is None:
            raise self.endpoint.malformed(reply, "has a message whose content is not text")
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            return raw or refusal, None, "content_filter"
        return raw, _reasoning_field(message) or thoughts, choice.get("finish_reason")

    async def probe(self) -> ProbeReport:
        """See `probed`."""

        async def ask(request: CompletionRequest) -> tuple[Completion, dict[str, bool | None]]:
            is_full = request is PROBE_REQUEST
            made = await self._ask(
                request, {"logprobs": True, "top_logprobs": 1} if is_full else {}
            )
            found = {"chat": True, "reasoning_field": _has_reasoning_field(made.choice)}
            full = {"logprobs": has_logprobs(made.choice), "system_role": True} if is_full else {}
            return made.completion, {**found, **full}

        return await probed(self, ask)


def sampling_fields(params: GenerationParams, stop: tuple[str, ...]) -> dict[str, Any]:
    """OpenAI's names of sampling settings, those that are set."""
    given = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "max_tokens": params.max_tokens,
        "seed": params.seed,
        "stop": list(stop) or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _content(content: object) -> tuple[str | None, str | None]:
    """Text and thoughts of a message's content: a string, nothing, or a list of typed parts."""
    if content is None:
        return "", None
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list):
        return None, None
    text, thoughts = [], []
    for part in content:
        if not isinstance(part, dict):
            return None, None
        if part.get("type") == "thinking":
            inner, _ = _content(part.get("thinking"))
            thoughts.append(inner or "")
        else:
            text.append(part["text"] if isinstance(part.get("text"), str) else "")
    return "".join(text), "".join(thoughts) or None


def _reasoning_field(message: Mapping[str, Any]) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    return None


def _has_reasoning_field(choice: Mapping[str, Any]) -> bool:
    message = choice.get("message")
    return isinstance(message, dict) and _reasoning_field(message) is not None


def has_logprobs(choice: Mapping[str, Any]) -> bool:
    """Both forms: `{"content": [...]}` and the older `{"token_logprobs": [...]}`."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return False
    return bool(logprobs.get("content") or logprobs.get("token_logprobs"))


class OpenAICompletions(OpenAICompatible):
    """`POST {base_url}/completions`: the messages are flattened to one text."""

    ROUTE = "/completions"

    @override
    def _structure(self, request: CompletionRequest) -> Mapping[str, Any]:
        return {}

    @override
    def _prompt(self, request: CompletionRequest) -> dict[str, Any]:
        return {"prompt": flatten(request.messages, request.layout)}

    @override
    def _sampling(self, params: GenerationParams, layout: Layout) -> dict[str, Any]:
        return sampling_fields(params, (*params.stop, *layout.stop))

    @override
    def _text(self, choice: Mapping[str, Any], reply: Reply) -> tuple[str, str | None, object]:
        if not isinstance(choice.get("text"), str):
            raise self.endpoint.malformed(reply, "has a choice without text")
        return choice["text"], None, choice.get("finish_reason")

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """How likely a text is after another; see `TellsLikelihoods.likelihood`."""
        ways = self._formats()
        while True:
            way = ways.pop(0)
            try:
                found = await self._likelihood(request, way)
            except NoLikelihoodsError:
                if not ways:
                    raise
            else:
                # Another way did it: what came before is not tried again.
                before = list(_PROMPT_LOGPROBS)
                self.dialect.mute.update(before[: before.index(way)])
                return found

    def _formats(self) -> list[str]:
        return [each for each in _PROMPT_LOGPROBS if each not in self.dialect.mute]

    def _likelihood_body(self, request: LikelihoodRequest, way: str) -> dict[str, Any]:
        # One token is written, for some servers refuse to write none; nobody reads it.
        return {
            **self.endpoint.passed.body,
            "model": self.config.model,
            "prompt": request.context + request.continuation,
            "max_tokens": 1,
            "temperature": 0,
            **_PROMPT_LOGPROBS[way],
        }

    @override
    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        if isinstance(request, LikelihoodRequest):
            # One for all ways: kept answers are found by it, also before a way is known to fail.
            first = next(iter(_PROMPT_LOGPROBS))
            return ExactRequest(self.endpoint.url, self._likelihood_body(request, first))
        return super().exact(request)

    async def _likelihood(self, request: LikelihoodRequest, way: str) -> Likelihood:
        def read(reply: Reply) -> tuple[Completion, list[PromptToken] | None]:
            answered = self._answered(reply)
            return answered.completion, self._prompt_tokens(answered, request)

        return await ask_likelihood(
            self.endpoint,
            self._likelihood_body(request, way),
            request,
            read,
            how=", neither by echo with logprobs nor by prompt_logprobs",
            fields=("logprobs", way),
        )

    def _prompt_tokens(
        self, answered: Answered, request: LikelihoodRequest
    ) -> list[PromptToken] | None:
        most = most_tokens(request)
        if (tokens := of_vllm(answered.choice, most)) is not None:
            return tokens
        if request.context + request.continuation not in answered.choice["text"]:
            return None  # `echo` was not heeded: what came are tokens of the answer
        tokens, n_prompt = of_completions(answered.choice, most), answered.completion.tokens_in
        if tokens is None:
            return None
        return tokens[:-1] if n_prompt is None else tokens[:n_prompt]

    async def probe(self) -> ProbeReport:
        """See `probed`."""

        async def ask(request: CompletionRequest) -> tuple[Completion, dict[str, bool | None]]:
            is_full = request is PROBE_REQUEST
            made = await self._ask(request, {"logprobs": 1} if is_full else {})
            full = {"logprobs": has_logprobs(made.choice)} if is_full else {}
            return made.completion, {"chat": False, **full}

        return await probed(self, ask)


#: Ways to ask for log-probabilities of a prompt: OpenAI's, and vLLM's own.
_PROMPT_LOGPROBS: Mapping[str, dict[str, Any]] = {
    "echo": {"echo": True, "logprobs": 1},
    "prompt_logprobs": {"prompt_logprobs": 0},
}
