"""Random faults, which retries must survive."""

import asyncio
from collections.abc import Callable
from functools import partial

import numpy as np

from app.adapters.base import Examinee
from app.calling import RetryPolicy
from app.services.endpoints.calls import persist
from tests.contracts.examinees import ask
from tests.servers.fault_server import MIXED_FAULTS, FaultServer

PATIENT = RetryPolicy(max_attempts=30, base_s=0.001, cap_s=0.001)


async def test_retries_survive_any_faults_without_extra_calls(
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
