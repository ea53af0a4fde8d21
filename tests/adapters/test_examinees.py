"""Each kind of examinee against the shared suite, over real HTTP."""

from collections.abc import Callable

import pytest

from app.adapters import EndpointConfig, Examinee, Transport, build
from tests.contracts.examinees import ExamineeContract, HttpExamineeContract


class TestOpenAIChat(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour: examinee_of("openai_chat", f"/{behaviour}/v1")


class TestOpenAICompletions(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour: examinee_of("openai_completions", f"/{behaviour}/v1")


class TestTextGeneration(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour: examinee_of("hf_tgi", f"/{behaviour}")


class TestInferenceEndpoint(HttpExamineeContract):
    @pytest.fixture
    def examinee_at(self, examinee_of: Callable[..., Examinee]) -> Callable[..., Examinee]:
        return lambda behaviour: examinee_of("hf_endpoint", f"/{behaviour}", model="")


class TestScripted(ExamineeContract):
    @pytest.fixture
    def examinee(self, transport: Transport) -> Examinee:
        options = {"theta": 0.5, "seed": 3, "latency_ms": 1}
        return build(EndpointConfig(kind="scripted", options=options), transport)
