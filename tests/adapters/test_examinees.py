"""Each kind of examinee, tested by the shared suite over real HTTP."""

from collections.abc import Callable

import pytest

from app.adapters.base import EndpointConfig, Examinee
from app.adapters.registry import build
from app.adapters.transport import Transport
from tests.contracts.examinees import ExamineeContract, HttpExamineeContract


class TestOverHttp(HttpExamineeContract):
    @pytest.fixture(params=["openai_chat", "openai_completions", "hf_tgi", "hf_endpoint"])
    def examinee_at(
        self, examinee_of: Callable[..., Examinee], request: pytest.FixtureRequest
    ) -> Callable[..., Examinee]:
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
