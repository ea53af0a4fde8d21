"""A model server with faults on demand, in the formats of OpenAI and Hugging Face.

The first part of the path says how: `http://host:port/cut/v1` is a base_url whose every answer
breaks off, `http://host:port/ok/v1` always answers well.

- `name-2` misbehaves on the first two calls of each prompt.
- `exhausted-2` answers the first two calls of each prompt and then asks to slow down.
- `mixed` misbehaves at `fault_rate`, decided by (seed, prompt, how often that prompt was asked):
  any number of callers in any order see the same faults.

The text of a good answer depends on the prompt alone, so runs with and without faults compare.
"""

import asyncio
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

LARGE_BODY_BYTES = 10 * 1024 * 1024
MIXED_FAULTS = ("rate_limited", "error_500", "slow", "cut", "malformed", "empty_choices")


@dataclass(frozen=True, slots=True)
class Call:
    """One request as received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class FaultServer:
    """State and settings of the server; `app` is the ASGI application.

    Attributes:
        api_key: Calls without it are answered 401.
        fault_rate: Share of calls to `mixed` that misbehave.
        seed: Seed that decides which.
        retry_after_s: Seconds in the Retry-After header of a 429.
        slow_s: Seconds that a slow answer takes.
        answers: Fixed replies by name of their path: name -> (status, headers, body).
        calls: Every request, in order.
        asked: Number of requests by behaviour.
        played: Number of faults by kind.
    """

    api_key: str | None = None
    fault_rate: float = 0.0
    seed: int = 0
    retry_after_s: float = 0.05
    slow_s: float = 0.2
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    played: Counter[str] = field(default_factory=Counter)
    _times_asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/{behaviour}")
        @app.post("/{behaviour}/{route:path}")
        async def answer(request: Request, behaviour: str, route: str = "") -> Response:
            body = await request.json()
            self.calls.append(Call(request.url.path, dict(request.headers), body))
            self.asked[behaviour] += 1
            if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
                return _unauthorized(request)
            return await self._play(behaviour, route.strip("/"), body, request)

        return app

    def canned(
        self, name: str, body: object, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> str:
        """Answer every call below `/name` with `body`; return `/name`."""
        if isinstance(body, bytes):
            content, kind = body, "application/octet-stream"
        elif isinstance(body, str):
            content, kind = body.encode(), "text/plain"
        else:
            content, kind = json.dumps(body).encode(), "application/json"
        self.answers[name] = (status, {"content-type": kind} | (headers or {}), content)
        return f"/{name}"

    def forget(self) -> None:
        """Clear the records and the canned answers."""
        for record in (self.answers, self.calls, self.asked, self.played, self._times_asked):
            record.clear()

    async def _play(
        self, behaviour: str, route: str, body: dict[str, Any], request: Request
    ) -> Response:
        if behaviour in self.answers:
            status, headers, content = self.answers[behaviour]
            return Response(content, status, headers)
        prompt = _prompt_text(body)
        self._times_asked[behaviour, prompt] += 1
        fault = self._fault(behaviour, prompt, self._times_asked[behaviour, prompt])
        if fault == "ok":
            return good_answer(route, body, prompt)
        self.played[fault] += 1
        if fault == "slow":
            await asyncio.sleep(self.slow_s)
            return good_answer(route, body, prompt)
        if fault == "rate_limited":
            return _error(429, "Slow down.", headers={"retry-after": f"{self.retry_after_s:g}"})
        if fault == "redirect_elsewhere":
            # Another host name of the same machine, which is another origin for the caller.
            target = f"http://localhost:{request.url.port}/ok/{route}"
            return Response(status_code=307, headers={"location": target})
        if fault in _REPLIES:
            return _REPLIES[fault]()
        if fault not in _FAULTS:
            return _error(404, f"There is no behaviour {fault!r}.")
        return await _FAULTS[fault](route, body)

    def _fault(self, behaviour: str, prompt: str, times: int) -> str:
        if behaviour == "mixed":
            where, which = _two_uniforms(f"{self.seed}:{times}:{prompt}")
            if where >= self.fault_rate:
                return "ok"
            return MIXED_FAULTS[int(which * len(MIXED_FAULTS))]
        name, _, first = behaviour.rpartition("-")
        if first.isdecimal():
            if name == "exhausted":
                return "rate_limited" if times > int(first) else "ok"
            return name if times <= int(first) else "ok"
        return behaviour


def _two_uniforms(key: str) -> tuple[float, float]:
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:16]) / 2**64


def _prompt_text(body: dict[str, Any]) -> str:
    if "messages" in body:
        return "\n".join(str(turn.get("content")) for turn in body["messages"])
    return str(body.get("prompt", body.get("inputs", "")))


def _written(prompt: str) -> str:
    """Return the model's answer: a letter that depends only on the prompt."""
    return "ABCD"[hashlib.sha256(prompt.encode()).digest()[0] % 4]


def _tokens(text: str) -> list[str]:
    """Return words with their leading blanks, the last one also with its trailing blanks."""
    return re.findall(r"\s*\S+(?:\s+\Z)?", text)


def good_answer(route: str, body: dict[str, Any], prompt: str) -> Response:
    """Return a well-formed answer in the format of `route`."""
    text = _written(prompt)
    tokens_in = len(prompt) // 4 + 1
    usage = {"prompt_tokens": tokens_in, "completion_tokens": 1, "total_tokens": tokens_in + 1}
    common = {
        "id": "cmpl-1",
        "created": 1,
        "model": body.get("model", "faulty"),
        "system_fingerprint": "fault-server",
        "usage": usage,
    }
    if route.endswith("chat/completions"):
        logprob = {"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": []}
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "logprobs": {"content": [logprob]} if body.get("logprobs") else None,
        }
        return JSONResponse(common | {"object": "chat.completion", "choices": [choice]})
    if route.endswith("completions"):
        tokens = _tokens(prompt) if body.get("echo") else []
        usage["prompt_tokens"] = len(tokens) or tokens_in
        echoed = [*tokens, text]
        logprobs = [-0.1] * len(echoed)
        choice = {
            "index": 0,
            "text": "".join(echoed),
            "finish_reason": "stop",
            "logprobs": {"tokens": echoed, "token_logprobs": [None, *logprobs[1:]]}
            if body.get("logprobs")
            else None,
        }
        return JSONResponse(common | {"object": "text_completion", "choices": [choice]})
    return _text_generation(route, body, text, tokens_in)


def _text_generation(route: str, body: dict[str, Any], text: str, tokens_in: int) -> Response:
    """Text Generation Inference: `/generate` returns an object, `/` a list of one."""
    parameters = body.get("parameters") or {}
    temperature = parameters.get("temperature")
    if temperature is not None and temperature <= 0:
        words = "Input validation error: `temperature` must be strictly positive"
        return JSONResponse({"error": words, "error_type": "validation"}, 422)
    finish = "eos_token"
    if parameters.get("stop"):
        # As in TGI, the stop sequence stays in the text.
        text, finish = text + str(parameters["stop"][-1]), "stop_sequence"
    answer: dict[str, Any] = {"generated_text": text}
    if parameters.get("details"):
        prefill: list[dict[str, Any]] = [
            {"id": 1, "text": token, "logprob": -0.1 if place else None}
            for place, token in enumerate(_tokens(str(body.get("inputs", ""))))
        ]
        answer["details"] = {
            "finish_reason": finish,
            "generated_tokens": 1,
            "seed": parameters.get("seed"),
            "prefill": prefill if parameters.get("decoder_input_details") else [],
            "tokens": [{"id": 2, "text": text, "logprob": -0.1, "special": False}],
        }
    headers = {"x-prompt-tokens": str(tokens_in), "x-generated-tokens": "1"}
    return JSONResponse(answer if route == "generate" else [answer], headers=headers)


def _error(status: int, message: str, *, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        {"error": {"message": message, "type": "server_error", "code": status}}, status, headers
    )


def _unauthorized(request: Request) -> Response:
    """Repeats the key it refuses, as some servers do."""
    key = request.headers.get("authorization", "none")
    return JSONResponse(
        {"error": {"message": f"Incorrect API key provided: {key}", "code": "invalid_api_key"}}, 401
    )


class _CutOff(Response):
    """Announces more bytes than it sends; uvicorn then closes the connection."""

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b'{"choices": [{"message": {"content": "A'
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _large_chunked(route: str, body: dict[str, Any]) -> Response:
    """Omits the content length, so that a caller must count."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LARGE_BODY_BYTES // 65536):
            yield b" " * 65536

    return StreamingResponse(chunks(), media_type="application/json")


@cache
def _packed_bomb() -> bytes:
    return gzip.compress(b" " * (8 * LARGE_BODY_BYTES))


async def _endless(route: str, body: dict[str, Any]) -> Response:
    """Sends a byte from time to time, without end."""

    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    return StreamingResponse(drops(), media_type="application/json")


async def _redirect_loop(route: str, body: dict[str, Any]) -> Response:
    return Response(status_code=307, headers={"location": f"/redirect_loop/{route}"})


async def _redirect(route: str, body: dict[str, Any]) -> Response:
    return Response(status_code=308, headers={"location": f"/ok/{route}"})


async def _reasoner(route: str, body: dict[str, Any]) -> Response:
    """Like OpenAI's reasoning models, name one refused parameter at a time."""
    refusals = {
        "max_tokens": ("unsupported_parameter", "Use 'max_completion_tokens' instead."),
        "temperature": ("unsupported_value", "Only the default (1) value is supported."),
    }
    for name, (code, words) in refusals.items():
        if name in body and body[name] != 1:
            message = f"Unsupported: {name!r} is not supported with this model. {words}"
            error = {"message": message, "param": name, "code": code}
            return JSONResponse({"error": error | {"type": "invalid_request_error"}}, 400)
    return good_answer(route, body, _prompt_text(body))


async def _no_logprobs(route: str, body: dict[str, Any]) -> Response:
    if "logprobs" in body:
        return _error(400, "logprobs is not supported by this model.")
    return good_answer(route, body, _prompt_text(body))


async def _no_structure(route: str, body: dict[str, Any]) -> Response:
    """Like servers without structured output; otherwise a judgement in backticks."""
    if "response_format" in body:
        return _error(400, "response_format: extra fields not permitted")
    said = 'Let me see.\n```json\n{"reason": "fine", "score": "7/10"}\n```'
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": said},
        "finish_reason": "stop",
    }
    return JSONResponse({"object": "chat.completion", "choices": [choice], "model": "plain"})


#: Faults that do not depend on the request.
_REPLIES: dict[str, Callable[[], Response]] = {
    "error_500": lambda: _error(500, "The engine fell over."),
    "error_503": lambda: Response("upstream connect error", 503, media_type="text/plain"),
    # In the words of llama.cpp's server, and of Hugging Face.
    "loading": lambda: JSONResponse(
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, 503
    ),
    "hf_loading": lambda: JSONResponse(
        {"error": "Model x is currently loading", "estimated_time": 20.0}, 503
    ),
    "cut": _CutOff,
    "malformed": lambda: Response('{"choices": [{"message": ', media_type="application/json"),
    "wrong_shape": lambda: JSONResponse({"answer": "A"}),
    "empty_choices": lambda: JSONResponse(
        {"object": "chat.completion", "choices": [], "model": "faulty"}
    ),
    "html": lambda: Response(
        "<!DOCTYPE html><title>Sign in</title><p>Hello", media_type="text/html"
    ),
    "html_404": lambda: Response(
        "<html><head><title>404 Not Found</title></head></html>", 404, media_type="text/html"
    ),
    "large": lambda: Response(b" " * LARGE_BODY_BYTES, media_type="application/json"),
    "zip_bomb": lambda: Response(
        _packed_bomb(), headers={"content-encoding": "gzip", "content-type": "application/json"}
    ),
    "redirect_metadata": lambda: Response(
        status_code=307, headers={"location": "http://169.254.169.254/latest/meta-data/"}
    ),
    "unauthorized": lambda: JSONResponse(
        {"error": {"message": "No such key.", "code": "invalid_api_key"}}, 401
    ),
}
#: Other faults. `slow`, `rate_limited` and `redirect_elsewhere` depend on settings.
_FAULTS: dict[str, Callable[[str, dict[str, Any]], Awaitable[Response]]] = {
    "large_chunked": _large_chunked,
    "endless": _endless,
    "redirect_loop": _redirect_loop,
    "redirect": _redirect,
    "reasoner": _reasoner,
    "no_logprobs": _no_logprobs,
    "no_structure": _no_structure,
}
