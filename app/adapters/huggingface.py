"""Endpoints of Hugging Face: Text Generation Inference and Inference Endpoints.

Both answer 503 while no replica is up ("scaled to zero"): that is a cold start, not a fault.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from app.adapters.base import Completion, CompletionRequest, EndpointConfig, ProbeReport
from app.adapters.endpoint import JsonEndpoint, completion, json_endpoint, refuse_options
from app.adapters.openai_compatible import OpenAIChat
from app.adapters.probing import (
    PLAIN_PARAMS,
    PROBE_MESSAGES,
    PROBE_PARAMS,
    PROBE_REQUEST,
    capabilities,
    failed,
    repeats,
    succeeded,
)
from app.adapters.prompting import FLAT_STOP, flatten
from app.adapters.transport import Reply, Transport
from app.calling import GenerationParams
from app.errors import EndpointRejectedError, ExamineeError
from app.items import Message

_ANY_MODEL = "tgi"
"""Model name that servers with one model accept."""


@dataclass(frozen=True, slots=True)
class TextGeneration:
    """`POST {base_url}/generate` of Text Generation Inference: the messages become one text."""

    config: EndpointConfig
    endpoint: JsonEndpoint

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask once; see `Examinee.complete`."""
        return (await self._ask(request.messages, request.params))[0]

    async def probe(self) -> ProbeReport:
        """Ask once with log-probabilities of the prompt, then once more without."""
        try:
            try:
                first, details = await self._ask(
                    PROBE_MESSAGES, PROBE_PARAMS, with_prompt_logprobs=True
                )
            except EndpointRejectedError as rejected:
                plain, details = await self._ask(PROBE_MESSAGES, PLAIN_PARAMS)
                note = f"A call for details of the prompt was rejected: {rejected.detail}"
                found = capabilities(chat=False, logprobs=_has_logprobs(details.get("tokens")))
                return succeeded(found, plain.latency_s, plain.model, note)
        except ExamineeError as exc:
            return failed(exc)
        found = capabilities(
            chat=False,
            logprobs=_has_logprobs(details.get("tokens")),
            prompt_logprobs=_has_logprobs(details.get("prefill")),
            seed=await repeats(first, self.complete(PROBE_REQUEST)),
        )
        return succeeded(found, first.latency_s, first.model)

    async def _ask(
        self,
        messages: Iterable[Message],
        params: GenerationParams | None,
        *,
        with_prompt_logprobs: bool = False,
    ) -> tuple[Completion, dict[str, Any]]:
        parameters = _parameters(params or self.config.sampling)
        if with_prompt_logprobs:
            parameters["decoder_input_details"] = True
        reply = await self.endpoint.post({"inputs": flatten(messages), "parameters": parameters})
        if reply.status >= 300:
            raise self.endpoint.failure(reply, self.endpoint.complaint(reply))
        return self._answered(reply, parameters["stop"])

    def _answered(self, reply: Reply, stop: list[str]) -> tuple[Completion, dict[str, Any]]:
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
    refuse_options(config)
    return TextGeneration(
        config, json_endpoint(config, transport, route="/generate", is_503_cold=True)
    )


def hf_endpoint(config: EndpointConfig, transport: Transport) -> OpenAIChat:
    """The chat route of an Inference Endpoint; base_url is its root, with or without `/v1`."""
    refuse_options(config)
    route = OpenAIChat.ROUTE
    if not config.base_url.rstrip("/").endswith(("/v1", route)):
        route = f"/v1{route}"
    endpoint = json_endpoint(config, transport, route=route, is_503_cold=True)
    return OpenAIChat(replace(config, model=config.model or _ANY_MODEL), endpoint)


def _parameters(params: GenerationParams) -> dict[str, Any]:
    """TGI's names; it refuses temperature 0, which means "do not sample"."""
    given = {
        "max_new_tokens": params.max_tokens,
        "do_sample": bool(params.temperature) if params.temperature is not None else None,
        "temperature": params.temperature or None,
        "top_p": params.top_p if params.top_p != 1.0 else None,
        "seed": params.seed,
        "stop": [*params.stop, FLAT_STOP],
        "details": True,
        "return_full_text": False,
    }
    return {name: value for name, value in given.items() if value is not None}


def _has_logprobs(tokens: object) -> bool:
    return isinstance(tokens, list) and any(
        isinstance(token, dict) and token.get("logprob") is not None for token in tokens
    )
