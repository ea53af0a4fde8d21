import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from app.demo.bank import demo_bank
from app.demo.model_server import create_model_server
from app.demo.scripted_model import MODEL_NAME, ScriptedModel
from tests.cli.shell import refused

PROMPT = demo_bank().items[1].content.prompt or ""
REPLY = ScriptedModel(theta=0.5, seed=3).reply(PROMPT)
CHAT = {"model": "any", "messages": [{"role": "user", "content": PROMPT}]}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    app = create_model_server(theta=0.5, seed=3)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://model/v1") as client:
        yield client


async def test_a_chat_completion_answers_and_counts_tokens(client: httpx2.AsyncClient) -> None:
    body = (await client.post("/chat/completions", json=CHAT)).json()
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": REPLY}
    assert choice["finish_reason"] == "stop"
    assert body["model"] == "any"
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 2


async def said(client: httpx2.AsyncClient, **body: object) -> tuple[str, str]:
    choice = (await client.post("/chat/completions", json={**CHAT, **body})).json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


async def test_parts_are_read_as_text_and_an_answer_ends_where_it_is_told(
    client: httpx2.AsyncClient,
) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
    assert await said(client, messages=parts) == (REPLY, "stop")
    assert await said(client, max_tokens=1) == (REPLY[:4], "length")
    assert await said(client, stop=[REPLY[3:6]]) == (REPLY[:3], "stop")


async def test_a_text_completion_answers_and_streams_carry_the_same_text(
    client: httpx2.AsyncClient,
) -> None:
    text = (await client.post("/completions", json={"prompt": f"Question: {PROMPT}"})).json()
    assert (text["object"], text["choices"][0]["text"]) == ("text_completion", REPLY)
    response = await client.post("/completions", json={"prompt": PROMPT, "stream": True})
    assert "".join(one["choices"][0]["text"] for one in chunks(response)) == REPLY
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    response = await client.post("/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *pieces, ended, usage = chunks(response)
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    assert "".join(delta["content"] for delta in deltas) == REPLY
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0


def chunks(response: httpx2.Response) -> list[dict[str, Any]]:
    """Return the text of a stream before its end."""
    *events, end = (line.removeprefix("data: ") for line in response.text.split("\n\n") if line)
    assert end == "[DONE]"
    return [json.loads(event) for event in events]


async def test_the_models_are_listed(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/models")).json()["data"][0]["id"] == MODEL_NAME


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"prompt": [1, 2]}', "prompt"),
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": [1]}', "messages"),
        (b'{"messages": [{"role": "user"}]}', "messages"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens"),
        (b'{"messages": [{"role": "user", "content": "x"}], "stop": 3}', "stop"),
    ],
)
async def test_a_bad_request_is_answered_400_and_names_the_fault(
    client: httpx2.AsyncClient, body: bytes, param: str | None
) -> None:
    path = "/completions" if param == "prompt" else "/chat/completions"
    response = await client.post(path, content=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/chat/completions", 405)]
)
async def test_an_unknown_path_is_an_openai_style_error(
    client: httpx2.AsyncClient, method: str, path: str, status: int
) -> None:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == "unknown_url"


@pytest.mark.parametrize(
    ("key", "status"), [("", 401), ("Bearer wrong", 401), ("Bearer right", 200)]
)
async def test_a_key_is_asked_for_where_one_is_set(key: str, status: int) -> None:
    app = create_model_server(theta=0.5, seed=3, api_key="right")
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), headers={"authorization": key} if key else {}
    ) as client:
        asked = await client.post("http://model/v1/chat/completions", json=CHAT)
    assert asked.status_code == status


class Process:
    """The server as a second process, and its first line."""

    def __init__(self, *arguments: str, stdin: int = subprocess.PIPE) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "app.demo.model_server", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        self.address = json.loads(self.popen.stdout.readline())

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process("--theta", "0.5", "--seed", "3")
    yield process
    process.end()


async def test_the_process_answers_at_the_address_it_prints_until_its_input_closes(
    process: Process,
) -> None:
    async with httpx2.AsyncClient(base_url=process.address["url"]) as client:
        replies = await asyncio.gather(
            *(client.post("/chat/completions", json=CHAT) for _ in range(20))
        )
    assert {r.json()["choices"][0]["message"]["content"] for r in replies} == {REPLY}
    assert process.popen.stdin is not None
    process.popen.stdin.close()
    assert process.popen.wait(timeout=60) == 0


def test_the_process_ends_on_a_signal(process: Process) -> None:
    process.popen.send_signal(signal.SIGINT)
    assert process.popen.wait(timeout=60) == 0


def test_a_taken_port_is_a_clear_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused("demo-model", "--port", port)
        why = "Address already in use. Choose another with --port (0 takes a free one)."
        assert told == f"Error: Cannot listen on 127.0.0.1:{port}: {why}"


@pytest.mark.parametrize("skill", ["dates", "=1", "dates=high", "dates=nan"])
def test_an_invalid_skill_is_refused(skill: str) -> None:
    assert "Error: --skill: expected TASK=THETA" in refused("demo-model", "--skill", skill)
