"""Previews: one item sent to an endpoint before a session is paid."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.calls import listing, posted
from tests.api.conftest import Client, NewClient
from tests.servers import serving
from tests.servers.fault_server import FaultServer

ITEMS = "\n".join(
    json.dumps(item)
    for item in (
        {"key": "sum", "prompt": "1 + 1?", "target": "2", "scorer": "numeric"},
        {"key": "pick", "prompt": "Which?", "choices": ["two words", "one"], "target": "one"},
        {"key": "twice", "prompt": "Which?", "choices": ["a", "b"], "target": "a"},
    )
)
SHOT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "Answer: 4"}]


@pytest.fixture
def faults() -> Iterator[tuple[FaultServer, str]]:
    server = FaultServer()
    with serving(server.app) as url:
        yield server, url


async def bank(client: Client, **settings: Any) -> None:
    body = {"name": "facts", "prompt": {"prefix": SHOT}, **settings}
    (await client.post("/v1/banks", json=body)).raise_for_status()
    await client.post("/v1/banks/facts/imports", json={"items": {"content": ITEMS}})


async def look(client: Client, item: str, **body: Any) -> dict[str, Any]:
    return await posted(client, f"/v1/banks/facts/items/{item}:preview", body, 200)


def endpoint(url: str, kind: str = "openai_chat", **settings: Any) -> dict[str, Any]:
    return {"kind": kind, "base_url": f"{url}/ok/v1", "model": "m", **settings}


async def test_a_preview_shows_what_is_really_sent_and_how_the_answer_is_marked(
    client: Client, faults: tuple[FaultServer, str]
) -> None:
    server, url = faults
    await bank(client, unparsed_policy="wrong")
    options = {"extra_body": {"top_k": 5}, "extra_headers": {"X-Title": "night"}}

    found = await look(client, "sum", endpoint=endpoint(url, options=options))

    (request,) = found["requests"]
    (call,) = server.calls
    assert request == {"url": f"{url}/ok/v1/chat/completions", "body": call.body}
    assert call.body["top_k"] == 5
    assert call.headers["x-title"] == "night"
    assert [turn["content"] for turn in call.body["messages"][:2]] == ["2 + 2?", "Answer: 4"]
    assert (found["mode"], found["shots"], found["scorer"]) == ("generate", 1, "numeric")
    assert found["target"] == ["2"]
    assert (found["answer"]["outcome"], found["answer"]["score"]) == ("unparsed", 0.0)
    assert found["answer"]["answer"]
    assert found["answer"]["attempts"] == 1
    assert await listing(client, "/v1/endpoints") == []


async def test_a_look_alone_sends_nothing(client: Client, faults: tuple[FaultServer, str]) -> None:
    server, url = faults
    await bank(client)
    prompt = {"shots": 0, "system": "Be brief."}
    found = await look(client, "sum", endpoint=endpoint(url), prompt=prompt, send=False)
    turns = found["requests"][0]["body"]["messages"]
    assert [turn["role"] for turn in turns] == ["system", "user"]
    assert found["answer"] is None
    assert server.calls == []


async def test_a_preview_of_likelihoods_shows_the_call_of_every_option(
    client: Client, faults: tuple[FaultServer, str]
) -> None:
    server, url = faults
    await bank(client)
    prompt = {"mode": "loglikelihood", "shots": 0}
    found = await look(client, "pick", endpoint=endpoint(url, "openai_completions"), prompt=prompt)
    prompts = ["Question: Which?\n\nAnswer: two words", "Question: Which?\n\nAnswer: one"]
    assert [request["body"]["prompt"] for request in found["requests"]] == prompts
    assert sorted(call.body["prompt"] for call in server.calls) == sorted(prompts)
    assert (found["answer"]["answer"], found["answer"]["score"]) == ("A", 0.0)  # longer in bytes
    assert [option["bytes"] for option in found["answer"]["method"]["options"]] == [9, 3]


async def test_a_scripted_endpoint_answers_though_nobody_is_called(client: Client) -> None:
    await bank(client)
    simulated = {"kind": "scripted", "model": "m", "options": {"theta": 30}}
    found = await look(client, "sum", endpoint=simulated)
    assert (found["requests"], found["answer"]["score"]) == ([], 1.0)


async def test_a_withheld_items_preview_is_only_for_bank_writers(
    client: Client, client_with: NewClient, faults: tuple[FaultServer, str]
) -> None:
    server, url = faults
    await bank(client, visibility="withheld")
    runner, reader = await client_with("read", "run"), await client_with("read")
    body = {"endpoint": endpoint(url), "send": False}
    path = "/v1/banks/facts/items/sum:preview"
    for refused in (await runner.post(path, json=body), await reader.post(path, json=body)):
        assert refused.status_code == 403
        assert "1 + 1" not in refused.text
    assert (await client.post(path, json=body)).status_code == 200
    assert server.calls == []


async def test_a_session_stores_a_hash_of_passed_on_parameters(client: Client) -> None:
    hashes = []
    await bank(client, unparsed_policy="wrong")
    parameters = {"parameters": {"content": "item,a,b,c,d\nsum,1,0,0,1\npick,1,0,0,1\n"}}
    (await client.post("/v1/banks/facts/imports", json=parameters)).raise_for_status()
    for top_k in (1, 2, 1):
        body = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
        inline = {**body, "options": {"extra_body": {"top_k": top_k}}}
        asked = {"bank": "facts", "endpoint": inline, "stopping": {"max_items": 1}}
        made = await posted(client, "/v1/sessions", asked)
        hashes.append(made["provenance"]["endpoint"]["parameters_hash"])
    assert hashes[0] == hashes[2] != hashes[1]
