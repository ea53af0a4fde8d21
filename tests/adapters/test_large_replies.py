"""Replies of megabytes: honest ones are read, and none of them in the event loop's thread."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from typing_extensions import override

from app.adapters.base import CompletionRequest, EndpointConfig
from app.adapters.callback import callback
from app.adapters.connections import _MAX_HEAD_BYTES, _SLICE
from app.adapters.embeddings import embed
from app.adapters.registry import build
from app.adapters.transport import SMALL, Reply, Transport
from app.errors import AnswerTooLargeError, EndpointRejectedError, MalformedAnswerError
from app.items import Message
from tests.contracts.examinees import ExamineeOf
from tests.servers import raw_server
from tests.servers.fault_server import FaultServer

MB = 2**20
ASK = CompletionRequest(messages=(Message("user", "?"),))


class _Body(bytes):
    """A body that is read in threads without an event loop."""

    @override
    def decode(self, *how: str) -> str:
        _require_no_loop()
        return super().decode(*how)

    @override
    def count(self, *what: Any) -> int:
        _require_no_loop()
        return super().count(*what)


def _require_no_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


@pytest.fixture(autouse=True)
def _read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def received(*, body: bytes, **more: Any) -> Reply:
        assert len(body) > SMALL
        return Reply(body=_Body(body), **more)

    monkeypatch.setattr("app.adapters.transport.Reply", received)


def full(begin: str, unit: str, end: str, size: int = 4 * MB - 4096) -> bytes:
    return (begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end).encode()


FEW_ENOUGH = 1_499_990  # lists with just as many values as a reply may hold
LISTS = full('{"choices":[', "[],", "[]]}")


async def ended(*calls: Awaitable[Any]) -> list[Any]:
    """Return the results of the calls, also those that failed."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_replies_of_too_many_values_end_in_a_sentence_while_others_go_on(
    faults: FaultServer, faults_url: str, examinee_of: ExamineeOf, transport: Transport
) -> None:
    where = faults.canned("lists", LISTS)
    asked = [examinee_of("openai_chat", where).complete(ASK) for _ in range(2)]
    config = EndpointConfig(kind="openai_chat", base_url=faults_url + where, model="m")
    posted = callback(
        EndpointConfig(kind="callback", base_url=faults_url + where, api_key="k" * 9), transport
    )
    for error in await ended(*asked, embed(config, transport, ["a"]), posted.send({})):
        assert isinstance(error, AnswerTooLargeError)
        assert "answered with more than 1000000 values" in error.detail
    assert len(faults.calls) == 4


@pytest.mark.parametrize(
    "body",
    [
        full('{"error":[', "[],", "[]]}"),
        full('{"error":[', "[],", "[]]}", FEW_ENOUGH),
        full('{"error":{"message":[', "[],", "[]]}}"),
        full('{"detail":[{"loc":[', "[],", "[]]}]}"),
        full('{"detail":[', '{"loc":5},', '{"loc":5}]}'),
        full("", "loading ", ""),
        full(" ", " ", "x"),
    ],
    ids=["lists", "fewer lists", "message", "place", "problems", "words", "blanks"],
)
async def test_errors_of_megabytes_are_shortened(
    body: bytes, faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    where = faults.canned("error", body, status=400)
    examinee = examinee_of("openai_chat", where)
    for error in await ended(examinee.complete(ASK), examinee.complete(ASK)):
        assert isinstance(error, EndpointRejectedError)
        assert len(error.detail) < 500


async def test_megabytes_of_thought_marks_do_not_block_the_loop(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    body = full('{"choices":[{"message":{"content":"', "ab", '"}}]}')
    examinee = examinee_of("openai_chat", faults.canned("marks", body), reasoning_tags=("a", "b"))
    answers = await ended(examinee.complete(ASK), examinee.complete(ASK))
    assert [getattr(each, "text", each) for each in answers] == [""] * 2


def _token(text: str) -> str:
    return json.dumps({"token": text, "logprob": -1.2345678, "bytes": list(text.encode())})


@pytest.mark.parametrize("token", [" a", "\U0001f600", " circumnavigation"])
async def test_four_megabytes_of_log_probabilities_are_read(
    token: str, faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    others = ",".join(_token(text) for text in (token, "b", token, ",") * 5)
    position = f'{_token(" the")[:-1]},"top_logprobs":[{others}]}}'.replace(" ", "")
    body = full(
        '{"choices":[{"message":{"content":"hi"},"finish_reason":"stop","logprobs":{"content":[',
        position + ",",
        position + "]}}]}",
    )
    answer = await examinee_of("openai_chat", faults.canned("logprobs", body)).complete(ASK)
    assert answer.text == "hi"


async def test_a_megabyte_of_reasoning_is_read(
    faults: FaultServer, examinee_of: ExamineeOf
) -> None:
    message = {"content": "B", "reasoning_content": "x, [y], " * 131_072}
    said = {"choices": [{"message": message, "finish_reason": "stop"}]}
    answer = await examinee_of("openai_chat", faults.canned("thoughts", said)).complete(ASK)
    assert answer.text == "B"
    assert answer.reasoning == message["reasoning_content"].strip()


@pytest.mark.parametrize(
    ("reply", "sentence", "n_read"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 80_000, "its headers are too long", _MAX_HEAD_BYTES),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\n \r\n" * 80_000
            + b"0\r\n\r\n",
            "is not JSON",
            6 * 80_000,
        ),
    ],
    ids=["100 Continue", "chunks of a byte"],
)
async def test_a_reply_in_very_many_pieces_does_not_block_the_loop(
    reply: bytes, sentence: str, n_read: int, transport: Transport
) -> None:
    turns = 0

    async def look() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()
            await reader.read()

    async with raw_server(answer) as url:
        config = EndpointConfig(kind="openai_chat", base_url=f"{url}v1", model="m", timeout_s=60.0)
        looking = asyncio.create_task(look())
        errors = await ended(*(build(config, transport).complete(ASK) for _ in range(3)))
        looking.cancel()
    assert turns > 3 * n_read / _SLICE - 10  # one slice a turn, of all connections together
    for error in errors:
        assert isinstance(error, MalformedAnswerError)
        assert sentence in error.detail
