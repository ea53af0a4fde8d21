"""The client's methods: which operations they call, and how they read responses."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, assert_type

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from app.main import create_app
from app.settings import Settings
from app.storage.database import Database
from sextant_client import (
    Answer,
    AsyncSextant,
    Event,
    Examinee,
    Item,
    ProblemError,
    Session,
    Sextant,
    operations,
)
from sextant_client.requests import Flow, Json, Request
from tests.clients.broken import Breaking
from tests.clients.conftest import Running

#: Operations without a method; `request`, `download`, `list_all`, `change` and `remove` reach them.
LEFT_OUT = re.compile(
    r"\w+ /v1/(endpoints|scorers|simulations|catalog|installations|audit|response-sets|projects"
    r"|baselines|webhooks"
    r"|api-keys)\b.*|\w+ /v1/banks(:|/\{bank\}/(versions|imports|items$|items:batch|items/)).*"
    r"|POST /v1/banks|(DELETE|PATCH) .*|.*/\{session_id\}(:(pause|resume|replay|rescore)"
    r"|/(trajectory|export|report|changes|next-item))|.*/\{ranking_id\}:join"
    r"|.*/\{calibration_id\}(:publish|/items|/abilities)"
)
GENERIC = {"request", "download", "list_all", "change", "remove"}
GIVEN: Mapping[str, Any] = {
    "session_id": "ses_1",
    "ranking_id": "rnk_1",
    "gate_id": "gat_1",
    "calibration_id": "cal_1",
    "step_token": "x",
    "answer": Answer(score=1.0),
    "bank": "demo",
    "endpoints": [],
    "first": "ses_1",
    "second": "ses_2",
    "response_set": "recorded",
}


def first_request(make: Any) -> tuple[str, str]:
    """Return method and path of an operation's first request, with the fewest arguments."""
    needed = [
        one.name
        for one in inspect.signature(make).parameters.values()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    flow: Flow[Any] = make(**{name: GIVEN[name] for name in needed})
    step = next(iter(flow))
    assert isinstance(step, Request)
    return step.method, step.path


def test_every_operation_has_a_method_or_is_left_out_by_name() -> None:
    app = create_app(Settings(), Database("postgresql+psycopg://none"))
    routes = [one for one in iter_route_contexts(app.routes) if "/v1/" in (one.path or "")]
    every = {f"{method} {route.path}" for route in routes for method in route.methods or ()}
    asked = {("GET", f"/v1/{kind}/x/events") for kind in ("sessions", "rankings", "calibrations")}
    for name, made in vars(operations).items():
        own = inspect.isfunction(made) and made.__module__ == operations.__name__
        if own and not name.startswith("_") and name not in GENERIC:
            asked.add(first_request(made))
            assert getattr(Sextant, name).flow is getattr(AsyncSextant, name).flow is made
    reached = {
        f"{method} {route.path}"
        for method, path in asked
        for route in routes
        if method in (route.methods or ()) and route.path_regex.match(path)
    }
    assert len(reached) == len(asked)
    left_out = {one for one in every if LEFT_OUT.fullmatch(one)}
    assert every - left_out == reached


async def test_a_lost_response_is_requested_again_and_counts_once(server: Running) -> None:
    breaking = Breaking("POST", "/responses", times=1)
    http = httpx2.AsyncClient(transport=breaking)
    async with AsyncSextant(server.url, server.key, http=http) as sextant:
        session = await sextant.create_session("demo", mode="manual", stopping={"max_items": 3})

        async def solve(item: Item) -> Answer:
            return Answer(score=1.0, usd=1.0)

        ended = await sextant.answer_all(session.id, solve)
        assert breaking.left == 0
        assert (ended.progress.scored, ended.usage.usd) == (3, 3.0)
        assert [one.step for one in await sextant.list_responses(session.id)] == [1, 2, 3]


async def test_events_continue_after_a_lost_connection(server: Running) -> None:
    breaking = Breaking("GET", "/events", times=2, halves=True)
    http = httpx2.AsyncClient(transport=breaking)
    async with AsyncSextant(server.url, server.key, http=http) as sextant:
        session = await sextant.create_session("demo", mode="manual", stopping={"max_items": 3})
        reader = asyncio.create_task(_all(sextant.events(session.id)))

        async def solve(item: Item) -> Answer:
            return Answer(score=1.0)

        await sextant.answer_all(session.id, solve)
        heard = await reader
        assert breaking.left == 0
        page = await sextant.request("GET", f"/v1/sessions/{session.id}/events")
        assert [(one.seq, one.type) for one in heard] == [
            (one["seq"], one["type"]) for one in page["data"]
        ]
        assert heard[-1].type == "session.completed"
        with pytest.raises(ValueError, match="got 'gat_1'"):
            await _all(sextant.events("gat_1"))


async def _all(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_results_have_types_and_all_operations_can_be_reached(server: Running) -> None:
    def use() -> None:
        with Sextant(server.url, server.key) as sextant:
            first, second = (_answered(sextant, score) for score in (0.0, 1.0))
            ended = assert_type(sextant.wait_for_session(first.id, timeout=60), Session)
            assert (ended.status, ended.estimate) == ("completed", first.estimate)
            named = sextant.list_sessions(metadata={"score": "1.0"}, status="completed")
            assert [one.id for one in named] == [second.id]
            gate = sextant.create_gate(0.5, session_id=first.id, confidence=0.9)
            assert (gate.status, gate.confidence) == ("decided", 0.9)
            assert sextant.list_gates(session_id=second.id) == []
            assert sextant.list_gates(session_id=first.id, bank_id=first.bank.id) == [gate]
            assert sextant.list_gates(bank_id="bnk_" + "0" * 26) == []
            assert {one.session_id for one in sextant.get_leaderboard("demo").data} == {second.id}
            found = sextant.compare(first.id, second.id)
            assert found.common is None or found.common.verdict in ("below", "undecided")
            more = sextant.extend_session(first.id, stopping={"max_items": 20})
            assert (more.parent_id, more.ended) == (first.id, False)
            with pytest.raises(TimeoutError, match="is awaiting_response after 0 s"):
                sextant.wait_for_session(more.id, timeout=0)
            assert sextant.cancel_session(more.id) == sextant.cancel_session(more.id)
            bank = sextant.get_bank("demo")
            assert bank in sextant.list_banks()
            key = sextant.list_all(f"/v1/banks/{bank.id}/items", limit=1)[0]["key"]
            assert sextant.match_items("demo", keys=[key, "none"]).missing == ["none"]
            ranked: list[dict[str, Json]] = [
                {"endpoint": {"kind": "scripted", "model": name, "options": {"theta": 0}}}
                for name in "ab"
            ]
            ranking = sextant.create_ranking("demo", ranked, confidence=0.9)
            assert sextant.cancel_ranking(ranking.id).ended
            assert sextant.list_rankings(status="queued") == []
            rivals = [Examinee(name=name) for name in "ab"]
            ranking = sextant.create_ranking("demo", examinees=rivals, min_items=5, max_items=6)
            items = sextant.get_ranking_items(ranking.id, 2)
            while items:
                item = items.pop(0)
                told = Answer(score=float(item.examinee == "b"))
                items += sextant.answer_item(item.session_id, item.step_token, told).next_items
            ranked_by_hand = sextant.get_ranking(ranking.id)
            assert (ranked_by_hand.status, ranked_by_hand.self_reported) == ("completed", True)
            assert [one.name for one in ranked_by_hand.order] == ["b", "a"]
            project = sextant.request("POST", "/v1/projects", json={"name": "team"})
            path = f"/v1/projects/{project['id']}"
            changed = sextant.change(path, lambda found: {"name": found["name"] + " 2"})
            assert changed["name"] == "team 2"
            sextant.remove(path)
            page = f"/v1/sessions/{first.id}/report?format=html"
            assert b"<html" in sextant.download(page)
            with pytest.raises(ProblemError, match="expected a finite number, got nan"):
                sextant.create_session("demo", stopping={"se": float("nan")})

    await asyncio.to_thread(use)


def _answered(sextant: Sextant, score: float) -> Session:
    session = sextant.create_session(
        "demo",
        mode="manual",
        # The same questions, as a leaderboard shows the newest of results that are as precise.
        seed=1,
        stopping={"max_items": 5},
        examinee=Examinee(name="nightly"),
        metadata={"score": str(score)},
    )
    return sextant.answer_all(session.id, lambda _: Answer(score=score))
