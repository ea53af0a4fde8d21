"""Exports of bank versions, and of sessions in the format of Every Eval Ever."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from app.engine.bank import ItemBank
from app.exchange.bank_files import BankFormat, write_bank
from tests.api.calls import answered, bank_of, got, posted, refusal_of
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


async def test_a_file_is_written_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_file_of_many_pages_is_whole(
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


async def test_withheld_content_is_for_writers_alone(
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


SUMS = [
    {"key": f"q{n}", "prompt": f"{n} + 1 = ?", "target": str(n + 1), "scorer": "exact"}
    for n in range(8)
]


async def session_of(
    client: Client, *answers: dict[str, Any], visibility: str = "open", **said: Any
) -> str:
    numbers = "".join(f"q{n},1.2,{n - 1.5},0,1\n" for n in range(8))
    await bank_of(client, "sums", SUMS, numbers, visibility=visibility)
    stopping = {"se": None, "min_items": 1, "max_items": max(len(answers), 1)}
    body = {"mode": "manual", "bank": "sums", "stopping": stopping, "seed": 1}
    body |= {"metadata": {"model": "org/mine"}, **said}
    identifier: str = (await posted(client, "/v1/sessions", body, 201))["id"]
    await answered(client, identifier, *answers)
    return identifier


async def test_a_session_becomes_an_object_and_a_line_for_each_scored_item(client: Client) -> None:
    answers = ({"response": "2"}, {"outcome": "refused"}, *4 * ({"score": 1.0},))
    identifier = await session_of(client, *answers)
    url = f"/v1/sessions/{identifier}/export"
    whole = await client.get(url)
    lines = await client.get(url, params={"format": "eee-items"})
    assert whole.headers["content-type"] == "application/json"
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert f'filename="{identifier}.eee.jsonl"' in lines.headers["content-disposition"]

    document = whole.json()
    session = await got(client, f"/v1/sessions/{identifier}")
    assert document["model_info"] == {"name": "org/mine", "id": "org/mine"}
    assert document["eval_library"]["name"] == "sextant"
    accuracy, theta = document["evaluation_results"]
    assert accuracy["score_details"]["score"] == session["score"]["value"]
    assert theta["score_details"]["score"] == session["estimate"]["theta"]
    assert theta["score_details"]["details"]["not_scored_refused"] == "1"
    # The warnings of its page are exported with the figures.
    left_out = "17 % of the answers have no score: "
    for result, room in ((accuracy, "the lower end of the score's"), (theta, "ability and its")):
        assert f"{left_out}{room}" in result["score_details"]["details"]["caution"]
    interval = theta["score_details"]["uncertainty"]["confidence_interval"]
    told = {"lo": interval["lower"], "hi": interval["upper"], "level": 0.95}
    assert told == session["estimate"]["interval"]
    details = document["detailed_evaluation_results"]
    assert details["checksum"] == hashlib.sha256(lines.content).hexdigest()
    assert details["total_rows"] == 5

    rows = [json.loads(line) for line in lines.text.splitlines()]
    assert [row["evaluation_id"] for row in rows] == [document["evaluation_id"]] * 5
    assert {row["evaluation_result_id"] for row in rows} == {accuracy["evaluation_result_id"]}
    first = rows[0]
    number = int(first["sample_id"][1:])
    asked = {"raw": f"{number} + 1 = ?", "reference": [str(number + 1)]}
    assert first["input"] == {**asked, "choices": None}
    expected = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    assert first["sample_hash"] == expected
    assert first["output"]["raw"] == ["2"]
    assert first["evaluation"]["is_correct"] == (first["evaluation"]["score"] == 1.0)
    assert rows[1]["output"]["raw"] == []


async def test_withheld_content_is_not_exported(client: Client, client_with: NewClient) -> None:
    identifier = await session_of(client, {"response": "2"}, visibility="withheld")
    reader = await client_with("read")
    url = f"/v1/sessions/{identifier}/export?format=eee-items"
    shown, whole = await got(reader, url), await got(client, url)
    assert (shown["input"], shown["sample_hash"]) == ({"raw": "", "reference": []}, None)
    assert whole["input"]["raw"].endswith(" + 1 = ?")
    assert shown["evaluation"] == whole["evaluation"]


@pytest.mark.parametrize("query", ["", "?format=eee-items"])
async def test_a_running_session_is_not_exported(client: Client, query: str) -> None:
    identifier = await session_of(client)
    await refusal_of(client.get(f"/v1/sessions/{identifier}/export{query}"), 409, "invalid_state")


@pytest.mark.parametrize(("answer", "n_rows"), [({"outcome": "error"}, 0), ({"score": 1.0}, 1)])
async def test_no_score_is_no_result(client: Client, answer: dict[str, Any], n_rows: int) -> None:
    url = f"/v1/sessions/{await session_of(client, answer)}/export"
    document = await got(client, url)
    assert document["evaluation_results"] == []
    assert document["detailed_evaluation_results"]["total_rows"] == n_rows
    lines = (await client.get(f"{url}?format=eee-items")).text
    assert (len(lines.splitlines()), "evaluation_result_id" in lines) == (n_rows, False)


async def test_an_examinee_without_a_model_is_exported_by_its_name(client: Client) -> None:
    identifier = await session_of(
        client, *[{"score": 1.0}] * 5, examinee={"name": "clara"}, metadata={}
    )
    document = await got(client, f"/v1/sessions/{identifier}/export")
    assert document["model_info"]["name"] == "clara"
