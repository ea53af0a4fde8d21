"""The pages of sessions: one answered by hand from start to report, and its stream."""

import json
import re
from typing import Any

import pytest
from fastapi import FastAPI

from app.pages.live import Live
from app.reports.formats import percent, signed
from app.storage.database import Database
from tests.api.calls import answered, posted
from tests.api.conftest import Client
from tests.api.test_several_abilities import install
from tests.demo_bank import install_demo_bank
from tests.pages.browser import Browser
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page

N_ITEMS = 6
#: An option, and a number.
ANSWER = "A 12"


@pytest.fixture
async def by_hand(database: Database, client: Client) -> dict[str, Any]:
    """Start a session on the demo bank that waits for its first answer."""
    await install_demo_bank(database)
    body: dict[str, Any] = {
        "mode": "manual",
        "bank": "demo",
        "seed": 3,
        "stopping": {"max_items": N_ITEMS},
    }
    body["unparsed_policy"] = "wrong"  # so that every answer has a score
    return await posted(client, "/v1/sessions", {**body, "metadata": {"model": "mine"}}, 201)


async def answer(browser: Browser, path: str, text: str) -> str:
    """Answer the question on a session's page; return the next page."""
    page = Page((await browser.get(path)).text)
    hidden = {
        attributes["name"]: attributes["value"] or ""
        for tag, attributes in page.elements
        if tag == "input" and attributes.get("name") in ("csrf", "step_token")
    }
    sent = await browser.send_form(
        f"{path}/answer", csrf=hidden["csrf"] or "", step_token=hidden["step_token"] or "",
        response=text,
    )  # fmt: skip
    assert (sent.status_code, sent.headers["location"]) == (303, path), sent.text
    return (await browser.get(path)).text


def frames(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return ids and data of a stream's frames."""
    found = []
    for frame in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line)
        if fields.get("event") == "live":
            found.append((fields["id"], json.loads(fields["data"])))
    return found


async def test_a_test_by_hand_from_its_first_question_to_its_report(
    by_hand: dict[str, Any],
    browser_with: NewBrowser,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser, path = await browser_with("read", "run"), f"/sessions/{by_hand['id']}"
    first = (await browser.get(path)).text
    assert "None was asked yet" not in first
    assert "needs at least 5 scored answers" in first
    assert "not begun" not in first
    assert re.search("<noscript>.*>Load again<", first)
    for n in range(1, N_ITEMS):
        shown = await answer(browser, path, ANSWER)
        assert f"of {n} right, 1 pending" in shown
    ended = await answer(browser, path, ANSWER)
    Page(ended)
    for section in ("In short", "Before you rely on it", "How to read this", ">Continue<"):
        assert section in ended
    assert ANSWER in (await browser.get(f"{path}/steps/1")).text

    # A browser that was away since the first answer gets all it missed, then the end.
    stream = await browser.get(f"{path}/live?after=4")
    assert stream.headers["content-type"].startswith("text/event-stream")
    (last, frame), *more = frames(stream.text)
    assert not more
    assert frame["over"]
    assert [row["step"] for row in frame["rows"]] == list(range(2, N_ITEMS + 1))
    rows = re.findall(r"<tr><th scope=.row.>(.+?)</tr>", frame["parts"]["numbers"], re.DOTALL)
    assert [row.split("<")[0] for row in rows] == [str(n) for n in range(N_ITEMS, 0, -1)]
    assert "<td>-" in rows[-1]  # no result before five answers
    theta = (await client.get(f"/v1{path}")).json()["estimate"]["theta"]
    assert f"{signed(theta, 2)} after {N_ITEMS} answers" in frame["parts"]["course"]
    assert (await browser.get(f"{path}/live?after={last}")).status_code == 204
    # A restarted server without any state sends the same.
    monkeypatch.setattr("app.pages.routers.sessions._live", Live())
    assert frames((await browser.get(f"{path}/live?after=4")).text) == [(last, frame)]

    # Extended from its page, it continues.
    longer = await browser.form(f"{path}/extend", of=path, max_items="8")
    assert longer.status_code == 303, longer.text
    assert "7" in (await browser.get(longer.headers["location"])).text
    refused = await browser.form(f"{path}/extend", of=path, max_items="many")
    assert refused.status_code == 422
    assert "expected a number" in refused.text


async def test_answers_are_found_by_outcome_and_by_words(
    by_hand: dict[str, Any], browser_with: NewBrowser, client: Client
) -> None:
    browser, path = await browser_with("read", "run"), f"/sessions/{by_hand['id']}"
    for _ in range(N_ITEMS):
        await answer(browser, path, ANSWER)
    rows = (await client.get(f"/v1{path}/responses")).json()["data"]
    shown = (await browser.get(f"{path}/answers?only=wrong")).text
    wrong = [row["step"] for row in rows if row["score"] == 0.0]
    assert [row["step"] for row in rows if f'id="step-{row["step"]}"' in shown] == wrong
    assert all(f'href="{path}/steps/{step}"' in shown for step in wrong)
    unread = (await browser.get(f"{path}/answers?only=unparsed")).text
    steps = [row["step"] for row in rows if row["outcome"] == "unparsed"]
    assert [row["step"] for row in rows if f'id="step-{row["step"]}"' in unread] == steps
    assert "; right: <bdi><b>" in (await browser.get(f"{path}/answers?only=wrong")).text
    one = rows[2]
    shown = (await browser.get(f"{path}/answers?search={one['item_id'].upper()}")).text
    assert f'id="step-{one["step"]}"' in shown
    assert "None." in (await browser.get(f"{path}/answers?search=no+such+words")).text
    refused = await browser.get(f"{path}/answers?search=%00")
    assert (refused.status_code, "\0" in refused.text) == (422, False)
    assert (await browser.get(f"{path}/answers?only=odd")).status_code == 422
    between = (await browser.get(f"{path}/steps/3")).text
    assert f'href="{path}/steps/2" rel="prev"' in between
    assert f'href="{path}/steps/4" rel="next"' in between
    assert 'rel="next"' not in (await browser.get(f"{path}/steps/{N_ITEMS}")).text


async def test_expected_scores_by_several_abilities_are_those_of_the_report(
    app: FastAPI, browser_with: NewBrowser, client: Client
) -> None:
    await install(app.state.services)
    body = {"mode": "manual", "bank": "tasks", "stopping": {"se": None, "max_items": 8}}
    path = f"/sessions/{(await posted(client, '/v1/sessions', body, 201))['id']}"
    await answered(client, path[-30:], *({"score": float(n % 2)} for n in range(8)))
    items = (await client.get(f"/v1{path}/report")).json()["items"]
    reader = await browser_with("read")
    shown = (await reader.get(f"{path}/answers")).text
    told = [percent(item["expected"]) for item in items]
    assert re.findall("expected ([^;<]+);", shown) == told
    step = (await reader.get(f"{path}/steps/1")).text
    assert f"the shaded line is the model's ability, where {told[0]} is expected" in step
    assert "with the others as estimated" in step


async def test_actions_outside_the_scopes_of_a_key_are_hidden(
    by_hand: dict[str, Any], browser_with: NewBrowser
) -> None:
    path = f"/sessions/{by_hand['id']}"
    reader = await browser_with("read")
    shown = (await reader.get(path)).text
    for action in ("cancel", "pause", "answer"):
        assert f'action="{path}/{action}"' not in shown
    writer = await browser_with("read", "run")
    cancelled = await writer.form(f"{path}/cancel", of=path)
    assert cancelled.headers["location"] == path
    assert "cancelled" in (await writer.get(path)).text
    again = await writer.form(f"{path}/cancel", of=path)
    assert again.status_code == 409


async def test_hostile_names_are_text(
    by_hand: dict[str, Any], browser_with: NewBrowser, client: Client
) -> None:
    name = "<script>alert(1)</script>\u202e\"'&"
    body = {
        "bank": "demo",
        "endpoint": {"kind": "scripted", "model": name + "x" * 400, "name": name},
        "metadata": {"note": name * 10},
    }
    made = await posted(client, "/v1/sessions", body, 202)
    browser = await browser_with("read", "run")
    for path in ("/", "/sessions", f"/sessions/{made['id']}"):
        text = (await browser.get(path)).text
        assert "alert(1)" in text
        assert "<script>alert" not in text
        Page(text)
    await browser.form(f"/sessions/{made['id']}/cancel", of="/")
    assert "<script>alert" not in (await browser.get(f"/sessions/{made['id']}")).text
