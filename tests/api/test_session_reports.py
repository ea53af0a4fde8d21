"""Reports of sessions over HTTP, in any state and as JSON or page."""

from typing import Any

from tests.api.calls import answered, bank_of, got, posted, refusal_of
from tests.api.conftest import Client

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


async def test_a_report_of_nothing_is_a_problem(client: Client) -> None:
    nobody = "/v1/sessions/ses_01jd0000000000000000000000/report"
    await refusal_of(client.get(nobody), 404)
    await refusal_of(client.get(f"{nobody}?format=pdf"))
    await refusal_of(client.get("/v1/sessions/nonsense/report"))
