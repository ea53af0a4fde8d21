"""Replies that no honest server sends: infinite waits and numbers, and our own key."""

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from app.adapters.base import CompletionRequest, EndpointConfig
from app.adapters.embeddings import embed
from app.adapters.failures import MAX_WAIT_S, complaint_in, read_retry_after
from app.adapters.registry import build
from app.adapters.transport import Transport, parse_endpoint_url
from app.errors import EndpointRejectedError, ExamineeError, MalformedAnswerError
from app.items import Message
from tests.servers import serving

KEY = "sk-Key/with+signs=42"
ENDLESS = 10**400
ASK = CompletionRequest(messages=(Message("user", "?"),))


def _said(text: str, **more: object) -> Response:
    """Return an answer as raw bytes, as Starlette's JSON refuses what the tests need."""
    choice = {"message": {"content": text, "reasoning": text}, "finish_reason": "stop"}
    body = {"choices": [choice], "model": text, "usage": more}
    return Response(json.dumps(body), media_type="application/json")


def _server() -> FastAPI:
    app = FastAPI()

    async def echo(request: Request) -> Response:
        key = request.headers["authorization"].removeprefix("Bearer ")
        coded = base64.b64encode(f"Bearer {key}!".encode()).decode()
        return _said(" ".join((key, quote(key, safe=""), key.encode().hex(), coded)))

    async def short(request: Request) -> Response:
        return _said(f"a banana {request.headers['authorization']}")

    async def endless(_: Request) -> Response:
        return _said("4", prompt_tokens=ENDLESS, completion_tokens="9" * 400)

    async def vectors(request: Request) -> Response:
        entries = [
            {"index": n, "embedding": [ENDLESS]}
            for n, _ in enumerate((await request.json())["input"])
        ]
        return Response(json.dumps({"data": entries}), media_type="application/json")

    async def deep(_: Request) -> Response:
        return Response(b'{"choices":' + b"[" * 900 + b"]" * 900 + b"}")

    async def away(request: Request) -> Response:
        return RedirectResponse(f"?said={quote(request.headers['authorization'])}", 307)

    async def late(_: Request) -> Response:
        return JSONResponse({"error": "x"}, 429, {"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"})

    for path, route in (
        ("/echo/v1/chat/completions", echo),
        ("/short/v1/chat/completions", short),
        ("/endless/v1/chat/completions", endless),
        ("/endless/v1/embeddings", vectors),
        ("/deep/v1/chat/completions", deep),
        ("/away/v1/chat/completions", away),
        ("/late/v1/chat/completions", late),
    ):
        app.add_route(path, route, methods=["POST"])
    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(_server()) as url:
        yield url


def config(url: str, how: str, key: str = KEY) -> EndpointConfig:
    return EndpointConfig(
        kind="openai_chat", base_url=f"{url}/{how}/v1", model="m", api_key=key, timeout_s=60
    )


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


async def test_a_wait_beyond_the_calendar_is_a_rate_limit(url: str, transport: Transport) -> None:
    with pytest.raises(ExamineeError) as caught:
        await build(config(url, "late"), transport).complete(ASK)
    assert caught.value.code == "endpoint_rate_limited"


async def test_infinite_counts_are_unknown(url: str, transport: Transport) -> None:
    answer = await build(config(url, "endless"), transport).complete(ASK)
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("4", None, None)


async def test_a_vector_of_infinite_numbers_is_malformed(url: str, transport: Transport) -> None:
    with pytest.raises(MalformedAnswerError, match="one vector of numbers"):
        await embed(config(url, "endless"), transport, ["a", "b"])


async def test_a_deeply_nested_answer_is_malformed(url: str, transport: Transport) -> None:
    with pytest.raises(MalformedAnswerError):
        await build(config(url, "deep"), transport).complete(ASK)


async def test_our_own_key_is_taken_out_in_every_spelling(url: str, transport: Transport) -> None:
    answer = await build(config(url, "echo"), transport).complete(ASK)
    for text in (answer.text, answer.raw, answer.reasoning, answer.model):
        assert text is not None
        assert text.count("[redacted]") == 4
        for spelt in (KEY, quote(KEY, safe=""), KEY.encode().hex(), KEY[3:-3]):
            assert spelt not in text


async def test_a_short_key_removes_no_words_from_answers(url: str, transport: Transport) -> None:
    answer = await build(config(url, "short", "a"), transport).complete(ASK)
    assert answer.text == "a banana Bearer a"


async def test_a_redirect_does_not_show_the_key(url: str, transport: Transport) -> None:
    with pytest.raises(EndpointRejectedError, match="redirected more than") as caught:
        await build(config(url, "away"), transport).complete(ASK)
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
