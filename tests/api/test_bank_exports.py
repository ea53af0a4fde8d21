"""Exports of bank versions over HTTP."""

import asyncio
import json

import pytest

from app.engine.bank import ItemBank
from app.exchange.bank_files import BankFormat, write_bank
from tests.api.calls import bank_of, posted
from tests.api.conftest import Client, NewClient

ITEMS = [
    {"key": "q1", "prompt": "2 + 2 = ?", "choices": ["3", "4"], "target": ["4"]},
    {"key": "q2", "prompt": "ünï\ncode", "target": ["x"], "tags": ["t"], "scorer": "exact"},
    {"key": "q3", "prompt": "not calibrated yet", "target": ["y"]},
]


async def fill(client: Client, **fields: str) -> None:
    await bank_of(client, "süms", ITEMS, "q1,1.2,-0.3,0.25,1\nq2,-0.8,0.5,0,1\n", **fields)


async def export(client: Client, file_format: str) -> str:
    response = await client.get(f"/v1/banks/süms/versions/1/export?format={file_format}")
    assert response.status_code == 200, response.text
    return response.text


async def test_a_version_comes_as_a_file_with_its_type_and_name(client: Client) -> None:
    await fill(client)
    expected = {
        "mirt": ("text/csv", "s_ms-v1.mirt.csv"),
        "csv": ("text/csv", "s_ms-v1.csv"),
        "py-irt": ("application/json", "s_ms-v1.py-irt.json"),
        "parquet": ("application/vnd.apache.parquet", "s_ms-v1.parquet"),
        "jsonl": ("application/x-ndjson", "s_ms-v1.jsonl"),
    }
    for file_format, (media_type, name) in expected.items():
        url = f"/v1/banks/süms/versions/latest/export?format={file_format}"
        response = await client.get(url)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].partition(";")[0] == media_type
        disposition = response.headers["content-disposition"]
        assert disposition.startswith(f'attachment; filename="{name}"')
        assert "filename*=UTF-8''s%C3%BCms-v1." in disposition
        held = await client.get(url, headers={"If-None-Match": response.headers["etag"]})
        assert held.status_code == 304
    assert await export(client, "csv") == (
        "item,a,b,c,d\nq1,1.2,-0.3,0.25,1.0\nq2,-0.8,0.5,0.0,1.0\n"
    )


async def test_concurrent_requests_for_a_file_write_it_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client)
    written = []

    def write(bank: ItemBank, file_format: BankFormat, statuses: list[str]) -> bytes:
        written.append(file_format)
        return write_bank(bank, file_format, statuses)

    monkeypatch.setattr("app.services.banks.files.write_bank", write)
    together = await asyncio.gather(*(export(client, "csv") for _ in range(3)))
    assert {*together, await export(client, "csv")} == {together[0]}
    assert await export(client, "mirt") != together[0]
    assert written == ["csv", "mirt"]


async def test_a_file_of_many_pages_holds_each_item_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.repositories.versions.STREAMED", 1)
    await fill(client)
    whole = await export(client, "jsonl")
    assert [json.loads(line)["key"] for line in whole.splitlines()] == ["q1", "q2", "q3"]
    monkeypatch.setattr("app.services.banks.files._PAGE", 1)
    assert await asyncio.gather(*(export(client, "jsonl") for _ in range(3))) == [whole] * 3


async def test_lines_hold_content_and_parameters_and_make_the_same_bank(client: Client) -> None:
    await fill(client)
    content = await export(client, "jsonl")
    lines = [json.loads(line) for line in content.splitlines()]
    assert lines[0] == ITEMS[0] | {"a": 1.2, "b": -0.3, "intercept": 0.36, "c": 0.25, "d": 1.0}
    assert lines[2] == ITEMS[2]
    await client.post("/v1/banks", json={"name": "copy"})
    copied = await posted(
        client, "/v1/banks/copy/imports", {"items": {"content": content}, "scale": "s"}, 201
    )
    assert copied["version"]["lint"]["items"] == {"active": 1, "quarantined": 1, "pretest": 1}
    again = await client.get("/v1/banks/copy/versions/1/export?format=jsonl")
    assert again.text == content


async def test_content_of_a_withheld_bank_is_for_writers_alone(
    client: Client, client_with: NewClient
) -> None:
    await fill(client, visibility="withheld")
    reader = await client_with("read")
    shown = await reader.get("/v1/banks/süms/versions/1/export?format=jsonl")
    assert [sorted(json.loads(line)) for line in shown.text.splitlines()] == [
        ["a", "b", "c", "d", "intercept", "key"],
        ["a", "b", "c", "d", "intercept", "key", "tags"],
        ["key"],
    ]
    whole = await client.get("/v1/banks/süms/versions/1/export?format=jsonl")
    assert "2 + 2" in whole.text
    assert whole.headers["etag"] != shown.headers["etag"]
    assert await export(reader, "csv") == await export(client, "csv")
