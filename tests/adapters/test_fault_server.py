"""The fault server as others use it: a process, and a share of faults that retries survive."""

import asyncio
from collections.abc import Callable
from functools import partial

import httpx2
import numpy as np
import pytest

from app.adapters import EndpointConfig, Examinee, Transport, build
from app.calling import RetryPolicy
from app.errors import EndpointUnauthorizedError
from app.services.endpoints.calls import persist
from tests.contracts.examinees import SECRET, ask
from tests.servers import spawned
from tests.servers.fault_server import MIXED_FAULTS, FaultServer

PATIENT = RetryPolicy(max_attempts=30, base_s=0.001, cap_s=0.001)


async def test_retries_survive_any_mixture_of_faults_without_a_call_too_many(
    examinee_of: Callable[..., Examinee], faults: FaultServer
) -> None:
    faults.fault_rate, faults.retry_after_s, faults.seed = 0.5, 0.001, 4
    prompts = [f"Item {number}" for number in range(100)]

    async def answers(path: str) -> list[tuple[str, int]]:
        examinee = examinee_of("openai_chat", path)
        rng = np.random.default_rng(0)
        attempted = await asyncio.gather(
            *(persist(partial(examinee.complete, ask(prompt)), PATIENT, rng) for prompt in prompts)
        )
        return [(completion.text, attempts) for completion, attempts in attempted]

    undisturbed = await answers("/ok/v1")
    disturbed = await answers("/mixed/v1")
    assert [text for text, _ in disturbed] == [text for text, _ in undisturbed]
    assert set(faults.played) == set(MIXED_FAULTS)
    failed = faults.played.total() - faults.played["slow"]
    assert faults.asked["mixed"] == len(prompts) + failed
    assert sum(attempts for _, attempts in disturbed) == faults.asked["mixed"]


async def test_the_mixture_depends_on_the_seed_not_on_the_order_of_calls(
    examinee_of: Callable[..., Examinee], faults: FaultServer
) -> None:
    async def failed(seed: int, order: int) -> set[str]:
        faults.forget()
        faults.fault_rate, faults.seed = 0.5, seed
        examinee = examinee_of("openai_chat", "/mixed/v1")
        prompts = [f"Item {number}" for number in range(40)][::order]
        results = await asyncio.gather(
            *(examinee.complete(ask(prompt)) for prompt in prompts), return_exceptions=True
        )
        return {
            prompt
            for prompt, result in zip(prompts, results, strict=True)
            if isinstance(result, BaseException)
        }

    assert await failed(1, 1) == await failed(1, -1)
    assert await failed(1, 1) != await failed(2, 1)


async def test_a_behaviour_with_a_number_ends_after_so_many_calls(
    examinee_of: Callable[..., Examinee], faults: FaultServer
) -> None:
    examinee = examinee_of("hf_endpoint", "/error_503-3")
    _, attempts = await persist(lambda: examinee.complete(ask()), PATIENT, np.random.default_rng(0))
    assert attempts == 4
    assert faults.asked["error_503-3"] == 4


@pytest.mark.parametrize("module", ["tests.servers.fault_server", "tests.servers.tiny_llama"])
async def test_a_server_runs_as_a_process_of_its_own_with_a_key(
    transport: Transport, module: str
) -> None:
    with spawned(module, "--port", "0", "--api-key", SECRET) as url:
        base_url = f"{url}/ok/v1" if "fault" in module else f"{url}/v1"

        def examinee(key: str) -> Examinee:
            config = EndpointConfig(
                kind="openai_chat", base_url=base_url, model="tiny", api_key=key
            )
            return build(config, transport)

        assert (await examinee(SECRET).complete(ask(max_tokens=1))).tokens_in
        with pytest.raises(EndpointUnauthorizedError):
            await examinee("wrong").complete(ask())
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)
