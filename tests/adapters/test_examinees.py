"""Each kind of examinee against the shared suite, over real HTTP."""

from collections.abc import Callable

import pytest

from app.adapters.base import EndpointConfig, Examinee
from app.adapters.registry import build
from app.adapters.transport import Transport
from tests.contracts.examinees import ExamineeContract, HttpExamineeContract


class TestOpenAIChat(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour, **config: examinee_of("openai_chat", f"/{behaviour}/v1", **config)


class TestOpenAICompletions(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        kind = "openai_completions"
        return lambda behaviour, **config: examinee_of(kind, f"/{behaviour}/v1", **config)


class TestTextGeneration(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour, **config: examinee_of("hf_tgi", f"/{behaviour}", **config)


class TestInferenceEndpoint(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        kind = "hf_endpoint"
        return lambda behaviour, **config: examinee_of(kind, f"/{behaviour}", model="", **config)


class TestScripted(ExamineeContract):
    @pytest.fixture
    def examinee(self, transport: Transport) -> Examinee:
        options = {"theta": 0.5, "seed": 3, "latency_ms": 1}
        return build(EndpointConfig(kind="scripted", options=options), transport)
