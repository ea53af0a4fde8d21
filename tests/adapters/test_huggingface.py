"""Text Generation Inference and Inference Endpoints; the reference client checks the server."""

import asyncio
from typing import Any

import pytest

from app.adapters.base import CompletionRequest
from app.calling import GenerationParams
from app.errors import ColdStartError, EndpointRejectedError, MalformedAnswerError
from app.items import FinishReason, Message
from tests.contracts.examinees import ExamineeOf, ask
from tests.servers.fault_server import FaultServer

PROMPT = "Question: Which letter comes first?\n\nA. a\nB. b\n\nAnswer:"


async def test_the_test_server_works_with_the_reference_client(
    examinee_of: ExamineeOf, faults_url: str
) -> None:
    """The same prompt through huggingface_hub and our adapters gives the same answers."""
    from huggingface_hub import InferenceClient

    generation = InferenceClient(model=f"{faults_url}/ok", token="hf_x")
    said = await asyncio.to_thread(
        generation.text_generation,
        PROMPT,
        details=True,
        max_new_tokens=8,
        seed=3,
        stop=["\nQuestion:"],
        decoder_input_details=True,
    )
    assert said.details is not None
    assert said.details.finish_reason == "stop_sequence"
    assert [token.logprob for token in said.details.prefill[:2]] == [None, -0.1]
    ours = await examinee_of("hf_tgi", "/ok").complete(ask())
    assert said.generated_text == f"{ours.text}\nQuestion:"

    chat = InferenceClient(base_url=f"{faults_url}/ok", token="hf_x")
    answer = await asyncio.to_thread(
        chat.chat_completion, [{"role": "user", "content": "hi"}], max_tokens=4, logprobs=True
    )
    ours = await examinee_of("hf_endpoint", "/ok", model="").complete(ask("hi"))
    assert answer.choices[0].message.content == ours.text
    assert answer.usage.prompt_tokens == ours.tokens_in


async def test_a_generation_request_uses_tgis_names(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    params = GenerationParams(temperature=0.5, top_p=0.9, max_tokens=7, seed=3, stop=("\n\n",))
    await examinee_of("hf_tgi", "/ok/").complete(
        CompletionRequest(messages=(Message("user", "1 + 1?"),), params=params)
    )
    (call,) = faults.calls
    assert call.path == "/ok/generate"
    assert call.body == {
        "inputs": "Question: 1 + 1?\n\nAnswer:",
        "parameters": {
            "max_new_tokens": 7,
            "do_sample": True,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 3,
            "stop": ["\n\n", "\nQuestion:"],
            "details": True,
            "return_full_text": False,
        },
    }


async def test_temperature_zero_is_sent_as_no_sampling(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    await examinee_of("hf_tgi", "/ok").complete(ask(temperature=0.0))
    assert faults.calls[0].body["parameters"]["do_sample"] is False
    assert "temperature" not in faults.calls[0].body["parameters"]


def generated(text: str, finish: str = "eos_token", **details: Any) -> dict[str, Any]:
    return {"generated_text": text, "details": {"finish_reason": finish} | details}


@pytest.mark.parametrize(
    ("body", "text", "finish"),
    [
        (generated("B"), "B", FinishReason.STOP),
        (generated("B", "length"), "B", FinishReason.LENGTH),
        (generated("B\nQuestion:", "stop_sequence"), "B", FinishReason.STOP),
        (generated("B", "stop_sequence"), "B", FinishReason.STOP),
        (generated("B\nQuestion: A", "length"), "B", FinishReason.STOP),
        (generated("<think>x</think>B"), "B", FinishReason.STOP),
        (generated("<think>x", "eos_token"), "", FinishReason.LENGTH),
        ([generated("B")], "B", FinishReason.STOP),
        ({"generated_text": "B"}, "B", FinishReason.UNKNOWN),
        ({"generated_text": "B", "details": None}, "B", FinishReason.UNKNOWN),
    ],
)
async def test_generations_are_read_with_their_finish_reason(
    examinee_of: ExamineeOf, faults: FaultServer, body: object, text: str, finish: FinishReason
) -> None:
    completion = await examinee_of("hf_tgi", faults.canned("canned", body)).complete(ask())
    assert (completion.text, completion.finish) == (text, finish)


async def test_token_counts_come_from_details_and_headers(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    headers = {"x-prompt-tokens": "12", "x-generated-tokens": "5"}
    for body, given, tokens in (
        (generated("B", generated_tokens=4), headers, (12, 4)),
        ({"generated_text": "B"}, headers, (12, 5)),
        ({"generated_text": "B"}, None, (None, None)),
    ):
        path = faults.canned("a", body, headers=given)
        completion = await examinee_of("hf_tgi", path).complete(ask())
        assert (completion.tokens_in, completion.tokens_out) == tokens


TOO_LONG = {"error": "`inputs` must have less than 4 tokens", "error_type": "validation"}


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (422, TOO_LONG, EndpointRejectedError, "less than 4"),
        (503, "no healthy upstream", ColdStartError, "upstream"),
        (503, b"", ColdStartError, "503"),
        (200, {"generated_text": None}, MalformedAnswerError, "generated_text"),
        (200, [], MalformedAnswerError, "JSON object"),
    ],
)
async def test_failures_of_text_generation_are_classified(
    examinee_of: ExamineeOf,
    faults: FaultServer,
    status: int,
    body: object,
    error: type[Exception],
    words: str,
) -> None:
    path = faults.canned("canned", body, status=status)
    with pytest.raises(error, match=words):
        await examinee_of("hf_tgi", path).complete(ask())


@pytest.mark.parametrize("kind", ["hf_tgi", "hf_endpoint"])
async def test_a_503_means_that_the_endpoint_is_waking_up(
    examinee_of: ExamineeOf, kind: str
) -> None:
    with pytest.raises(ColdStartError) as caught:
        await examinee_of(kind, "/error_503").complete(ask())
    assert caught.value.retry_after_s is None
    with pytest.raises(ColdStartError) as caught:
        await examinee_of(kind, "/hf_loading").complete(ask())
    assert caught.value.retry_after_s == 20.0


@pytest.mark.parametrize("suffix", ["/ok", "/ok/", "/ok/v1", "/ok/v1/", "/ok/v1/chat/completions"])
async def test_an_inference_endpoint_is_given_by_its_root_or_its_v1(
    examinee_of: ExamineeOf, faults: FaultServer, suffix: str
) -> None:
    await examinee_of("hf_endpoint", suffix, model="").complete(ask())
    assert faults.calls[0].path == "/ok/v1/chat/completions"
    assert faults.calls[0].body["model"] == "tgi"
