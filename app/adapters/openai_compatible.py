"""Endpoints with OpenAI's chat completions, or completions, which also give likelihoods."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self, cast

from typing_extensions import override

from app.adapters.base import (
    Completion,
    CompletionRequest,
    EndpointConfig,
    ExactRequest,
    ProbeReport,
)
from app.adapters.endpoint import (
    FilteredError,
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
from app.adapters.prompting import flatten
from app.adapters.transport import Reply, Transport, off_the_loop
from app.errors import EndpointRejectedError, NoLikelihoodsError
from app.items import FinishReason, JsonValue

logger = logging.getLogger(__name__)

_UNSUPPORTED = frozenset({"unsupported_parameter", "unsupported_value"})
_STRUCTURED = "response_format"
_NO_EXTRAS: Mapping[str, JsonValue] = {}
_RENAMED = {"max_tokens": "max_completion_tokens"}


@dataclass(slots=True)
class _Dialect:
    """Sampling parameters that an endpoint does not accept, learned from its rejections.

    OpenAI's reasoning models need `max_completion_tokens` instead of `max_tokens` and accept only
    their own temperature; they answer with a 400 that names the parameter.
    """

    refused: set[str] = field(default_factory=set)
    #: Ways to request log-probabilities of a prompt that returned none.
    mute: set[str] = field(default_factory=set)

    def spoken(self, sampling: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """`sampling` with the parameter names that the endpoint accepts."""
        return {
            _RENAMED.get(name, name) if name in self.refused else name: value
            for name, value in sampling.items()
            if name not in self.refused or name in _RENAMED
        }

    def learn(self, complaint: Complaint, sent: Mapping[str, JsonValue]) -> bool:
        """Whether `complaint` rejects a parameter that was `sent`, so that resending helps."""
        name = complaint.param
        if complaint.code not in _UNSUPPORTED or name is None or name not in sent:
            return False
        if name not in self.refused:
            remedy = f"sent as {_RENAMED[name]}" if name in _RENAMED else "left out"
            logger.warning("The endpoint refuses %r; from now on it is %s.", name, remedy)
            self.refused.add(name)
        return True


#: A completion, and the choice that it was read from.
Choice = tuple[Completion, Mapping[str, JsonValue]]
_FILTERED: Choice = Completion(text="", raw="", finish=FinishReason.CONTENT_FILTER), {}


@dataclass(frozen=True, slots=True)
class OpenAICompatible(ABC):
    """One attempt per call; its only state is the parameters that were rejected.

    Attributes:
        WITH_LOGPROBS: Fields that request log-probabilities of the written tokens.
    """

    ROUTE: ClassVar[str]
    WITH_LOGPROBS: ClassVar[Mapping[str, JsonValue]]

    config: EndpointConfig
    endpoint: JsonEndpoint
    dialect: _Dialect = field(default_factory=_Dialect)

    @classmethod
    def of(cls, config: EndpointConfig, transport: Transport) -> Self:
        """Build for any server with this OpenAI route; base_url usually ends in `/v1`."""
        require_model(config)
        endpoint = json_endpoint(config, transport, route=cls.ROUTE, passed=passed_on(config))
        return cls(config, endpoint)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Make one attempt (`Examinee.complete`)."""
        return (await self._ask(request))[0]

    async def _ask(
        self, request: CompletionRequest, extras: Mapping[str, JsonValue] = _NO_EXTRAS
    ) -> Choice:
        prompt = self._body(request, extras)
        sampling = self._sampling(request)
        while True:
            sent = self.dialect.spoken(sampling)
            reply = await self.endpoint.post(prompt | sent)
            if reply.status < 300:
                try:
                    read = partial(self._answered, stop=sampling.get("stop"))
                    return await off_the_loop(reply, read)
                except FilteredError:
                    return _FILTERED
            complaint = await self.endpoint.complaint(reply)
            if complaint.is_content_filter:
                return _FILTERED
            # Each rejected parameter is never sent again, so the loop ends.
            if not self.dialect.learn(complaint, sent):
                raise self.endpoint.failure(reply, complaint)

    def _body(
        self, request: CompletionRequest, extras: Mapping[str, JsonValue]
    ) -> dict[str, JsonValue]:
        """Body of a call without the sampling parameters."""
        asked = {"model": self.config.model, **self._prompt(request)}
        return {**self.endpoint.passed.body, **asked, **extras}

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """See `ShowsRequests.exact`."""
        if isinstance(request, LikelihoodRequest):
            raise NoLikelihoodsError(f"{self.endpoint.where} is not asked for likelihoods.")
        sampling = self.dialect.spoken(self._sampling(request))
        body = self._body(request, self._structure(request)) | sampling
        return ExactRequest(self.endpoint.url, body)

    def _structure(
        self,
        request: CompletionRequest,  # noqa: ARG002  # chat routes ask by its schema
    ) -> Mapping[str, JsonValue]:
        """Fields that request an answer by the schema."""
        return _NO_EXTRAS

    def _sampling(self, request: CompletionRequest) -> dict[str, JsonValue]:
        """The sampling settings that are set, by OpenAI's names."""
        params = request.params or self.config.sampling
        given: dict[str, JsonValue] = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "max_tokens": params.max_tokens,
            "seed": params.seed,
            "stop": [*params.stop, *self._stops(request)] or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _stops(
        self,
        request: CompletionRequest,  # noqa: ARG002  # text routes stop as its layout says
    ) -> tuple[str, ...]:
        """Further stop sequences beside those that are set."""
        return ()

    async def probe(self) -> ProbeReport:
        """See `probed`."""

        async def ask(request: CompletionRequest) -> tuple[Completion, dict[str, bool | None]]:
            is_full = request is PROBE_REQUEST
            extras = self.WITH_LOGPROBS if is_full else _NO_EXTRAS
            made, choice = await self._ask(request, extras)
            return made, self._capabilities(choice, is_full=is_full)

        return await probed(self, ask)

    @abstractmethod
    def _capabilities(
        self, choice: Mapping[str, JsonValue], *, is_full: bool
    ) -> dict[str, bool | None]:
        """Capabilities that an answer shows."""

    def _answered(self, reply: Reply, stop: JsonValue = None) -> Choice:
        body = self.endpoint.read(reply)
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise self.endpoint.malformed(reply, "has no choices")
        choice: dict[str, JsonValue] = choices[0]
        raw, reasoning, finish = self._text(choice, reply)
        usage = body.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        made = completion(
            raw=raw,
            reasoning=reasoning,
            finish_word=finish,
            tags=self.config.reasoning_tags,
            stop=cast(list[str], stop or []),
            tokens_in=usage.get("prompt_tokens"),
            tokens_out=usage.get("completion_tokens"),
            latency_s=reply.latency_s,
            model=body.get("model"),
        )
        return made, choice

    @abstractmethod
    def _prompt(self, request: CompletionRequest) -> dict[str, JsonValue]: ...

    @abstractmethod
    def _text(
        self, choice: Mapping[str, JsonValue], reply: Reply
    ) -> tuple[str, str | None, object]:
        """Raw text, reasoning from a separate field, and the endpoint's finish reason."""


class OpenAIChat(OpenAICompatible):
    """`POST {base_url}/chat/completions`."""

    ROUTE = "/chat/completions"
    WITH_LOGPROBS: ClassVar = {"logprobs": True, "top_logprobs": 1}

    @override
    async def complete(self, request: CompletionRequest) -> Completion:
        extras = self._structure(request)
        if not extras:
            return await super().complete(request)
        try:
            return (await self._ask(request, extras))[0]
        except EndpointRejectedError:
            # Servers refuse an unknown schema field with various messages. If the field was the
            # reason, the call without it succeeds.
            completion = await super().complete(request)
            logger.warning("The endpoint refuses structured output; from now on it is left out.")
            self.dialect.refused.add(_STRUCTURED)
            return completion

    @override
    def _structure(self, request: CompletionRequest) -> Mapping[str, JsonValue]:
        if request.schema is None or _STRUCTURED in self.dialect.refused:
            return {}
        wanted: JsonValue = {"name": "answer", "strict": True, "schema": dict(request.schema)}
        return {_STRUCTURED: {"type": "json_schema", "json_schema": wanted}}

    @override
    def _prompt(self, request: CompletionRequest) -> dict[str, JsonValue]:
        return {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}

    @override
    def _text(
        self, choice: Mapping[str, JsonValue], reply: Reply
    ) -> tuple[str, str | None, object]:
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

    @override
    def _capabilities(
        self, choice: Mapping[str, JsonValue], *, is_full: bool
    ) -> dict[str, bool | None]:
        message = choice.get("message")
        has_field = isinstance(message, dict) and _reasoning_field(message) is not None
        full = {"logprobs": has_logprobs(choice), "system_role": True} if is_full else {}
        return {"chat": True, "reasoning_field": has_field, **full}


def _content(content: object) -> tuple[str | None, str | None]:
    """Text and reasoning of a message's content: a string, nothing, or a list of typed parts."""
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
        if part.get("type") in ("thinking", "reasoning"):
            inner, _ = _content(part.get("thinking") or part.get("text"))
            thoughts.append(inner or "")
        else:
            text.append(part["text"] if isinstance(part.get("text"), str) else "")
    return "".join(text), "".join(thoughts) or None


def _reasoning_field(message: Mapping[str, JsonValue]) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if isinstance(thoughts := message.get(name), str) and thoughts:
            return thoughts
    return None


def has_logprobs(choice: Mapping[str, JsonValue]) -> bool:
    """Whether there are log-probabilities, as `content` or in the older form `token_logprobs`."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return False
    return bool(logprobs.get("content") or logprobs.get("token_logprobs"))


class OpenAICompletions(OpenAICompatible):
    """`POST {base_url}/completions`: the messages are flattened to one text."""

    ROUTE = "/completions"
    WITH_LOGPROBS: ClassVar = {"logprobs": 1}

    @override
    def _prompt(self, request: CompletionRequest) -> dict[str, JsonValue]:
        return {"prompt": flatten(request.messages, request.layout)}

    @override
    def _stops(self, request: CompletionRequest) -> tuple[str, ...]:
        return request.layout.stop

    @override
    def _text(
        self, choice: Mapping[str, JsonValue], reply: Reply
    ) -> tuple[str, str | None, object]:
        text = choice.get("text")
        if not isinstance(text, str):
            raise self.endpoint.malformed(reply, "has a choice without text")
        return text, None, choice.get("finish_reason")

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Likelihood of a text after another (`TellsLikelihoods.likelihood`)."""
        ways = [way for way in _PROMPT_LOGPROBS if way not in self.dialect.mute]
        while True:
            way = ways.pop(0)
            try:
                found = await self._likelihood(request, way)
            except NoLikelihoodsError:
                if not ways:
                    raise
            else:
                # A later way succeeded, so the ways before it are not tried again.
                before = list(_PROMPT_LOGPROBS)
                self.dialect.mute.update(before[: before.index(way)])
                return found

    def _likelihood_body(self, request: LikelihoodRequest, way: str) -> dict[str, JsonValue]:
        # One token is written and ignored, as some servers refuse to write none.
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
            # The first way stands for all: it is the cache key, whichever way will succeed.
            first = next(iter(_PROMPT_LOGPROBS))
            return ExactRequest(self.endpoint.url, self._likelihood_body(request, first))
        return super().exact(request)

    async def _likelihood(self, request: LikelihoodRequest, way: str) -> Likelihood:
        def read(reply: Reply) -> tuple[Completion, list[PromptToken] | None]:
            told, choice = self._answered(reply)
            return told, self._prompt_tokens(told, choice, request)

        return await ask_likelihood(
            self.endpoint,
            self._likelihood_body(request, way),
            request,
            read,
            how=", neither by echo with logprobs nor by prompt_logprobs",
            fields=("logprobs", way),
        )

    def _prompt_tokens(
        self, told: Completion, choice: Mapping[str, JsonValue], request: LikelihoodRequest
    ) -> list[PromptToken] | None:
        most = most_tokens(request)
        if (tokens := of_vllm(choice, most)) is not None:
            return tokens
        if request.context + request.continuation not in str(choice["text"]):
            return None  # `echo` was ignored: the tokens belong to the answer
        tokens = of_completions(choice, most)
        if tokens is None:
            return None
        # llama-cpp-python counts a first token that it does not list, so both counts are needed.
        if told.tokens_out is not None:
            written = told.tokens_out
        else:  # a server that tells no usage wrote the one token that was asked for
            written = 1 if told.tokens_in is None else 0
        n_prompt = min(len(tokens) - written, told.tokens_in or len(tokens))
        return tokens[:n_prompt] if n_prompt > 0 else None

    @override
    def _capabilities(
        self, choice: Mapping[str, JsonValue], *, is_full: bool
    ) -> dict[str, bool | None]:
        return {"chat": False, **({"logprobs": has_logprobs(choice)} if is_full else {})}


#: Ways to request log-probabilities of a prompt: OpenAI's, and vLLM's own.
_PROMPT_LOGPROBS: Mapping[str, dict[str, JsonValue]] = {
    "echo": {"echo": True, "logprobs": 1},
    "prompt_logprobs": {"prompt_logprobs": 0},
}
