"""Endpoints that speak OpenAI's completions, which also tell how likely a text is."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from app.adapters.base import (
    Completion,
    CompletionRequest,
    ExactRequest,
    ProbeReport,
)
from app.adapters.likelihood import (
    Likelihood,
    LikelihoodRequest,
    PromptToken,
    ask_likelihood,
    most_tokens,
    of_completions,
    of_vllm,
)
from app.adapters.openai_compatible import (
    Answered,
    OpenAICompatible,
    has_logprobs,
    sampling_fields,
)
from app.adapters.probing import PROBE_REQUEST, probed
from app.adapters.prompting import Layout, flatten
from app.adapters.transport import Reply
from app.calling import GenerationParams
from app.errors import NoLikelihoodsError


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
