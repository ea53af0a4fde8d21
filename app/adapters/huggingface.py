"""Endpoints of Hugging Face: Text Generation Inference and Inference Endpoints.

Both answer 503 while no replica is up ("scaled to zero"): that is a cold start, not a fault.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
    continuation_logprob,
    most_tokens,
    of_prefill,
)
from app.adapters.openai_compatible import OpenAIChat
from app.adapters.passing import passed_on
from app.adapters.probing import (
    PLAIN_PARAMS,
    PROBE_MESSAGES,
    PROBE_REQUEST,
    capabilities,
    failed,
    repeats,
    succeeded,
    tells_likelihoods,
)
from app.adapters.prompting import Layout, flatten
from app.adapters.replies import beside_the_loop
from app.adapters.transport import Reply, Transport
from app.calling import GenerationParams
from app.errors import EndpointRejectedError, ExamineeError, NoLikelihoodsError

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
        """Ask once; see `Examinee.complete`."""
        return (await self._ask(request))[0]

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """How likely a text is after another; see `TellsLikelihoods.likelihood`."""
        reply = await self.endpoint.post(self.exact(request).body)
        if reply.status >= 300:
            complaint = await self.endpoint.complaint(reply)
            error = self.endpoint.failure(reply, complaint)
            words = complaint.words.lower()
            if isinstance(error, EndpointRejectedError) and "decoder_input_details" in words:
                raise self._mute(f" It says: {error.detail}") from error
            raise error
        return await beside_the_loop(reply, partial(self._likely, request))

    def _likely(self, request: LikelihoodRequest, reply: Reply) -> Likelihood:
        found, details = self._answered([], reply)
        tokens = of_prefill(details, most_tokens(request))
        if tokens is None:
            raise self._mute("")
        try:
            logprob, n_tokens = continuation_logprob(tokens, request)
        except ValueError as error:
            raise self.endpoint.malformed(reply, str(error)) from error
        return Likelihood(
            logprob=logprob,
            n_tokens=n_tokens,
            tokens_in=len(tokens) if found.tokens_in is None else found.tokens_in,
            tokens_out=found.tokens_out,
            latency_s=found.latency_s,
        )

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """See `ShowsRequests.exact`."""
        if isinstance(request, LikelihoodRequest):
            inputs = request.context + request.continuation
            parameters = dict(_PROMPT_LOGPROBS)
        else:
            inputs = flatten(request.messages, request.layout)
            parameters = _parameters(request.params or self.config.sampling, request.layout)
        passed = {**self.endpoint.passed.body, **parameters}
        return ExactRequest(self.endpoint.url, {"inputs": inputs, "parameters": passed})

    def _mute(self, more: str) -> NoLikelihoodsError:
        return NoLikelihoodsError(
            f"{self.endpoint.where} gives no log-probabilities of a prompt "
            "(decoder_input_details), so options cannot be compared by likelihood: ask with mode "
            f"'generate'.{more}"
        )

    async def probe(self) -> ProbeReport:
        """Ask twice with one seed, and for log-probabilities of a prompt."""
        try:
            try:
                first, details = await self._ask(PROBE_REQUEST)
            except EndpointRejectedError as rejected:
                first, details = await self._ask(
                    CompletionRequest(messages=PROBE_MESSAGES, params=PLAIN_PARAMS)
                )
                note = f"A call with every feature was rejected: {rejected.detail}"
                found = capabilities(
                    chat=False,
                    logprobs=_has_logprobs(details.get("tokens")),
                    prompt_logprobs=await tells_likelihoods(self),
                )
                return succeeded(found, first.latency_s, first.model, note)
        except ExamineeError as exc:
            return failed(exc)
        found = capabilities(
            chat=False,
            logprobs=_has_logprobs(details.get("tokens")),
            prompt_logprobs=await tells_likelihoods(self),
            seed=await repeats(first, self.complete(PROBE_REQUEST)),
        )
        return succeeded(found, first.latency_s, first.model)

    async def _ask(self, request: CompletionRequest) -> tuple[Completion, dict[str, Any]]:
        body = self.exact(request).body
        reply = await self.endpoint.post(body)
        if reply.status >= 300:
            raise self.endpoint.failure(reply, await self.endpoint.complaint(reply))
        stop = body["parameters"]["stop"]
        return await beside_the_loop(reply, partial(self._answered, stop))

    def _answered(self, stop: list[str], reply: Reply) -> tuple[Completion, dict[str, Any]]:
        body = self.endpoint.read(reply)
        text = body.get("generated_text")
        if not isinstance(text, str):
            raise self.endpoint.malformed(reply, "has no generated_text")
        found = body.get("details")
        details: dict[str, Any] = found if isinstance(found, dict) else {}
        finish = details.get("finish_reason")
        if finish == "stop_sequence":
            # TGI leaves the stop sequence at the end of the text; other servers cut it off.
            text = text.removesuffix(next((mark for mark in stop if text.endswith(mark)), ""))
        answer = completion(
            raw=text,
            reasoning=None,
            finish_word=finish,
            tags=self.config.reasoning_tags,
            tokens_in=reply.headers.get("x-prompt-tokens"),
            tokens_out=details.get("generated_tokens", reply.headers.get("x-generated-tokens")),
            latency_s=reply.latency_s,
            model=None,
        )
        return answer, details


def hf_tgi(config: EndpointConfig, transport: Transport) -> TextGeneration:
    """A Text Generation Inference server; base_url is its root."""
    passed = passed_on(config)
    return TextGeneration(
        config,
        json_endpoint(config, transport, route="/generate", is_503_cold=True, passed=passed),
    )


def hf_endpoint(config: EndpointConfig, transport: Transport) -> OpenAIChat:
    """The chat route of an Inference Endpoint; base_url is its root, with or without `/v1`."""
    passed = passed_on(config)
    route = OpenAIChat.ROUTE
    if not config.base_url.rstrip("/").endswith(("/v1", route)):
        route = f"/v1{route}"
    endpoint = json_endpoint(config, transport, route=route, is_503_cold=True, passed=passed)
    return OpenAIChat(replace(config, model=config.model or _ANY_MODEL), endpoint)


def _parameters(params: GenerationParams, layout: Layout) -> dict[str, Any]:
    """TGI's names; it refuses temperature 0, which means "do not sample"."""
    given = {
        "max_new_tokens": params.max_tokens,
        "do_sample": bool(params.temperature) if params.temperature is not None else None,
        "temperature": params.temperature or None,
        "top_p": params.top_p if params.top_p != 1.0 else None,
        "seed": params.seed,
        "stop": [*params.stop, *layout.stop],
        "details": True,
        "return_full_text": False,
    }
    return {name: value for name, value in given.items() if value is not None}


def _has_logprobs(tokens: object) -> bool:
    return isinstance(tokens, list) and any(
        isinstance(token, dict) and token.get("logprob") is not None for token in tokens
    )
