"""Response sets over HTTP."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx2

from app.exchange.matrices import write_parquet
from app.exchange.responses import read_responses
from tests.api.conftest import Client
from tests.exchange.traps import TRAPS

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
    assert (await client.get("/v1/response-sets")).json()["data"] == [created]
    taken = await client.post("/v1/response-sets", json={"name": "arc"})
    assert (taken.status_code, taken.json()["code"]) == (409, "already_exists")
    bare = await client.delete("/v1/response-sets/arc")
    assert (bare.status_code, bare.json()["code"]) == (428, "precondition_required")
    stale = await client.delete("/v1/response-sets/arc", headers={"If-Match": '"2"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "precondition_failed")
    gone = await client.delete("/v1/response-sets/arc", headers={"If-Match": '"1"'})
    assert gone.status_code == 204
    assert (await client.get("/v1/response-sets/arc")).status_code == 404


async def test_answers_are_imported_with_a_report(client: Client) -> None:
    await made(client)
    url = "/v1/response-sets/arc/imports"
    dry = await client.post(url, json=text_file() | {"dry_run": True})
    assert dry.status_code == 200, dry.text
    assert (await client.get("/v1/response-sets/arc")).json()["n_answers"] == 0
    response = await client.post(url, json=text_file())
    assert response.status_code == 201, response.text
    report = response.json()
    assert (report["rows_read"], report["accepted"], report["skipped"]) == (3, 3, [])
    assert report["files"] == [{"name": "scores.csv", "format": "table", "rows_read": 3}]
    found = (await client.get("/v1/response-sets/arc")).json()
    assert report["response_set"] == found
    assert found["outcomes"]["scored"] == 3
    assert found["density"] == 0.75
    again = (await client.post(url, json=text_file("model,q1\nm1,0\n"))).json()
    (skipped,) = again["skipped"]
    assert (skipped["reason"], skipped["count"]) == ("conflict", 1)
    assert again["accepted"] == 0


async def test_binary_files_and_the_names_beside_them_come_in(client: Client) -> None:
    await made(client)
    row = {"doc_id": 0, "doc_hash": "h", "resps": [["x"]], "filter": "f", "metrics": ["acc"]}
    files = [
        {"name": "m/samples_t_2026-11-20T10-00-00.jsonl", "content": json.dumps(row | {"acc": 1})},
        {"name": "m/results_2026-11-20T10-00-00.json", "content": '{"model_name": "org/m"}'},
        {
            "name": "x.parquet",
            "content_base64": base64.b64encode(
                write_parquet(read_responses(SCORES.encode()))
            ).decode(),
        },
    ]
    response = await client.post("/v1/response-sets/arc/imports", json={"files": files})
    assert response.status_code == 201, response.text
    report = response.json()
    assert [file["format"] for file in report["files"]] == ["lm-eval", "table"]
    assert report["passed_over"] == ["m/results_2026-11-20T10-00-00.json"]
    matrix = (await client.get("/v1/response-sets/arc/matrix")).text
    assert matrix == "examinee,t/h,q1,q2\norg/m,1,,\nm1,,1,0\nm2,,,1\n"


async def test_the_matrix_is_given_out_in_every_format(client: Client) -> None:
    await made(client)
    await client.post("/v1/response-sets/arc/imports", json=text_file())
    url = "/v1/response-sets/arc/matrix"
    csv = await client.get(url)
    assert csv.headers["content-type"].startswith("text/csv")
    assert csv.text == "examinee,q1,q2\nm1,1,0\nm2,,1\n"
    assert csv.headers["content-disposition"].startswith('attachment; filename="arc.csv"')
    long = await client.get(url, params={"format": "long"})
    assert long.text == "examinee,item,score\nm1,q1,1\nm1,q2,0\nm2,q2,1\n"
    py_irt = await client.get(url, params={"format": "py-irt"})
    lines = (await client.get(url, params={"format": "jsonl"})).text.splitlines()
    assert py_irt.text.splitlines() == lines
    assert json.loads(lines[1]) == {"subject_id": "m2", "responses": {"q2": 1}}
    parquet = await client.get(url, params={"format": "parquet"})
    assert read_responses(parquet.content).items == ("q1", "q2")
    other = await client.get(url, params={"format": "xlsx"})
    assert other.status_code == 422
    await client.post("/v1/response-sets/arc/imports", json=text_file("model,q9\nm1,0.5\n"))
    partial = await client.get(url, params={"format": "jsonl"})
    assert (partial.status_code, partial.json()["code"]) == (422, "invalid_input")


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


async def test_an_import_that_makes_no_sense_is_refused_at_its_place(client: Client) -> None:
    await made(client)
    for body, pointer in SENSELESS:
        response = await client.post("/v1/response-sets/arc/imports", json=body)
        assert response.status_code == 422, (pointer, response.text)
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


async def test_a_needed_choice_is_asked_for(client: Client) -> None:
    await made(client)
    row = {"doc_id": 0, "resps": [["x"]], "metrics": ["a", "b"], "a": 1, "b": 0}
    body = text_file(json.dumps(row), "x.jsonl")
    refused = await client.post("/v1/response-sets/arc/imports", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_file")
    assert "a, b. Choose one metric" in refused.json()["detail"]
    taken = await client.post("/v1/response-sets/arc/imports", json=body | {"metrics": ["b"]})
    assert taken.status_code == 201


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    for call in (
        client.get("/v1/response-sets/none"),
        client.get("/v1/response-sets/none/matrix"),
        client.post("/v1/response-sets/none/imports", json=text_file()),
        client.delete("/v1/response-sets/none", headers={"If-Match": '"1"'}),
    ):
        response = await call
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_answers_of_sessions_are_collected_each_session_once(client: Client) -> None:
    await made(client, "live")
    parameters = [{"key": f"q{i}", "b": i / 3} for i in range(3)]
    assert (await client.post("/v1/banks", json={"name": "bank"})).status_code == 201
    lines = "\n".join(
        json.dumps({"key": f"q{i}", "prompt": f"{i}?", "target": "0"}) for i in range(4)
    )
    headers = {"content-type": "application/x-ndjson"}
    await client.post("/v1/banks/bank/items:batch", content=lines, headers=headers)
    await client.post("/v1/banks/bank/versions", json={"parameters": parameters})
    body = {
        "mode": "manual",
        "bank": "bank",
        "stopping": {"se": None, "min_items": 2, "max_items": 2},
        "pretest": {"items_per_session": 1},
    }
    session = (await client.post("/v1/sessions", json=body)).json()
    for _ in range(3):
        awaited = (await client.get(f"/v1/sessions/{session['id']}/next-item")).json()
        await client.post(
            f"/v1/sessions/{session['id']}/responses",
            json={"step_token": awaited["step_token"], "response": "0"},
        )

    first = await client.post("/v1/response-sets/live:collect", json={"bank": "bank"})
    second = await client.post("/v1/response-sets/live:collect", json={"bank": "bank"})

    assert first.status_code == 200, first.text
    report = first.json()
    assert (report["sessions"], report["accepted"], report["pretest_answers"]) == (1, 3, 1)
    assert report["response_set"]["n_answers"] == 3
    assert second.json()["sessions"] == 0
    assert second.json()["left_out"] == {"taken_before": 1}
    for wrong, status in (
        ({"bank": "none"}, 404),
        ({}, 422),
        ({"bank": "bank", "since": "x"}, 422),
    ):
        refused = await client.post("/v1/response-sets/live:collect", json=wrong)
        assert refused.status_code == status


async def test_no_trap_of_any_format_becomes_a_wrong_answer(client: Client) -> None:
    for number, trap in enumerate(TRAPS):
        name = f"trap-{number}"
        await made(client, name)
        files = [
            {"name": path, "content_base64": base64.b64encode(content).decode()}
            for path, content in trap.files.items()
        ]
        body = {"files": files, **trap.choices}
        for dry in (True, False):
            url = f"/v1/response-sets/{name}/imports"
            response = await client.post(url, json=body | {"dry_run": dry})
            if trap.refusal is not None:
                assert response.status_code == 422, trap.name
                assert trap.refusal in response.text.replace("\\\\", "\\"), trap.name
                continue
            assert response.status_code == (200 if dry else 201), (trap.name, response.text)
            report = response.json()
            counts = {outcome: n for outcome, n in report["outcomes"].items() if n}
            assert counts == trap.outcomes, trap.name
            skipped = {entry["reason"]: entry["count"] for entry in report["skipped"]}
            assert skipped == trap.skipped, trap.name
            assert all(entry["places"] for entry in report["skipped"]), trap.name
        stored = (await client.get(f"/v1/response-sets/{name}")).json()
        kept = {outcome: n for outcome, n in stored["outcomes"].items() if n}
        assert kept == ({} if trap.refusal is not None else trap.outcomes), trap.name


async def test_real_lm_eval_files_ask_for_a_metric_and_then_come_in(
    client: Client, shared_data: Path
) -> None:
    await made(client, "real")
    files = [
        {"name": path.name, "content": path.read_text(encoding="utf-8")}
        for path in sorted((shared_data / "lm_eval").iterdir())
    ]
    url = "/v1/response-sets/real/imports"
    refused = await client.post(url, json={"files": files})
    assert refused.status_code == 422
    assert "acc, acc_norm. Choose one metric" in refused.json()["detail"]
    body = {"files": files, "metrics": ["acc_norm", "exact_match"], "examinee": "llama"}
    taken = await client.post(url, json=body)
    assert taken.status_code == 201, taken.text
    assert taken.json()["outcomes"]["scored"] == 24
    assert (taken.json()["new_examinees"], taken.json()["new_items"]) == (1, 24)
