"""Matching over HTTP: which items of a client are in a bank."""

import hashlib
import json
from typing import Any

from tests.api.conftest import Client, NewClient

ITEMS: list[dict[str, Any]] = [
    {"key": "q1", "prompt": "2 + 2 = ?", "target": ["4"]},
    {"key": "q2", "prompt": "Which?", "choices": ["a", "b"], "target": ["b"]},
    {"key": "q3", "messages": [{"role": "user", "content": "Hé?"}], "target": ["x"]},
]


def hash_of(item: dict[str, Any]) -> str:
    """Compute the hash as the API describes it."""
    messages = [[turn["role"], turn["content"]] for turn in item.get("messages", [])]
    parts = [item.get("prompt"), messages, item.get("choices", []), item["target"]]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


async def made(client: Client, **settings: Any) -> None:
    assert (await client.post("/v1/banks", json={"name": "own", **settings})).status_code == 201
    for item in ITEMS:
        assert (await client.post("/v1/banks/own/items", json=item)).status_code == 201


async def match(client: Client, status: int = 200, **wanted: list[str]) -> dict[str, Any]:
    reply = await client.post("/v1/banks/own/items:match", json=wanted)
    assert reply.status_code == status, reply.text
    found: dict[str, Any] = reply.json()
    return found


async def test_items_are_matched_by_key_and_by_what_they_ask(client: Client) -> None:
    await made(client)
    hashes = [hash_of(item) for item in ITEMS]
    found = await match(client, keys=["q2", "no"], content_hashes=[*hashes, "0" * 64])
    assert found["matched"] == {
        "q2": ["q2"],
        **{one: [item["key"]] for one, item in zip(hashes, ITEMS, strict=True)},
    }
    assert found["missing"] == ["no", "0" * 64]
    stored = (await client.get("/v1/banks/own/items/q3")).json()
    assert stored["content_hash"] == hashes[2]


async def test_items_of_a_withheld_bank_cannot_be_guessed(
    client: Client, client_with: NewClient
) -> None:
    await made(client, visibility="withheld")
    reader = await client_with("read", "run")
    guess = hash_of(ITEMS[0])
    refused = await match(reader, 403, content_hashes=[guess])
    assert "matched by key alone" in refused["detail"]
    # A hash given as a key beside that of the item reveals nothing either.
    found = await match(reader, keys=["q1", guess])
    assert (found["matched"], found["missing"]) == ({"q1": ["q1"]}, [guess])
    assert guess in (await match(client, content_hashes=[guess]))["matched"]


async def test_malformed_hashes_are_refused_with_a_pointer(client: Client) -> None:
    await made(client)
    refused = await match(client, 422, content_hashes=["0" * 64, "ABC"])
    (error,) = refused["errors"]
    assert error["pointer"] == "/content_hashes/1"
    assert error["detail"].startswith("expected a SHA-256 of 64 lower-case")
