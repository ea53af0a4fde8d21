"""A scripted model behind an OpenAI-compatible API, with its defaults: ability, seed, latency.

As the model `sextant-judge` it scores answers, and `/embeddings` makes vectors, for banks whose
scorers call endpoints.

Run it as a second process: `sextant demo-model --port 0 --theta 0.8 --seed 7`. It prints
one line of JSON with its address once it listens. It ends on SIGTERM, on SIGINT, and when its
standard input is a pipe that closes.
"""

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from typing_extensions import override

from app.demo.bank import DemoItem
from app.demo.scripted_model import JUDGE_NAME, MODEL_NAME, ScriptedJudge, ScriptedModel, embedding
from app.errors import InvalidInputError
from app.items import Json

_CHARS_PER_TOKEN = 4
#: A fixed time, so that equal requests get equal bytes.
_CREATED = 1_767_225_600


class _RequestError(Exception):
    """A request that is answered with an OpenAI-style error."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str = "invalid_type",
        status: int = 400,
    ) -> None:
        super().__init__(message)
        self.response = _error(status, message, code=code, param=param)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """Contents of one request, whichever of the two routes it came by.

    Attributes:
        prompt: Text of the last turn of the user.
        whole: Text of all turns.
    """

    prompt: str
    whole: str
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    with_usage: bool
    model: str


def create_model_server(
    *,
    theta: float,
    seed: int,
    latency_s: float = 0.0,
    items: Sequence[DemoItem] | None = None,
    skills: Mapping[str, float] | None = None,
    api_key: str | None = None,
    judge_faults: float = 0.0,
) -> Starlette:
    """The server as an ASGI application.

    It is plain Starlette, because load tests need a handler and a process that cost little.

    Args:
        theta: Ability of the simulated model, logits.
        seed: Random seed of its draws; the same seed gives the same answer to the same item.
        latency_s: Seconds before each answer.
        items: Items that it knows; by default those of the demo bank.
        skills: Prefix of an item's key -> another ability.
        api_key: Bearer key that every call must carry; `None` requires no key.
        judge_faults: Share of the judge's replies that are not judgements.
    """
    scripted = ScriptedModel(theta=theta, seed=seed, items=items, skills=skills)
    judge = ScriptedJudge(seed=seed, fault_rate=judge_faults)
    numbers = itertools.count(1)

    def guarded(
        handler: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guard(request: Request) -> Response:
            try:
                _check_key(request, api_key)
                return await handler(request)
            except _RequestError as exc:
                return exc.response

        return guard

    async def answer(request: Request) -> Response:
        chat = request.url.path.endswith("/chat/completions")
        ask = _read(await _json_object(request), chat=chat)
        if latency_s > 0:
            await asyncio.sleep(latency_s)
        said = judge.reply(ask.whole) if ask.model == JUDGE_NAME else scripted.reply(ask.prompt)
        text, finish = _cut(said, ask)
        prefix = "chatcmpl" if chat else "cmpl"
        head: Mapping[str, Json] = {
            "id": f"{prefix}-{next(numbers)}",
            "created": _CREATED,
            "model": ask.model,
        }
        usage = _usage(ask.prompt, text)
        if ask.stream:
            return StreamingResponse(
                _chunks(head, text, finish, usage if ask.with_usage else None, chat=chat),
                media_type="text/event-stream",
            )
        return _json({**head, **_choice(text, finish, chat=chat, whole=True), "usage": usage})

    async def embeddings(request: Request) -> Response:
        body = await _json_object(request)
        texts = _texts(body.get("input"))
        data: list[Mapping[str, Json]] = [
            {"object": "embedding", "index": index, "embedding": embedding(text)}
            for index, text in enumerate(texts)
        ]
        tokens = sum(map(_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        model = str(body.get("model") or MODEL_NAME)
        return _json({"object": "list", "data": data, "model": model, "usage": usage})

    async def models(_: Request) -> Response:
        listed: list[Mapping[str, Json]] = [
            {"id": name, "object": "model", "created": _CREATED, "owned_by": "sextant"}
            for name in (MODEL_NAME, JUDGE_NAME)
        ]
        return _json({"object": "list", "data": listed})

    async def http_error(request: Request, exc: Exception) -> Response:
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        message = f"Invalid URL ({request.method} {request.url.path})."
        return _error(status, message, code="unknown_url")

    return Starlette(
        routes=[
            Route("/v1/chat/completions", guarded(answer), methods=["POST"]),
            Route("/v1/completions", guarded(answer), methods=["POST"]),
            Route("/v1/embeddings", guarded(embeddings), methods=["POST"]),
            Route("/v1/models", guarded(models)),
        ],
        exception_handlers={404: http_error, 405: http_error},
    )


def _choice(text: str, finish: str | None, *, chat: bool, whole: bool) -> Mapping[str, Json]:
    """The choice in a reply of either route: the whole text, or a piece of a stream."""
    said: Mapping[str, Json]
    if not chat:
        kind, said = "text_completion", {"text": text}
    elif whole:
        kind, said = "chat.completion", {"message": {"role": "assistant", "content": text}}
    else:
        kind, said = "chat.completion.chunk", {"delta": {} if finish else {"content": text}}
    logprobs = {"logprobs": None} if whole else {}
    return {"object": kind, "choices": [{"index": 0, **said, **logprobs, "finish_reason": finish}]}


async def _chunks(
    head: Mapping[str, Json], text: str, finish: str, usage: Mapping[str, int] | None, *, chat: bool
) -> AsyncIterator[bytes]:
    for piece in re.findall(r"\S+\s*|\s+", text):
        yield _event({**head, **_choice(piece, None, chat=chat, whole=False)})
    yield _event({**head, **_choice("", finish, chat=chat, whole=False)})
    if usage is not None:
        last = _choice("", None, chat=chat, whole=False)
        yield _event({**head, **last, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(data: Mapping[str, Json]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _json(data: Mapping[str, Json], status: int = 200) -> Response:
    return Response(json.dumps(data), status_code=status, media_type="application/json")


def _error(status: int, message: str, *, code: str, param: str | None = None) -> Response:
    body = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return _json({"error": body}, status)


def _check_key(request: Request, api_key: str | None) -> None:
    given = request.headers.get("authorization", "")
    if api_key is not None and not secrets.compare_digest(
        given.encode(), f"Bearer {api_key}".encode()
    ):
        raise _RequestError("Incorrect API key provided.", code="invalid_api_key", status=401)


async def _json_object(request: Request) -> Mapping[str, Json]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as exc:
        raise _RequestError(f"The body is not JSON: {exc}", code="invalid_json") from exc
    if not isinstance(body, dict):
        raise _RequestError("The body must be a JSON object.", code="invalid_json")
    return body


def _read(body: Mapping[str, Json], *, chat: bool) -> _Ask:
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        message = f"max_tokens must be 1 or more, got {limit!r}."
        raise _RequestError(message, param="max_tokens", code="invalid_value")
    stop = body.get("stop")
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise _RequestError("stop must be a string or a list of strings.", param="stop")
    options = body.get("stream_options")
    prompt = _last_user_text(body.get("messages")) if chat else _prompt_text(body.get("prompt"))
    turns = [prompt]
    if chat and isinstance(messages := body.get("messages"), list):
        turns = [str(turn.get("content")) for turn in messages if isinstance(turn, dict)]
    return _Ask(
        prompt=prompt,
        whole="\n\n".join(turns),
        max_tokens=limit,
        stop=tuple(stops),
        stream=body.get("stream") is True,
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
        model=str(body.get("model") or MODEL_NAME),
    )


def _last_user_text(messages: object) -> str:
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        for message in reversed(messages):
            if message.get("role") == "user":
                content = message.get("content")
                if isinstance(content, list):
                    parts = [part.get("text") for part in content if isinstance(part, dict)]
                    content = "\n".join(part for part in parts if isinstance(part, str))
                if isinstance(content, str):
                    return content
    raise _RequestError("messages must be a list with a user message.", param="messages")


def _prompt_text(prompt: object) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    raise _RequestError("prompt must be one string.", param="prompt")


def _texts(given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise _RequestError("input must be a string or a list of strings.", param="input")
    return texts


def _cut(text: str, ask: _Ask) -> tuple[str, str]:
    """`text` up to a stop sequence or the token limit, and the finish reason."""
    for stop in ask.stop:
        if stop:
            text = text.split(stop, 1)[0]
    if ask.max_tokens is not None and _tokens(text) > ask.max_tokens:
        return text[: ask.max_tokens * _CHARS_PER_TOKEN], "length"
    return text, "stop"


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)


def _usage(prompt: str, text: str) -> dict[str, int]:
    tokens_in, tokens_out = _tokens(prompt), _tokens(text)
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }


class _Server(uvicorn.Server):
    """Prints its address once it listens, and ends with its standard input if that is a pipe."""

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            address = {"url": f"http://{host}:{port}/v1", "port": port, "model": MODEL_NAME}
            sys.stdout.write(json.dumps({**address, "pid": os.getpid()}) + "\n")
            sys.stdout.flush()
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            asyncio.get_running_loop().add_reader(0, self._input_ready)

    def _input_ready(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self.should_exit = True


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="TCP port; 0 takes any free one.")
    ] = 0,
    theta: Annotated[float, typer.Option(help="Ability, logits.")] = 0.8,
    skill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK=THETA",
            help="Another ability for items whose key begins so, such as dates=-1; may be "
            "repeated.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 7,
    latency: Annotated[float, typer.Option(help="Seconds before each answer.")] = 0.0,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key that every call must carry.")
    ] = None,
    judge_faults: Annotated[float, typer.Option(help="Share of unparseable judgements.")] = 0.0,
) -> None:
    """Serve a simulated model until stopped; it knows the questions of the demo bank alone.

    Prints one line of JSON with its address once it listens. As the model
    `sextant-judge` it scores answers, and `/embeddings` makes vectors.
    """
    skills = dict(map(_skill, skill or ()))
    try:
        listener = socket.create_server((host, port), backlog=1024)
    except OSError as exc:
        # The message of `create_server` repeats the address.
        why = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno or 0)
        raise InvalidInputError(
            f"Cannot listen on {host}:{port}: {why}. "
            "Choose another with --port (0 takes a free one)."
        ) from exc
    app = create_model_server(
        theta=theta,
        seed=seed,
        latency_s=latency,
        skills=skills,
        api_key=api_key,
        judge_faults=judge_faults,
    )
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    with contextlib.suppress(KeyboardInterrupt):
        _Server(config).run(sockets=[listener])


def _skill(text: str) -> tuple[str, float]:
    task, _, ability = text.rpartition("=")
    try:
        skill = float(ability)
    except ValueError:
        skill = math.nan
    if not task or not math.isfinite(skill):
        raise InvalidInputError(f"--skill: expected TASK=THETA, such as dates=-1, got {text!r}.")
    return task, skill


if __name__ == "__main__":
    typer.run(serve)
