"""Response sets over HTTP."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx2

from app.exchange.response_files import write_parquet
from app.exchange.responses import read_responses
from app.storage.identifiers import new_id
from tests.api.calls import got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client

SCORES = "model,q1,q2\nm1,1,0\nm2,,1\n"


async def made(client: Client, name: str = "arc", **fields: Any) -> httpx2.Response:
    response = await client.post("/v1/response-sets", json={"name": name, **fields})
    assert response.status_code == 201, response.text
    return response


def text_file(content: str = SCORES, name: str = "scores.csv") -> dict[str, Any]:
    return {"files": [{"name": name, "content": content}]}


async def test_a_set_is_made_read_listed_and_deleted(client: Client) -> None:
    response = await made(client, description="d", metadata={"k": "v"})
    created = response.json()
    assert response.headers["location"] == f"/v1/response-sets/{created['id']}"
    assert (created["n_examinees"], created["n_answers"], created["density"]) == (0, 0, None)
    for reference in (created["id"], "arc"):
        read = await client.get(f"/v1/response-sets/{reference}")
        assert read.json() == created
        assert read.headers["etag"] == '"1"'
    assert await listing(client, "/v1/response-sets") == [created]
    await problem_of(client, "/v1/response-sets", {"name": "arc"}, 409, "already_exists")
    await refusal_of(client.delete("/v1/response-sets/arc"), 428, "precondition_required")
    stale = client.delete("/v1/response-sets/arc", headers={"If-Match": '"2"'})
    await refusal_of(stale, 412, "precondition_failed")
    gone = await client.delete("/v1/response-sets/arc", headers={"If-Match": '"1"'})
    assert gone.status_code == 204
    assert (await client.get("/v1/response-sets/arc")).status_code == 404


async def test_answers_are_imported_with_a_report(client: Client) -> None:
    await made(client)
    url = "/v1/response-sets/arc/imports"
    trial = text_file() | {"dry_run": True}
    await posted(client, url, trial, 200)
    await posted(client, "/v1/response-sets/new/imports", trial, 200)
    gone = f"/v1/response-sets/{new_id('rsp')}/imports"
    await problem_of(client, gone, trial, 404, "not_found")
    assert (await got(client, "/v1/response-sets/arc"))["n_answers"] == 0
    report = await posted(client, url, text_file(), 201)
    assert (report["rows_read"], report["accepted"], report["skipped"]) == (3, 3, [])
    assert report["files"] == [{"name": "scores.csv", "format": "table", "rows_read": 3}]
    found = await got(client, "/v1/response-sets/arc")
    assert report["response_set"] == found
    assert found["outcomes"]["scored"] == 3
    assert found["density"] == 0.75
    again = await posted(client, url, text_file("model,q1\nm1,0\n"))
    (skipped,) = again["skipped"]
    assert (skipped["reason"], skipped["count"], again["accepted"]) == ("conflict", 1, 0)
    assert skipped["places"]


async def test_binary_files_and_the_names_beside_them_come_in(client: Client) -> None:
    await made(client)
    packed = write_parquet(read_responses(SCORES.encode()))
    row = {"doc_id": 0, "doc_hash": "h", "resps": [["x"]], "filter": "f", "metrics": ["acc"]}
    files = [
        {"name": "m/samples_t_2026-11-20T10-00-00.jsonl", "content": json.dumps(row | {"acc": 1})},
        {"name": "m/results_2026-11-20T10-00-00.json", "content": '{"model_name": "org/m"}'},
        {"name": "x.parquet", "content_base64": base64.b64encode(packed).decode()},
    ]
    report = await posted(client, "/v1/response-sets/arc/imports", {"files": files}, 201)
    assert [file["format"] for file in report["files"]] == ["lm-eval", "table"]
    assert report["passed_over"] == ["m/results_2026-11-20T10-00-00.json"]
    matrix = (await client.get("/v1/response-sets/arc/matrix")).text
    assert matrix == "examinee,t/h,q1,q2\norg/m,1,,\nm1,,1,0\nm2,,,1\n"


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({}, "/files"),
    ({"files": []}, "/files"),
    ({"files": [{"name": "x"}]}, "/files/0"),
    ({"files": [{"name": "x", "content": "a", "content_base64": "YWJj"}]}, "/files/0"),
    ({"files": [{"name": "x", "content_base64": "a?b="}]}, "/files/0/content_base64"),
    ({"files": [{"name": "x", "content_base64": "abcé"}]}, "/files/0/content_base64"),
    ({"files": [{"name": "x", "content_base64": "YQ==YWJj"}]}, "/files/0/content_base64"),
    (text_file("model,q1\nm1,2\n"), "scores.csv:2:q1"),
    (text_file() | {"format": "excel"}, "/format"),
    (text_file() | {"no_answer": "right"}, "/no_answer"),
    (text_file() | {"metrics": [""]}, "/metrics/0"),
    (text_file() | {"score_range": [0.0]}, "/score_range"),
]


async def test_an_invalid_import_is_refused_with_its_place(client: Client) -> None:
    await made(client)
    for body, pointer in SENSELESS:
        await problem_of(client, "/v1/response-sets/arc/imports", body, at=pointer)


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    for call in (
        client.get("/v1/response-sets/none"),
        client.get("/v1/response-sets/none/matrix"),
        client.post("/v1/response-sets/none/imports", json=text_file()),
        client.delete("/v1/response-sets/none", headers={"If-Match": '"1"'}),
    ):
        await refusal_of(call, 404, "not_found")


async def test_real_lm_eval_files_ask_for_a_metric(client: Client, shared_data: Path) -> None:
    await made(client, "real")
    files = [
        {"name": path.name, "content": path.read_text(encoding="utf-8")}
        for path in sorted((shared_data / "lm_eval").iterdir())
    ]
    url = "/v1/response-sets/real/imports"
    await problem_of(client, url, {"files": files}, says="'acc', 'acc_norm'. Choose one metric")
    body = {"files": files, "metrics": ["acc_norm", "exact_match"], "examinee": "llama"}
    taken = await posted(client, url, body, 201)
    assert taken["outcomes"]["scored"] == 24
    assert (taken["new_examinees"], taken["new_items"]) == (1, 24)
