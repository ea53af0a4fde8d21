"""Matching over HTTP: which items of a client are in a bank."""

import hashlib
import json
from typing import Any

from tests.api.calls import got, posted, problem_of
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
    await posted(client, "/v1/banks", {"name": "own", **settings})
    for item in ITEMS:
        await posted(client, "/v1/banks/own/items", item)


MATCH = "/v1/banks/own/items:match"


async def test_items_are_matched_by_key_and_by_what_they_ask(client: Client) -> None:
    await made(client)
    hashes = [hash_of(item) for item in ITEMS]
    wanted = {"keys": ["q2", "no"], "content_hashes": [*hashes, "0" * 64]}
    found = await posted(client, MATCH, wanted, 200)
    assert found["matched"] == {
        "q2": ["q2"],
        **{one: [item["key"]] for one, item in zip(hashes, ITEMS, strict=True)},
    }
    assert found["missing"] == ["no", "0" * 64]
    stored = await got(client, "/v1/banks/own/items/q3")
    assert stored["content_hash"] == hashes[2]


async def test_items_of_a_withheld_bank_cannot_be_guessed(
    client: Client, client_with: NewClient
) -> None:
    await made(client, visibility="withheld")
    reader = await client_with("read", "run")
    guess = hash_of(ITEMS[0])
    await problem_of(reader, MATCH, {"content_hashes": [guess]}, 403, says="matched by key alone")
    # A hash given as a key beside that of the item reveals nothing either.
    found = await posted(reader, MATCH, {"keys": ["q1", guess]}, 200)
    assert (found["matched"], found["missing"]) == ({"q1": ["q1"]}, [guess])
    assert guess in (await posted(client, MATCH, {"content_hashes": [guess]}, 200))["matched"]


async def test_malformed_hashes_are_refused_with_a_pointer(client: Client) -> None:
    await made(client)
    wanted = {"content_hashes": ["0" * 64, "ABC"]}
    says = "expected a SHA-256 of 64 lower-case"
    await problem_of(client, MATCH, wanted, at="/content_hashes/1", says=says)
