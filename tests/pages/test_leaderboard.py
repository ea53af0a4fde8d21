"""The leaderboard: models with equal names, and notes about results."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fastapi import FastAPI

from app.pages.model_results import last_results, namesakes
from app.records.sessions import Provenance, SessionRecord
from app.services.container import Services
from app.services.visibility import View
from app.storage.database import Database
from tests.api.calls import answered, posted
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page
from tests.services.sessions import until

_STOPPING = {"stopping": {"score_margin": None, "max_items": 6}}


async def _by_hand(client: Client, name: str) -> str:
    """Return the id of an ended session of this agent, one of whose answers has no score."""
    agent = {"examinee": {"name": name, "kind": "agent"}}
    made = await posted(
        client, "/v1/sessions", {"mode": "manual", "bank": "demo", **agent, **_STOPPING}, 201
    )
    scores = [{"score": score} for score in (1.0, 0.0, 1.0, 1.0, 0.0)]
    ended = await answered(client, made["id"], *scores, {"outcome": "refused"})
    assert ended["status"] == "completed"
    return str(made["id"])


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
    made = await posted(
        client, "/v1/sessions", {"bank": "demo", "endpoint": endpoint, **_STOPPING}, 202
    )
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
        assert shown.count('title="17 % of the answers have no score.">trust: fair<') == 2


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
        asked: Any = {"kind": "openai_chat", "model": "m", "base_url": f"http://{host}/v1"}
        return replace(
            made,
            id=f"{made.id[:-1]}{number}",
            mode="live",
            endpoint_name=None,
            endpoint_model="m",
            provenance={**made.provenance, "endpoint": asked},
        )

    newest_first = [at("a.test", 0), at("b.test", 1), at("a.test", 2)]
    (shown,) = last_results(newest_first, View(is_whole=True)).values()
    assert {one.id for one in shown} == {session.id for session in newest_first[:2]}
