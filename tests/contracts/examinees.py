"""The contract of every examinee. Subclass it and provide the fixtures named below."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.adapters.base import Completion, CompletionRequest, Examinee, ProbeReport, SimulationHints
from app.calling import GenerationParams
from app.errors import (
    AnswerTooLargeError,
    BlockedAddressError,
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    ExamineeError,
    ExamineeTimeoutError,
    MalformedAnswerError,
    RateLimitedError,
    SextantError,
)
from app.items import FinishReason, Message

SECRET = "sk-very-secret-0123456789"
ExamineeOf = Callable[..., Examinee]
"""Makes an examinee at a path of the fault server."""


def ask(
    prompt: str = "Which letter comes first?\n\nA. a\nB. b", **params: Any
) -> CompletionRequest:
    """Return a request that every kind of examinee can answer."""
    return CompletionRequest(
        messages=(Message("user", prompt),),
        params=GenerationParams(**params),
        hints=SimulationHints(
            right="A", wrong="B", probability_right=lambda theta: float(theta > 0), key=prompt
        ),
    )


class ExamineeContract:
    """Fixture `examinee`: an examinee that answers well."""

    async def test_an_answer_comes_with_plain_values(self, examinee: Examinee) -> None:
        completion = await examinee.complete(ask())
        assert type(completion) is Completion
        assert type(completion.text) is str
        assert type(completion.raw) is str
        assert isinstance(completion.finish, FinishReason)
        for count in (completion.tokens_in, completion.tokens_out):
            assert count is None or (type(count) is int and count >= 0)
        assert type(completion.latency_s) is float
        assert completion.latency_s >= 0

    async def test_fifty_calls_at_once_keep_their_answers_apart(self, examinee: Examinee) -> None:
        prompts = [f"Question number {number}" for number in range(50)]
        alone = [(await examinee.complete(ask(prompt))).text for prompt in prompts[:5]]
        together = await asyncio.gather(*(examinee.complete(ask(prompt)) for prompt in prompts))
        assert [completion.text for completion in together[:5]] == alone

    async def test_a_cancelled_call_leaves_the_examinee_usable(self, examinee: Examinee) -> None:
        call = asyncio.create_task(examinee.complete(ask()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await examinee.complete(ask())).raw is not None

    async def test_a_probe_reports_every_capability(self, examinee: Examinee) -> None:
        report = await examinee.probe()
        assert type(report) is ProbeReport
        assert set(report.capabilities) == {
            "chat",
            "logprobs",
            "prompt_logprobs",
            "system_role",
            "seed",
            "reasoning_field",
        }
        assert set(report.capabilities.values()) <= {True, False, None}
        assert report.error_code is None
        assert report.latency_ms is not None
        assert report.detail

    def test_the_key_is_not_in_its_representation(self, examinee: Examinee) -> None:
        assert SECRET not in repr(examinee)


#: Behaviour of the fault server -> expected outcome, for every kind of endpoint.
FAULTS: dict[str, type[ExamineeError]] = {
    "rate_limited": RateLimitedError,
    "error_500": EndpointFaultError,
    "loading": ColdStartError,
    "hf_loading": ColdStartError,
    "cut": MalformedAnswerError,
    "malformed": MalformedAnswerError,
    "wrong_shape": MalformedAnswerError,
    "empty_choices": MalformedAnswerError,
    "html": MalformedAnswerError,
    "html_404": EndpointRejectedError,
    "large": AnswerTooLargeError,
    "large_chunked": AnswerTooLargeError,
    "zip_bomb": AnswerTooLargeError,
    "endless": ExamineeTimeoutError,
    "unauthorized": EndpointUnauthorizedError,
    "redirect_metadata": BlockedAddressError,
    "redirect_loop": EndpointRejectedError,
}


class HttpExamineeContract(ExamineeContract):
    """Fixture `examinee_at(behaviour, **config)`: an examinee at the fault server, key `SECRET`."""

    @pytest.fixture
    def examinee(self, examinee_at: ExamineeOf) -> Examinee:
        return examinee_at("ok")

    @pytest.mark.parametrize("behaviour", FAULTS)
    async def test_each_fault_has_its_class(self, examinee_at: ExamineeOf, behaviour: str) -> None:
        config = {"timeout_s": 0.3} if behaviour == "endless" else {}
        with pytest.raises(SextantError) as caught:
            await examinee_at(behaviour, **config).complete(ask())
        assert type(caught.value) is FAULTS[behaviour]
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("behaviour", ["cut", "error_500", "unauthorized"])
    async def test_a_probe_never_raises(self, examinee_at: ExamineeOf, behaviour: str) -> None:
        report = await examinee_at(behaviour).probe()
        assert report.error_code == FAULTS[behaviour].code
        assert report.latency_ms is None
        assert set(report.capabilities.values()) == {None}

    async def test_a_throttled_probe_reports_what_it_learned_before(
        self, examinee_at: ExamineeOf
    ) -> None:
        report = await examinee_at("exhausted-1").probe()
        assert report.error_code is None
        assert report.capabilities["logprobs"] is True
        assert report.capabilities["seed"] is None

    async def test_a_redirect_on_the_same_origin_is_followed(self, examinee_at: ExamineeOf) -> None:
        assert (await examinee_at("redirect").complete(ask())).text in set("ABCD")
