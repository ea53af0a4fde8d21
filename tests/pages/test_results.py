"""Results side by side: the first page, two compared sessions, and the leaderboard."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI

from app.pages.model_results import last_results, namesakes
from app.records.sessions import Provenance, SessionRecord
from app.services.container import Services
from app.services.visibility import View
from app.storage.database import Database
from tests.api.calls import answered, answered_by, posted
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page
from tests.services.sessions import until

#: Items of every session; all are the same, as the whole bank is asked.
_TARGETS = {"q0": "0", "q1": "2", "q2": "4", "q3": "6", "q4": "8", "q5": "10"}


async def _bank(client: Client, visibility: str) -> None:
    await posted(
        client,
        "/v1/banks",
        {"name": "sums", "default_scorer": {"name": "exact"}, "visibility": visibility},
        201,
    )
    lines = [
        f'{{"key": "{key}", "prompt": "twice {n} <i>makes</i>?", "target": "{target}"}}'
        for n, (key, target) in enumerate(_TARGETS.items())
    ]
    body = {"items": {"name": "i.jsonl", "content": "\n".join(lines)}, "provisional": True}
    await posted(client, "/v1/banks/sums/imports", body)


async def _answered(client: Client, wrong: set[str], **more: Any) -> str:
    body: dict[str, Any] = {"mode": "manual", "bank": "sums", "stopping": {"max_items": 6}} | more
    made = await posted(client, "/v1/sessions", {**body, "unparsed_policy": "wrong"}, 201)
    await answered_by(
        client, made["id"], lambda key: {"response": "none" if key in wrong else _TARGETS[key]}
    )
    return str(made["id"])


@pytest.mark.parametrize("visibility", ["open", "withheld"])
async def test_improvements_and_regressions_are_shown_with_their_texts(
    database: Database, browser_with: NewBrowser, client: Client, visibility: str
) -> None:
    await _bank(client, visibility)
    older = await _answered(client, {"q0", "q1"})
    newer = await _answered(client, {"q1", "q2", "q3"})
    reader = await browser_with("read")
    assert f'value="{older}" form="pair"' in (await reader.get("/sessions")).text
    # The older session is the baseline, whatever the order of selection.
    text = (await reader.get(f"/compare?session={newer}&session={older}")).text
    Page(text)
    assert text.index(f'href="/sessions/{older}"') < text.index(f'href="/sessions/{newer}"')
    worse, _, better = text.partition("<h2>Worsened in the second")[2].partition("<h2>Improved")
    told = [key for key in _TARGETS if f">{key}<" in worse]
    assert told == ["q2", "q3"]
    assert [key for key in _TARGETS if f">{key}<" in better] == ["q0"]
    assert "by ability" not in text.partition("All figures")[0]
    assert "the verdict by ability assumes" in text.partition("All figures")[2]
    assert ("twice 2 &lt;i&gt;makes" in worse) == (visibility == "open")
    assert "twice" not in text or visibility == "open"
    again = await _answered(client, {"q0", "q1"})
    alike = (await reader.get(f"/compare?first={older}&second={again}")).text
    assert alike.count("<p>None of the questions that both answered.</p>") == 2


async def test_a_comparison_needs_exactly_two_selected_sessions(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    await _bank(client, "open")
    tests = [await _answered(client, set()) for _ in range(3)]
    reader = await browser_with("read")
    three = (await reader.get("/compare?" + "&".join(f"session={one}" for one in tests))).text
    assert "Two tests are compared; 3 were ticked." in three
    one = (await reader.get(f"/compare?session={tests[0]}")).text
    assert "Compare it with" in one
    assert f"/compare?first={tests[0]}&amp;second={tests[1]}" in one
    none = (await reader.get("/compare")).text
    assert none.count('form="pair"') == 3
    assert (await reader.get("/compare?session=ses_1")).status_code == 422


async def test_only_sides_of_equal_names_are_told_apart_by_their_place(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    worse, alike = [await _by_hand(client, "twin", *[0.0] * 20) for _ in range(2)]
    better = await _by_hand(client, "twin", *[1.0] * 20)
    other = await _by_hand(client, "other", *[1.0] * 20)
    reader = await browser_with("read")

    async def verdict(first: str, second: str) -> str:
        text = (await reader.get(f"/compare?first={first}&second={second}")).text
        said = text.partition('<p class="verdict">')[2].partition("</p>")[0]
        return re.sub("<[^>]+>", "", said)

    twin, alone = "twin (self-reported)", "other (self-reported)"
    assert f"{twin} (second) beats {twin} (first) by " in await verdict(worse, better)
    assert f"{twin} (first) beats {twin} (second) by " in await verdict(better, worse)
    assert f"{alone} beats {twin} by " in await verdict(worse, other)
    tied = f"{twin} (first) and {twin} (second) are statistically tied"
    assert tied in await verdict(worse, alike)


async def test_the_first_page_shows_the_last_result_of_each_model_the_best_first(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    reader = await browser_with("read")
    assert "What to do first" in (await reader.get("/")).text
    await _bank(client, "open")
    good, bad = ({"examinee": {"name": name, "kind": "model"}} for name in ("good", "bad"))
    replaced = await _answered(client, set(), **bad)
    best = await _answered(client, {"q0"}, **good)
    worst = await _answered(client, {"q0", "q1"}, **bad)
    text = (await reader.get("/")).text
    Page(text)
    assert 0 < text.index(f"/sessions/{best}") < text.index(f"/sessions/{worst}")
    assert replaced not in text
    assert 'href="/sessions/new"' not in text  # the key may not run sessions
    assert 'href="/sessions/new"' in (await (await browser_with("read", "run")).get("/")).text


async def test_no_page_links_to_a_deleted_bank(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await _bank(client, "open")
    old = await _answered(client, {"q0"}, examinee={"name": "good", "kind": "model"})
    kept = await client.get("/v1/banks/sums")
    tag = {"If-Match": kept.headers["etag"]}
    assert (await client.delete("/v1/banks/sums", headers=tag)).is_success
    await _bank(client, "open")
    await _answered(client, {"q0"}, examinee={"name": "good", "kind": "model"})
    reader = await browser_with("read", "run")
    first = (await reader.get("/")).text
    headings = re.findall("<h3>(.*?)</h3>", first)
    assert len(headings) == 2
    assert [">deleted<" in heading for heading in headings] == [False, True]
    for path in ("/", "/sessions", f"/sessions/{old}", f"/sessions/{old}/steps/1"):
        links = [
            found["href"]
            for tag, found in Page((await reader.get(path)).text).elements
            if tag == "a"
        ]
        assert {
            link: (await reader.get(link)).status_code for link in links if link
        } == dict.fromkeys(filter(None, links), 200)


async def _by_hand(client: Client, name: str, *given: float, **design: Any) -> str:
    """Return the id of an ended session of this agent, one of whose answers has no score."""
    agent = {"examinee": {"name": name, "kind": "agent"}}
    scores = [{"score": score} for score in given or (1.0, 0.0, 1.0, 1.0, 0.0)]
    stopping = {"score_margin": None, "max_items": len(scores) + 1}
    body = {"mode": "manual", "bank": "demo", **agent, "stopping": stopping, **design}
    made = await posted(client, "/v1/sessions", body, 201)
    ended = await answered(client, made["id"], *scores, {"outcome": "refused"})
    assert ended["status"] == "completed"
    return str(made["id"])


async def test_a_banks_page_places_the_results_of_its_leaderboard(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    await _by_hand(client, "m", *([1.0, 0.0, 1.0] * 8))
    await _by_hand(client, "m", *([1.0, 0.0, 0.0] * 2))
    # The score of a part of the bank is not ranked.
    await _by_hand(client, "part", *([1.0, 0.0] * 6), selection={"target": {"dates": 1.0}})
    (row,) = (await client.get("/v1/banks/demo/leaderboard")).json()["data"]
    reader = await browser_with("read")
    bank, session = [
        re.findall(r'class="end aside">([^<]*)<', (await reader.get(path)).text)
        for path in ("/banks/demo", f"/sessions/{row['session_id']}")
    ]
    assert bank == session


def _notes(text: str) -> dict[str, list[str]]:
    """Return by session the notes below its name."""
    return {
        found[1]: re.findall(r'<div class="note">(.*?)</div>', row)
        for row in text.split("<tr")
        if (found := re.search(r'<th scope="row" class="name"><a href="/sessions/(\w+)">', row))
    }


async def test_models_with_equal_names_show_differences_and_notes(
    database: Database, browser_with: NewBrowser, client: Client, working: Services
) -> None:
    await install_demo_bank(database)
    by_hand, alone = [await _by_hand(client, name) for name in ("twin", "alone")]
    endpoint = {"kind": "scripted", "name": "twin", "model": "<i>", "options": {"theta": 0.5}}
    stopping = {"score_margin": None, "max_items": 6}
    body = {"bank": "demo", "endpoint": endpoint, "stopping": stopping}
    made = await posted(client, "/v1/sessions", body, 202)
    await until(working, made["id"])
    reader = await browser_with("read")
    text = (await reader.get("/banks/demo/leaderboard")).text
    Page(text)
    hand = ["self-reported agent"]
    assert _notes(text) == {by_hand: hand, alone: hand, made["id"]: ["model &lt;i&gt;"]}
    assert text.count("provisional parameters") == 1
    first_page = (await reader.get("/")).text
    assert _notes(first_page) == {by_hand: [], alone: [], made["id"]: ["model &lt;i&gt;"]}
    beside = f"/compare?first={by_hand}&second={alone}"
    lists = [(await reader.get(path)).text for path in ("/sessions", "/compare", beside)]
    for shown in (text, first_page, *lists):
        assert len(re.findall(r'title="[^"]* ±\d+\.\d points\.">trust: poor<', shown)) >= 2


async def test_only_what_distinguishes_equal_names_is_shown(
    database: Database, client: Client, app: FastAPI
) -> None:
    await install_demo_bank(database)
    services: Services = app.state.services
    record = await services.sessions.get(await _by_hand(client, "twin"))

    def live(key: str, host: str, name: str | None = None, **asked: str) -> SessionRecord:
        origin: Any = {"kind": "openai_chat", "base_url": f"http://{host}/v1"}
        origin |= {"model": "twin", **asked}
        known: Provenance = {**record.provenance, "endpoint": origin}
        called = {"endpoint_name": name, "endpoint_model": origin["model"]}
        return replace(record, id=key, mode="live", provenance=known, **called)

    assert namesakes([live("a", "one"), live("b", "two", model="other")]) == {}
    assert namesakes([live("a", "one"), live("b", "two:8000")]) == {"a": "one", "b": "two:8000"}
    assert namesakes([live("a", "one"), live("b", "two"), live("c", "two", "twin")]) == {
        "a": "one",
        "b": "two",
        "c": "two, saved endpoint",
    }
    assert namesakes([live("a", "one", "twin", model="m"), record]) == {"a": "model m"}
    later = replace(live("b", "one"), finished_at=record.created_at + timedelta(days=1))
    told = namesakes([live("a", "one"), later])
    assert [note.count("<time") for note in told.values()] == [1, 1]
    assert told["a"] != told["b"]


async def test_unnamed_endpoints_at_one_address_are_one_model(
    database: Database, client: Client, app: FastAPI
) -> None:
    await install_demo_bank(database)
    services: Services = app.state.services
    made = await services.sessions.get(await _by_hand(client, "any"))

    def at(host: str, number: int) -> SessionRecord:
        url = f"http://{host}/v1"
        asked: Any = {"name": None, "kind": "openai_chat", "model": "m", "base_url": url}
        return replace(
            made,
            id=f"{made.id[:-1]}{number}",
            mode="live",
            endpoint_name=None,
            endpoint_model="m",
            provenance={**made.provenance, "endpoint": asked},
        )

    newest_first = [at("a.test", 0), at("b.test", 1), at("a.test", 2)]
    (found,) = last_results(newest_first, View(is_whole=True)).values()
    assert {one.id for one in found.shown} == {session.id for session in newest_first[:2]}


async def test_the_first_page_shows_own_results_and_counts_the_rest(
    database: Database, client: Client, browser_with: NewBrowser
) -> None:
    await install_demo_bank(database)
    reader = await browser_with("read")
    made = [await _by_hand(client, f"model {n}") for n in range(10)]
    assert "All tests on it" not in (await reader.get("/")).text
    replay = await posted(client, f"/v1/sessions/{made[0]}:replay", {})
    made.append(await _by_hand(client, "model 10"))
    page = await reader.get("/")
    shown = set(re.findall(r'class="name"><a href="/sessions/([^"]*)"', page.text))
    assert (shown, replay["id"] in page.text) == ({*made[1:]}, False)
    assert "10 of 11 models in the last 60 tests." in Page(page.text).text
