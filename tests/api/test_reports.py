"""Reports of bank versions, and of sessions in any state, as JSON or page."""

from typing import Any

import pytest
from fastapi import Request

from app.api.downloads import preferred
from tests.api.calls import answered, bank_of, got, posted, refusal_of
from tests.api.conftest import Client

URL = "/v1/banks/sums/versions/latest/report"


@pytest.fixture
async def _bank(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "sums"})
    parameters = {"content": 'item,a,b,c,d\n"<i>q1",1.2,-0.3,0.25,1\nq2,-0.8,0.5,0,1\n'}
    await posted(client, "/v1/banks/sums/imports", {"parameters": parameters}, 201)


@pytest.mark.usefixtures("_bank")
async def test_a_report_is_json_by_default(client: Client) -> None:
    report = await got(client, URL)
    assert report["object"] == "version_report"
    assert report["identity"]["n_quarantined"] == 1
    assert report["flagged"][0]["reasons"][0][0] == "negative_slope"
    assert report["calibration"] is None
    assert any("1 question (items) in use" in sentence for sentence in report["summary"])


WANTED = [
    ("?format=html", "application/json", True),
    ("?format=json", "text/html", False),
    ("", "text/html,application/xhtml+xml,*/*;q=0.8", True),
    ("", "application/json, text/html;q=0.5", False),
    ("", "*/*", False),
    ("", "text/*", True),
    ("", "text/html;q=high", False),
]


@pytest.mark.usefixtures("_bank")
async def test_a_browser_gets_the_page(client: Client) -> None:
    for query, accept, is_page in WANTED:
        response = await client.get(URL + query, headers={"Accept": accept})
        assert response.status_code == 200, accept
        media_type = "text/html" if is_page else "application/json"
        assert response.headers["content-type"].partition(";")[0] == media_type
        assert response.headers["vary"] == "Accept"
        if is_page:
            assert "<h1>sums, version 1</h1>" in response.text
            assert "<i>" not in response.text.replace('<i class="key', "")
            policy = response.headers["content-security-policy"]
            assert policy == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.usefixtures("_bank")
async def test_a_report_of_nothing_is_a_problem(client: Client) -> None:
    nobody = "/v1/sessions/ses_01jd0000000000000000000000/report"
    for path in ("/v1/banks/none/versions/1/report", nobody):
        await refusal_of(client.get(path), 404)
    for path in (f"{URL}?format=pdf", f"{nobody}?format=pdf", "/v1/sessions/nonsense/report"):
        await refusal_of(client.get(path))


def test_the_first_media_type_wins_where_all_are_accepted() -> None:
    asked = Request({"type": "http", "headers": []})
    assert preferred(asked, "json", "html") == "json"


NASTY = "<i>&amp;</i>"
ITEMS = [
    {
        "key": f"q{n}{NASTY}",
        "prompt": f"{NASTY} {n} + 1 = ?",
        "target": str(n + 1),
        "scorer": "exact",
        "tags": [NASTY, f"tag-{n % 2}"],
    }
    for n in range(12)
]


async def started(client: Client, *, visibility: str = "open", **fields: Any) -> str:
    """Start a manual session that waits for its first answer; return its id."""
    numbers = "".join(f"q{n}{NASTY},1.2,{n / 4 - 1.5},0,1\n" for n in range(12))
    await bank_of(client, "sums", ITEMS, numbers, visibility=visibility)
    body: dict[str, Any] = {"mode": "manual", "bank": "sums", "seed": 1, **fields}
    body["stopping"] = {"se": None, "min_items": 1, "max_items": 10}
    body["metadata"] = {"model": f"mine {NASTY}"}
    return str((await posted(client, "/v1/sessions", body, 201))["id"])


async def page_of(client: Client, session_id: str) -> str:
    answer = await client.get(
        f"/v1/sessions/{session_id}/report", headers={"Accept": "text/html,*/*;q=0.8"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == "text/html"
    assert answer.headers["vary"] == "Accept"
    policy = answer.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "<i>" not in answer.text
    return answer.text


async def test_a_finished_test_has_a_report_as_json_and_as_a_page(client: Client) -> None:
    session_id = await started(client)
    right = {"score": 1.0, "text": "because"}
    await answered(client, session_id, {"response": NASTY}, {"outcome": "refused"}, *[right] * 8)

    response = await client.get(f"/v1/sessions/{session_id}/report")
    session = await got(client, f"/v1/sessions/{session_id}")

    assert response.status_code == 200, response.text
    assert response.headers["vary"] == "Accept"
    report = response.json()
    assert report["object"] == "session_report"
    assert report["identity"]["examinee"] == f"mine {NASTY}"
    assert report["estimate"] == session["estimate"]
    score = {name: report["score"][name] for name in ("value", "interval")}
    assert score == {name: session["score"][name] for name in score}
    assert report["score"]["below"] is None  # the reference models are unknown
    assert [item["outcome"] for item in report["items"]].count("refused") == 1
    assert report["items"][0]["question"].startswith(NASTY)
    given = {item["step"]: item["answer"] for item in report["items"]}
    assert given == {1: NASTY, 2: None, **dict.fromkeys(range(3, 11), "because")}
    assert {task["tag"] for task in report["tasks"]} == {"tag-0", "tag-1"}  # not a common tag
    last = report["trace"][-1]
    assert (last["answers"], last["theta"]) == (9, session["estimate"]["theta"])
    assert last["score"] == session["score"]["value"]
    page = await page_of(client, session_id)
    assert "mine &lt;i&gt;&amp;amp;&lt;/i&gt; on sums</h1>" in page
    assert "1 of 10 answers could not be scored (1 refused)" in page
    assert await got(client, f"/v1/sessions/{session_id}/report?format=json") == report


async def test_a_test_in_any_state_has_a_page(client: Client) -> None:
    waiting = await started(client)
    assert "has not answered any of the 12 questions" in await page_of(client, waiting)
    await answered(client, waiting, {"score": 1.0}, {"score": 0.0})
    assert "has so far answered 2 of the 12 questions" in await page_of(client, waiting)
    await answered(client, waiting, {"outcome": "error"})  # may be asked again
    items = (await got(client, f"/v1/sessions/{waiting}/report"))["items"]
    assert [item["target"] is None for item in items[:3]] == [False, False, True]
    assert {item["target"] for item in items if item["outcome"] is None} == {None}

    await client.post(f"/v1/sessions/{waiting}:cancel")
    assert "The test was cancelled." in await page_of(client, waiting)

    for copy, body, does in (
        ("replay", {"estimator": {"method": "mle"}}, "estimates again from"),
        ("rescore", {}, "scores again"),
    ):
        made = await posted(client, f"/v1/sessions/{waiting}:{copy}", body)
        assert f"{does} the answers of <code>{waiting}" in await page_of(client, made["id"])


async def test_a_test_that_failed_says_so(client: Client) -> None:
    failed = await started(client, failures={"max_consecutive": 3})
    await answered(client, failed, *[{"outcome": "error"}] * 3)
    page = await page_of(client, failed)
    assert "failed after 3 answers" in page
    assert "No score: no answer could be scored." in page
