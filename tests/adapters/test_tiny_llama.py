"""The adapters with a real llama.cpp server."""

import asyncio
from functools import partial

import numpy as np
import pytest

from app.adapters.base import CompletionRequest, EndpointConfig, Examinee
from app.adapters.registry import build
from app.adapters.transport import Transport
from app.calling import GenerationParams, RetryPolicy
from app.errors import EndpointRejectedError
from app.items import FinishReason, Message
from app.services.endpoints.calls import persist
from tests.contracts.examinees import SECRET, ask

SHORT = GenerationParams(max_tokens=4, seed=1)


@pytest.fixture
def llama(llama_url: str, transport: Transport) -> Examinee:
    return _examinee(llama_url, transport)


def _examinee(url: str, transport: Transport, kind: str = "openai_chat") -> Examinee:
    config = EndpointConfig(
        kind=kind,
        base_url=f"{url}/v1",
        model="tiny",
        api_key=SECRET,
        sampling=SHORT,
        timeout_s=20.0,
    )
    return build(config, transport)


@pytest.mark.parametrize("kind", ["openai_chat", "openai_completions"])
async def test_a_real_server_answers_with_usage_and_is_cut_at_the_token_limit(
    llama_url: str, transport: Transport, kind: str
) -> None:
    examinee = _examinee(llama_url, transport, kind=kind)
    completion = await examinee.complete(CompletionRequest(messages=(Message("user", "Hello"),)))
    assert completion.finish is FinishReason.LENGTH
    assert completion.tokens_out == 4
    assert completion.tokens_in is not None
    assert completion.tokens_in > 3
    assert completion.model == "tiny"
    assert completion.latency_s > 0


async def test_a_prompt_beyond_the_context_is_rejected(llama: Examinee) -> None:
    with pytest.raises(EndpointRejectedError, match="context size"):
        await llama.complete(ask("far too long " * 2000))


async def test_a_probe_reports_what_the_real_server_can_do(
    llama_url: str, transport: Transport
) -> None:
    chat = await _examinee(llama_url, transport).probe()
    assert chat.error_code is None
    for name in ("chat", "logprobs", "system_role", "seed"):
        assert chat.capabilities[name] is True
    text = await _examinee(llama_url, transport, kind="openai_completions").probe()
    assert text.capabilities["prompt_logprobs"] is False


async def test_a_hundred_calls_in_flight_all_come_back(llama: Examinee) -> None:
    """More calls than the server has slots, over connections that it closes now and then."""
    rng = np.random.default_rng(0)
    completions = await asyncio.gather(
        *(
            persist(
                partial(llama.complete, ask(f"Item {number}", max_tokens=1)), RetryPolicy(), rng
            )
            for number in range(300)
        )
    )
    assert all(attempts == 1 for _, attempts in completions)
