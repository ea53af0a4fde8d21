"""Endpoints of Hugging Face: Text Generation Inference and Inference Endpoints.

Both answer 503 while no replica is up ("scaled to zero"): that is a cold start, not a fault.
"""

from dataclasses import dataclass, replace

from app.adapters.base import (
    Completion,
    CompletionRequest,
    EndpointConfig,
    ExactRequest,
    ProbeReport,
)
from app.adapters.endpoint import JsonEndpoint, completion, json_endpoint
from app.adapters.likelihood import (
    Likelihood,
    LikelihoodRequest,
    PromptToken,
    ask_likelihood,
    most_tokens,
    of_prefill,
)
from app.adapters.openai_compatible import OpenAIChat
from app.adapters.passing import passed_on
from app.adapters.probing import probed
from app.adapters.prompting import Layout, flatten
from app.adapters.transport import Reply, Transport
from app.calling import GenerationParams
from app.items import JsonValue

_PROMPT_LOGPROBS = {
    "max_new_tokens": 1,
    "do_sample": False,
    "details": True,
    "decoder_input_details": True,
    "return_full_text": False,
}
_ANY_MODEL = "tgi"
"""Model name that servers with one model accept."""


@dataclass(frozen=True, slots=True)
class TextGeneration:
    """`POST {base_url}/generate` of Text Generation Inference: the messages become one text."""

    config: EndpointConfig
    endpoint: JsonEndpoint

    async def complete(self, request: CompletionRequest) -> Completion:
        """Make one attempt (`Examinee.complete`)."""
        return (await self._ask(request))[0]

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Likelihood of a text after another (`TellsLikelihoods.likelihood`)."""

        def read(reply: Reply) -> tuple[Completion, list[PromptToken] | None]:
            found, details = self._answered(reply, [])
            tokens = of_prefill(details, most_tokens(request))
            if tokens and found.tokens_in is None:
                found = replace(found, tokens_in=len(tokens))
            return found, tokens

        return await ask_likelihood(
            self.endpoint,
            self.exact(request).body,
            request,
            read,
            how=" (decoder_input_details)",
            fields=("decoder_input_details",),
        )

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """See `ShowsRequests.exact`."""
        if isinstance(request, LikelihoodRequest):
            inputs = request.context + request.continuation
            parameters: dict[str, JsonValue] = {**_PROMPT_LOGPROBS}
        else:
            inputs = flatten(request.messages, request.layout)
            parameters = _parameters(request.params or self.config.sampling, request.layout)
        passed = {**self.endpoint.passed.body, **parameters}
        return ExactRequest(self.endpoint.url, {"inputs": inputs, "parameters": passed})

    async def probe(self) -> ProbeReport:
        """See `probed`."""

        async def ask(request: CompletionRequest) -> tuple[Completion, dict[str, bool | None]]:
            made, details = await self._ask(request)
            return made, {"chat": False, "logprobs": _has_logprobs(details.get("tokens"))}

        return await probed(self, ask)

    async def _ask(self, request: CompletionRequest) -> tuple[Completion, dict[str, JsonValue]]:
        stop = _stops(request.params or self.config.sampling, request.layout)
        return await self.endpoint.ask(
            self.exact(request).body, lambda reply: self._answered(reply, stop)
        )

    def _answered(self, reply: Reply, stop: list[str]) -> tuple[Completion, dict[str, JsonValue]]:
        body = self.endpoint.read(reply)
        text = body.get("generated_text")
        if not isinstance(text, str):
            raise self.endpoint.malformed(reply, "has no generated_text")
        found = body.get("details")
        details: dict[str, JsonValue] = found if isinstance(found, dict) else {}
        answer = completion(
            raw=text,
            reasoning=None,
            finish_word=details.get("finish_reason"),
            tags=self.config.reasoning_tags,
            stop=stop,
            tokens_in=reply.headers.get("x-prompt-tokens"),
            tokens_out=details.get("generated_tokens", reply.headers.get("x-generated-tokens")),
            latency_s=reply.latency_s,
            model=None,
        )
        return answer, details


def hf_tgi(config: EndpointConfig, transport: Transport) -> TextGeneration:
    """A Text Generation Inference server; base_url is its root."""
    return TextGeneration(config, _endpoint(config, transport, "/generate"))


def hf_endpoint(config: EndpointConfig, transport: Transport) -> OpenAIChat:
    """The chat route of an Inference Endpoint; base_url is its root, with or without `/v1`."""
    route = OpenAIChat.ROUTE
    if not config.base_url.rstrip("/").endswith(("/v1", route)):
        route = f"/v1{route}"
    config = replace(config, model=config.model or _ANY_MODEL)
    return OpenAIChat(config, _endpoint(config, transport, route))


def _endpoint(config: EndpointConfig, transport: Transport, route: str) -> JsonEndpoint:
    passed = passed_on(config)
    return json_endpoint(config, transport, route=route, is_503_cold=True, passed=passed)


def _parameters(params: GenerationParams, layout: Layout) -> dict[str, JsonValue]:
    """Sampling parameters by TGI's names; temperature 0, which TGI refuses, means no sampling."""
    given: dict[str, JsonValue] = {
        "max_new_tokens": params.max_tokens,
        "do_sample": bool(params.temperature) if params.temperature is not None else None,
        "temperature": params.temperature or None,
        "top_p": params.top_p if params.top_p != 1.0 else None,
        "seed": params.seed,
        "stop": [*_stops(params, layout)],
        "details": True,
        "return_full_text": False,
    }
    return {name: value for name, value in given.items() if value is not None}


def _stops(params: GenerationParams, layout: Layout) -> list[str]:
    return [*params.stop, *layout.stop]


def _has_logprobs(tokens: object) -> bool:
    return isinstance(tokens, list) and any(
        isinstance(token, dict) and token.get("logprob") is not None for token in tokens
    )
