"""Replies of OpenAI-compatible endpoints in the forms they occur, over real HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from app.adapters.base import Completion, CompletionRequest, EndpointConfig
from app.adapters.registry import build
from app.adapters.transport import Transport
from app.calling import GenerationParams
from app.errors import (
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    ExamineeError,
    ExamineeTimeoutError,
    InvalidInputError,
    MalformedAnswerError,
    RateLimitedError,
)
from app.items import FinishReason, Message
from tests.contracts.examinees import SECRET, ExamineeOf, ask
from tests.servers.fault_server import FaultServer

Ask = Callable[..., Any]


@pytest.fixture
def reply_to(faults: FaultServer, examinee_of: ExamineeOf) -> Ask:
    """Return `await reply_to(body, ...)`: the completion read from a chat endpoint's `body`."""

    async def reply(
        body: object,
        *,
        kind: str = "openai_chat",
        status: int = 200,
        headers: dict[str, str] | None = None,
        stop: tuple[str, ...] = (),
    ) -> Completion:
        path = faults.canned("canned", body, status=status, headers=headers)
        return await examinee_of(kind, path).complete(ask(stop=stop))

    return reply


def chat(message: dict[str, Any], finish: object = "stop", **body: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return {"object": "chat.completion", "choices": [choice]} | body


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "B"}, "B", None),
        ({"content": None}, "", None),
        ({}, "", None),
        ({"content": "B", "reasoning_content": "Not A."}, "B", "Not A."),
        ({"content": "B", "reasoning": "Not A."}, "B", "Not A."),
        ({"content": "B", "reasoning": {"effort": "low"}}, "B", None),
        ({"content": "B", "reasoning_content": None, "reasoning": ""}, "B", None),
        ({"content": "<think>Not A.</think>B"}, "B", "Not A."),
        ({"content": "<think>y</think>B", "reasoning": "x"}, "B", "x\n\ny"),
        ({"content": [{"type": "text", "text": "B"}, {"type": "text", "text": "!"}]}, "B!", None),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Not A."}]},
                    {"type": "text", "text": "B"},
                ]
            },
            "B",
            "Not A.",
        ),
        (
            {"content": [{"type": "reasoning", "text": "A?"}, {"type": "text", "text": "B"}]},
            "B",
            "A?",
        ),
        ({"content": "a\0b \ud800"}, "a\ufffdb ?", None),
    ],
)
async def test_text_and_reasoning_are_found_in_any_known_field(
    reply_to: Ask, message: dict[str, Any], text: str, reasoning: str | None
) -> None:
    completion = await reply_to(chat(message))
    assert (completion.text, completion.reasoning) == (text, reasoning)
    assert completion.finish is FinishReason.STOP


@pytest.mark.parametrize("error", [None, "", {}, {"message": "", "code": None}])
async def test_an_error_without_content_beside_an_answer_is_none(
    reply_to: Ask, error: object
) -> None:
    assert (await reply_to(chat({"content": "B"}, error=error))).text == "B"


async def test_raw_text_model_name_and_refusal_are_kept(reply_to: Ask) -> None:
    completion = await reply_to(chat({"content": "<think>Not A.</think>\n\nB"}, model="m-2026-01"))
    assert (completion.raw, completion.model) == ("<think>Not A.</think>\n\nB", "m-2026-01")
    refused = await reply_to(chat({"content": None, "refusal": "I cannot help."}))
    assert (refused.raw, refused.finish) == ("I cannot help.", FinishReason.CONTENT_FILTER)


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("eos_token", FinishReason.STOP),
        ("STOP", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("content_filter: RECITATION", FinishReason.CONTENT_FILTER),
        ("PROHIBITED_CONTENT", FinishReason.CONTENT_FILTER),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("sensitive", FinishReason.CONTENT_FILTER),
        ("tool_calls", FinishReason.UNKNOWN),
        (None, FinishReason.UNKNOWN),
        (3, FinishReason.UNKNOWN),
    ],
)
async def test_finish_reasons_are_mapped(reply_to: Ask, word: object, finish: FinishReason) -> None:
    assert (await reply_to(chat({"content": "B"}, word))).finish is finish


async def test_a_thought_cut_off_by_the_token_limit_leaves_no_text_to_score(reply_to: Ask) -> None:
    in_text = await reply_to(chat({"content": "<think>B or"}, "length"))
    in_field = await reply_to(chat({"content": "", "reasoning_content": "B or"}, "length"))
    for completion in (in_text, in_field):
        assert (completion.text, completion.finish) == ("", FinishReason.LENGTH)
        assert completion.reasoning == "B or"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Filtered.", "type": None, "param": "prompt", "code": "content_filter"},
        {"message": "No.", "code": None, "innererror": {"code": "ResponsibleAIPolicyViolation"}},
        {"message": "No.", "code": "content_policy_violation"},
        {"message": "Your prompt was flagged.", "param": None, "code": "invalid_prompt"},
        {"message": "litellm.ContentPolicyViolationError: no", "param": None, "code": "400"},
        {"message": "Flagged.", "code": 403, "metadata": {"flagged_input": "x", "reasons": ["a"]}},
    ],
)
@pytest.mark.parametrize("kind", ["openai_chat", "openai_completions"])
async def test_a_prompt_that_a_content_filter_refuses_is_an_outcome_not_a_failure(
    reply_to: Ask, kind: str, error: dict[str, Any]
) -> None:
    completion = await reply_to({"error": error}, kind=kind, status=400)
    assert (completion.text, completion.finish) == ("", FinishReason.CONTENT_FILTER)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2}, (7, 2)),
        ({"prompt_tokens": 7}, (7, None)),
        ({"prompt_tokens": -1, "completion_tokens": True}, (None, None)),
        ({"prompt_tokens": 1.5, "completion_tokens": "x"}, (None, None)),
        (None, (None, None)),
        ([], (None, None)),
    ],
)
async def test_token_counts_are_reported_or_unknown_never_invented(
    reply_to: Ask, usage: object, tokens: tuple[int | None, int | None]
) -> None:
    completion = await reply_to(chat({"content": "B"}, usage=usage))
    assert (completion.tokens_in, completion.tokens_out) == tokens


Unauthorized, Rejected = EndpointUnauthorizedError, EndpointRejectedError
Fault, Malformed, Limited = EndpointFaultError, MalformedAnswerError, RateLimitedError
Late, Cold = ExamineeTimeoutError, ColdStartError


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, {"error": {"message": "Bad key.", "code": 401}}, Unauthorized, "Bad key"),
        (403, {"detail": "Forbidden"}, Unauthorized, "Forbidden"),
        (404, {"error": {"message": "no model x"}}, Rejected, "no model x.*model name"),
        (404, "<html><title>404</title>", Rejected, "missing /v1"),
        (413, "<html><title>413 Too Large</title>", Rejected, "titled '413 Too Large'$"),
        (405, {"detail": "Method Not Allowed"}, Rejected, "Method Not"),
        (
            422,
            {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs", "type": "extra"}]},
            Rejected,
            r"body\.seed: Extra inputs",
        ),
        (400, [{"error": {"message": "API key not valid", "code": 400}}], Rejected, "not valid"),
        (400, {"object": "error", "message": "too long", "code": 400}, Rejected, "too long"),
        (400, "plain words", Rejected, "plain words"),
        (
            400,
            {
                "error": {
                    "message": "Provider said no",
                    "code": 400,
                    "metadata": {"raw": "no top_k"},
                }
            },
            Rejected,
            "Provider said no: no top_k",
        ),
        (400, b"\xff\xfe\x00", Rejected, "400"),
        (400, b"", Rejected, "400"),
        (400, [], Rejected, "400"),
        (303, b"", Rejected, "redirect"),
        (408, b"", Late, "408"),
        (424, {"error": "Request failed", "error_type": "generation"}, Fault, "failed"),
        (429, {"error": "Model is overloaded"}, Limited, "overloaded"),
        (
            429,
            {"error": {"message": "Out of credit", "code": "insufficient_quota"}},
            Rejected,
            "credit",
        ),
        (500, {"error": "CUDA error"}, Fault, "CUDA"),
        (503, "upstream connect error", Fault, "upstream"),
        (503, {"error": {"message": "Loading model"}}, Cold, "Loading"),
        (529, {"error": {"message": "Overloaded"}}, Fault, "Overloaded"),
        (200, {"error": {"message": "upstream died", "code": 502}}, Fault, "died"),
        (200, {"error": {"message": "slow down", "code": 429}}, Limited, "slow down"),
        (200, {"error": "it broke"}, Fault, "200 with an error in its body: it broke"),
        (200, chat({"content": ""}, error={"message": "died", "code": 502}), Fault, "died"),
        (200, {"choices": [], "error": {"message": "slow", "code": 429}}, Limited, "slow"),
        (
            200,
            {"choices": [{"message": {"content": "B"}, "error": {"message": "x", "code": 429}}]},
            Limited,
            "in its body: x",
        ),
        (200, {"choices": None}, Malformed, "no choices"),
        (200, {"choices": {"0": {}}}, Malformed, "no choices"),
        (200, {"choices": ["B"]}, Malformed, "no choices"),
        (200, {"choices": [{"text": "B"}]}, Malformed, "no message"),
        (200, {"choices": [{"message": {"content": 5}}]}, Malformed, "not text"),
        (200, [1], Malformed, "not a JSON object"),
        (200, b"", Malformed, "not JSON"),
        (200, b"[" * 100_000, Malformed, "not JSON"),
        (200, b'data: {"choices": []}\n\ndata: [DONE]\n\n', Malformed, "not JSON"),
        (200, "<!doctype html><p>hi", Malformed, "missing /v1"),
        (200, chat({"content": "half of"}, "error"), Fault, "broke off"),
        (200, chat({"content": "half of"}, "abort"), Fault, "broke off"),
        (200, chat({"content": "half"}, "insufficient_system_resource"), Fault, "broke off"),
        (200, chat({"content": "half of"}, "network_error"), Fault, "broke off"),
    ],
)
async def test_error_bodies_of_every_shape_are_classified_with_the_endpoints_own_words(
    reply_to: Ask, status: int, body: object, error: type[ExamineeError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        await reply_to(body, status=status)
    assert type(caught.value) is error
    assert len(str(caught.value)) < 500


async def test_json_that_is_sent_as_a_web_page_is_read_as_json(reply_to: Ask) -> None:
    page = {"content-type": "text/html; charset=utf-8"}
    assert (await reply_to(chat({"content": "B"}), headers=page)).text == "B"
    with pytest.raises(EndpointRejectedError, match="too long"):
        await reply_to({"error": {"message": "too long"}}, status=400, headers=page)


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after": "3", "retry-after-ms": "2500"}, 2.5, 2.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 1e9, 1e12),
    ],
)
async def test_retry_after_is_read_in_seconds_or_as_a_date(
    reply_to: Ask, headers: dict[str, str], low: float, high: float
) -> None:
    with pytest.raises(RateLimitedError) as caught:
        await reply_to({"error": "slow"}, status=429, headers=headers)
    assert caught.value.retry_after_s is not None
    assert low <= caught.value.retry_after_s <= high


async def test_a_key_that_the_endpoint_echoes_is_taken_out(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    echoes = [
        (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}}),
        (400, f"Authorization: Bearer {SECRET}"),
        (200, f"you sent {SECRET} and header-secret"),
        (200, {"error": f"what is {SECRET}?"}),
    ]
    for status, body in echoes:
        path = faults.canned("echo", body, status=status)
        examinee = examinee_of("openai_chat", path, headers={"x-key": "header-secret"})
        with pytest.raises(ExamineeError) as caught:
            await examinee.complete(ask())
        assert "[redacted]" in str(caught.value)
        for secret in (SECRET, "header-secret"):
            assert secret not in str(caught.value)
            assert secret not in repr(examinee)
        assert SECRET not in (await examinee.probe()).detail


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("/ok/v1", "/ok/v1/chat/completions"),
        ("/ok/v1/", "/ok/v1/chat/completions"),
        ("/ok", "/ok/chat/completions"),
        ("/ok/v1/chat/completions", "/ok/v1/chat/completions"),
        ("/ok/v1?api-version=2", "/ok/v1/chat/completions"),
    ],
)
async def test_the_route_is_joined_to_base_url(
    examinee_of: ExamineeOf, faults: FaultServer, suffix: str, path: str
) -> None:
    await examinee_of("openai_chat", suffix).complete(ask())
    assert [call.path for call in faults.calls] == [path]


@pytest.mark.parametrize("name", ["key", "api_key", "subscription-key", "ACCESS_TOKEN", "sig"])
async def test_a_key_in_the_query_is_refused_and_not_repeated(
    examinee_of: ExamineeOf, transport: Transport, name: str
) -> None:
    with pytest.raises(InvalidInputError, match="must not carry a key in its query") as caught:
        examinee_of("openai_chat", f"/ok/v1?api-version=2&{name}={SECRET}")
    assert SECRET not in str(caught.value)
    url = f"htp://me:{SECRET}@x?{name}={SECRET}"
    with pytest.raises(InvalidInputError, match="must start with http") as caught:
        build(EndpointConfig(kind="openai_chat", base_url=url, model="m"), transport)
    assert SECRET not in str(caught.value)


async def test_requests_hold_the_given_settings_and_no_others(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    examinee = examinee_of("openai_chat", "/ok/v1", headers={"X-Team": "blue"})
    messages = (Message("system", "Be brief."), Message("user", "Größe?"))
    params = GenerationParams(temperature=None, max_tokens=5, seed=3, stop=("\n",))
    await examinee.complete(CompletionRequest(messages=messages, params=params))
    (call,) = faults.calls
    assert call.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Größe?"},
        ],
        "max_tokens": 5,
        "seed": 3,
        "stop": ["\n"],
    }
    assert call.headers["authorization"] == f"Bearer {SECRET}"
    assert call.headers["x-team"] == "blue"


async def test_the_endpoints_own_sampling_applies_where_a_request_has_none(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    sampling = GenerationParams(temperature=0.7, max_tokens=9)
    examinee = examinee_of("openai_chat", "/ok/v1", sampling=sampling)
    await examinee.complete(CompletionRequest(messages=(Message("user", "x"),)))
    assert faults.calls[0].body["temperature"] == 0.7
    assert faults.calls[0].body["max_tokens"] == 9


async def test_parameters_that_a_model_refuses_are_learned_once(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    """OpenAI's reasoning models: another name for max_tokens, and no temperature."""
    examinee = examinee_of("openai_chat", "/reasoner/v1")
    for _ in range(2):
        assert (await examinee.complete(ask(max_tokens=50, seed=1))).text in set("ABCD")
    assert [sorted(call.body.keys() - {"model", "messages"}) for call in faults.calls] == [
        ["max_tokens", "seed", "temperature"],
        ["max_completion_tokens", "seed", "temperature"],
        ["max_completion_tokens", "seed"],
        ["max_completion_tokens", "seed"],
    ]
    assert faults.calls[-1].body["max_completion_tokens"] == 50


async def test_an_answer_ends_at_a_stop_sequence_that_the_endpoint_ignored(reply_to: Ask) -> None:
    said = "<think>Q: or not?</think>\nB\nQ: Which comes last?\nA: D"
    for finish in ("stop", "length"):
        completion = await reply_to(chat({"content": said}, finish), stop=("A:", "\nQ:"))
        assert (completion.text, completion.finish) == ("B", FinishReason.STOP)
        assert (completion.raw, completion.reasoning) == (said, "Q: or not?")


async def test_blank_lines_before_an_answer_do_not_end_it(reply_to: Ask) -> None:
    said = {"\n\nB\n\nC": "\n\nB", "\nQ: A?\nB": ""}
    for content, text in said.items():
        assert (await reply_to(chat({"content": content}), stop=("\n\n", "\nQ:"))).text == text


async def test_a_refusal_stays_one_where_a_stop_sequence_ends_it(reply_to: Ask) -> None:
    refused = {"content": None, "refusal": "I cannot help.\n\nAsk me something else."}
    for message, finish in ((refused, "stop"), ({"content": "No.\n\nNever."}, "content_filter")):
        completion = await reply_to(chat(message, finish), stop=("\n\n",))
        assert completion.finish is FinishReason.CONTENT_FILTER


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Filtered.", "code": "content_filter"},
        {"message": "Flagged.", "code": 403, "metadata": {"flagged_input": "Which ..."}},
    ],
)
async def test_a_filter_that_a_successful_reply_reports_is_an_outcome(
    reply_to: Ask, error: dict[str, Any]
) -> None:
    beside = chat({"content": ""}, "content_filter", error=error)
    within = {"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": error}]}
    for body in (beside, within, {"error": error}):
        assert (await reply_to(body)).finish is FinishReason.CONTENT_FILTER


async def test_a_rejection_that_names_no_sampling_parameter_is_not_repeated(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    error = {"message": "Unsupported", "code": "unsupported_parameter", "param": "messages"}
    path = faults.canned("strict", {"error": error}, status=400)
    with pytest.raises(EndpointRejectedError):
        await examinee_of("openai_chat", path).complete(ask())
    assert len(faults.calls) == 1


async def test_a_completions_endpoint_gets_one_text_and_a_stop_before_the_next_question(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    completion = await examinee_of("openai_completions", "/ok/v1").complete(ask("1 + 1?"))
    (call,) = faults.calls
    assert call.body["prompt"] == "Question: 1 + 1?\n\nAnswer:"
    assert call.body["stop"] == ["\nQuestion:"]
    assert completion.text in set("ABCD")


CHAT = {"chat": True, "logprobs": True, "prompt_logprobs": None, "system_role": True, "seed": True}
TEXT = {"chat": False, "logprobs": True, "prompt_logprobs": True, "system_role": None, "seed": True}


@pytest.mark.parametrize(
    ("kind", "path", "found", "calls"),
    [
        ("openai_chat", "/ok/v1", CHAT | {"reasoning_field": False}, 2),
        ("openai_completions", "/ok/v1", TEXT, 3),
        ("hf_tgi", "/ok", TEXT | {"reasoning_field": None}, 3),
        ("openai_chat", "/no_logprobs/v1", {"chat": True, "logprobs": False}, 2),
    ],
)
async def test_a_probe_tells_what_an_endpoint_can_do(
    examinee_of: ExamineeOf, faults: FaultServer, kind: str, path: str, found: Any, calls: int
) -> None:
    report = await examinee_of(kind, path).probe()
    assert report.error_code is None
    assert found.items() <= report.capabilities.items()
    assert ("logprobs is not supported" in report.detail) is ("no_logprobs" in path)
    assert len(faults.calls) == calls


async def test_features_that_are_silently_ignored_are_missing(
    examinee_of: ExamineeOf, faults: FaultServer
) -> None:
    path = faults.canned("plain", chat({"content": "B", "reasoning_content": "x"}))
    report = await examinee_of("openai_chat", path).probe()
    assert report.capabilities["logprobs"] is False
    assert report.capabilities["reasoning_field"] is True
