"""Replies that no honest server sends: infinite waits and numbers, and our own key."""

import base64
from typing import Any
from urllib.parse import quote

import pytest

from app.adapters.base import EndpointConfig
from app.adapters.embeddings import embed
from app.adapters.failures import MAX_WAIT_S, complaint_in, read_retry_after
from app.adapters.transport import Transport, parse_endpoint_url
from app.errors import EndpointRejectedError, MalformedAnswerError, RateLimitedError
from tests.contracts.examinees import ExamineeOf, ask
from tests.servers.fault_server import FaultServer

KEY = "sk-Key/with+signs=42"
ENDLESS = 10**400


def said(text: str, **usage: object) -> dict[str, Any]:
    """Return the body of an answer that says the same everywhere."""
    choice = {"message": {"content": text, "reasoning": text}, "finish_reason": "stop"}
    return {"choices": [choice], "model": text, "usage": usage}


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 31 Dec 99999999999 23:59:59 GMT",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "Fri, 31 Dec 9999 23:59:59 -99999999",
        *("9" * 400, "9" * 5000, "1e400", "1e3", "nan", "inf", "-5", "1_000", "٣", "", " ", "\x00"),
    ],
)
@pytest.mark.parametrize("header", ["retry-after", "retry-after-ms"])
def test_any_requested_wait_is_finite(header: str, value: str) -> None:
    wait_s = read_retry_after({header: value})
    assert wait_s is None or 0 <= wait_s <= MAX_WAIT_S


@pytest.mark.parametrize("value", [ENDLESS, -ENDLESS, True, [1], {"s": 1}, "x", float("nan")])
def test_an_invalid_estimated_time_is_ignored(value: object) -> None:
    found = complaint_in({"error": "loading", "estimated_time": value}, 503)
    assert found is not None
    assert found.estimated_s is None


async def test_a_wait_beyond_the_calendar_is_a_rate_limit(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    late = {"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"}
    path = faults.canned("late", {"error": "x"}, status=429, headers=late)
    with pytest.raises(RateLimitedError):
        await examinee_of("openai_chat", path).complete(ask())


async def test_infinite_counts_are_unknown(faults: FaultServer, examinee_of: ExamineeOf) -> None:
    body = said("4", prompt_tokens=ENDLESS, completion_tokens="9" * 400)
    answer = await examinee_of("openai_chat", faults.canned("endless", body)).complete(ask())
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("4", None, None)


async def test_a_vector_of_infinite_numbers_is_malformed(
    faults: FaultServer, faults_url: str, transport: Transport
) -> None:
    path = faults.canned("far", {"data": [{"index": n, "embedding": [ENDLESS]} for n in range(2)]})
    config = EndpointConfig(kind="openai_chat", base_url=faults_url + path, model="m")
    with pytest.raises(MalformedAnswerError, match="one vector of numbers"):
        await embed(config, transport, ["a", "b"])


async def test_a_deeply_nested_answer_is_malformed(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    path = faults.canned("deep", b'{"choices":' + b"[" * 900 + b"]" * 900 + b"}")
    with pytest.raises(MalformedAnswerError):
        await examinee_of("openai_chat", path).complete(ask())


async def test_our_own_key_is_taken_out_in_every_spelling(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    coded = base64.b64encode(f"Bearer {KEY}!".encode()).decode()
    echo = said(" ".join((KEY, quote(KEY, safe=""), KEY.encode().hex(), coded)))
    examinee = examinee_of("openai_chat", faults.canned("echo", echo), api_key=KEY)
    answer = await examinee.complete(ask())
    for text in (answer.text, answer.raw, answer.reasoning, answer.model):
        assert text is not None
        assert text.count("[redacted]") == 4
        for spelt in (KEY, quote(KEY, safe=""), KEY.encode().hex(), KEY[3:-3]):
            assert spelt not in text


async def test_a_short_key_removes_no_words_from_answers(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    path = faults.canned("short", said("a banana Bearer a"))
    answer = await examinee_of("openai_chat", path, api_key="a").complete(ask())
    assert answer.text == "a banana Bearer a"


async def test_a_redirect_does_not_show_the_key(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    location = {"location": f"?said={quote(f'Bearer {KEY}')}"}
    path = faults.canned("away", {}, status=307, headers=location)
    with pytest.raises(EndpointRejectedError, match="redirected more than") as caught:
        await examinee_of("openai_chat", path, api_key=KEY).complete(ask())
    assert "Key" not in caught.value.detail


@pytest.mark.parametrize(
    "text",
    [
        *("http://[::1/", "http://a\u2100b/", "http://a\\b/", "http://a b/", "http://a\x00/"),
        *("http://①②⑦.⓪.⓪.①/", "http://..../", "http://\ud800/", "http://[::1]x/", "http://a\n/"),
        *("http://" + "a" * 300, "http:///x", "http://u:p@h/", "http://h:99999999999/", "//h/"),
        *("", "localhost:8000", "ftp://host/v1", "https://", "http://0177.0.0.1/", "///"),
    ],
)
def test_an_invalid_url_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|host|port|user|start"):
        parse_endpoint_url(text)
