"""With all items asked the score is known: in the session, on pages, in gates and leaderboards."""

from typing import Any

from app.reports.joins import HEADINGS
from tests.api.calls import answered, answered_by, posted
from tests.api.conftest import Client
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page

N_ITEMS = 8


async def begun(client: Client, bank: str, rows: str = "") -> dict[str, Any]:
    """Begin a session by hand on a bank, a new one if it gets parameters."""
    if rows:
        await posted(client, "/v1/banks", {"name": bank}, 201)
        await posted(client, f"/v1/banks/{bank}/imports", {"parameters": {"content": rows}}, 201)
    examinee = {"name": "mine", "kind": "model"}
    body = {"mode": "manual", "bank": bank, "examinee": examinee}
    session: dict[str, Any] = (await client.post("/v1/sessions", json=body)).json()
    return session


async def test_a_fully_asked_bank_has_a_score_without_interval(
    browser_with: NewBrowser, client: Client
) -> None:
    rows = "\n".join(["item,a,b,c,d", *(f"q{i},1,{i / 4 - 1},0,1" for i in range(N_ITEMS))])
    session = await begun(client, "small", rows)
    assert (session["design"]["preset"], session["design"]["concurrency"]) == ("score", 1)
    path, scores = f"/v1/sessions/{session['id']}", [{"score": float(n % 4 > 0)} for n in range(8)]
    before = (await answered(client, session["id"], *scores[:-1]))["score"]
    session = await answered(client, session["id"], scores[-1])

    assert before["interval"]["lo"] <= before["value"] <= before["interval"]["hi"]
    assert 1 <= before["equivalent_random_items"] <= N_ITEMS
    assert session["status"] == "completed"
    known = session["score"]
    assert (known["method"], known["value"], known["interval"]) == ("all_items", 0.75, None)
    assert known["equivalent_random_items"] == N_ITEMS
    progress = session["progress"]
    assert (progress["right"], progress["scored"], progress["mean"]) == (6, N_ITEMS, 0.75)
    assert session["precision_reached"] is True
    (row,) = (await client.get("/v1/banks/small/leaderboard")).json()["data"]
    assert (row["score"]["value"], row["score"]["interval"]) == (0.75, None)

    browser = await browser_with("read", "run")
    page = Page((await browser.get(f"/sessions/{session['id']}")).text).text
    assert "all questions were asked" in page
    assert "6 of 8 right" in page
    assert "A longer test would ask nothing. All 8 questions that may be asked" in page
    assert "Continue in a new test" not in page
    report = (await client.get(f"{path}/report")).json()
    assert report["score"]["interval"] is None
    assert any("scores 75.0 %" in said.replace("\u00a0", " ") for said in report["summary"])

    gate = {"session_id": session["id"], "threshold": "0.7"}
    made = await browser.form("/gates", of="/gates", **gate)
    assert "<h1>Go" in (await browser.get(made.headers["location"])).text
    decided = (await client.get(f"/v1{made.headers['location']}")).json()
    assert (decided["metric"], decided["outcome"]) == ("score", "go")

    # Ended before any answer: no result that could decide, and no open question.
    none = await begun(client, "small")
    await client.post(f"/v1/sessions/{none['id']}:cancel")
    undecided = await browser.form("/gates", of="/gates", **{**gate, "session_id": none["id"]})
    for path in ("/gates", undecided.headers["location"]):
        shown = Page((await browser.get(path)).text).text.lower()
        assert "error" in shown
        assert "inconclusive" not in shown


async def test_a_bank_page_says_that_answers_do_not_follow_its_parameters(
    browser_with: NewBrowser, client: Client
) -> None:
    rows = "\n".join(["item,a,b,c,d", *(f"q{i},2,{i / 10 - 2},0,1" for i in range(40))])
    session = await begun(client, "turned", rows)
    await answered_by(client, session["id"], lambda key: {"score": float(int(key[1:]) >= 20)})
    browser = await browser_with("read")
    page = Page((await browser.get(f"/banks/{session['bank']['id']}")).text).text
    assert HEADINGS["doubtful"] in page
