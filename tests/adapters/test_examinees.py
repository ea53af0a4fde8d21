"""Each kind of examinee, tested by the shared suite over real HTTP, and with random faults."""

import asyncio
from functools import partial

import numpy as np
import pytest

from app.adapters.base import EndpointConfig, Examinee
from app.adapters.registry import build
from app.adapters.transport import Transport
from app.calling import RetryPolicy
from app.services.endpoints.calls import persist
from tests.contracts.examinees import ExamineeContract, ExamineeOf, HttpExamineeContract, ask
from tests.servers.fault_server import MIXED_FAULTS, FaultServer


class TestOverHttp(HttpExamineeContract):
    @pytest.fixture(params=["openai_chat", "openai_completions", "hf_tgi", "hf_endpoint"])
    def examinee_at(self, examinee_of: ExamineeOf, request: pytest.FixtureRequest) -> ExamineeOf:
        kind = request.param
        version = "/v1" if kind.startswith("openai") else ""
        named = {"model": ""} if kind == "hf_endpoint" else {}
        return lambda behaviour, **config: examinee_of(
            kind, f"/{behaviour}{version}", **named, **config
        )


class TestScripted(ExamineeContract):
    @pytest.fixture
    def examinee(self, transport: Transport) -> Examinee:
        options = {"theta": 0.5, "seed": 3, "latency_ms": 1}
        return build(EndpointConfig(kind="scripted", options=options), transport)


PATIENT = RetryPolicy(max_attempts=30, base_s=0.001, cap_s=0.001)


async def test_retries_survive_any_faults_without_extra_calls(
    examinee_of: ExamineeOf, faults: FaultServer
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
