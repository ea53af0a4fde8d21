"""Manual sessions through the client: the loop, failures during it, and problems."""

import asyncio
import os
import random

import httpx2
import pytest

from sextant_client import Answer, AsyncSextant, Examinee, Item, ProblemError, Sextant
from sextant_client.answering import Loop
from sextant_client.errors import NotSextantError, Problem
from sextant_client.models import ItemContent
from sextant_client.operations import change, remove, wait_for_session
from sextant_client.requests import Pause, Request, Server
from tests.clients.conftest import Running

EXAMINEE = Examinee(name="nightly", kind="agent", model="m-4", scaffold="loop 2")


def solved(item: Item) -> Answer:
    """Return an answer that depends only on the item."""
    right = random.Random(item.item.id).random() < 0.6
    return Answer(score=float(right), usd=0.5, seconds=2.0, metadata={"try": "1"})


async def test_four_in_flight_and_both_clients_find_the_same(server: Running) -> None:
    def one_after_the_other() -> tuple[float | None, int]:
        with Sextant(server.url, server.key) as sextant:
            session = sextant.create_session(
                "demo", mode="manual", examinee=EXAMINEE, stopping={"max_items": 8}, seed=1
            )
            ended = sextant.answer_all(session.id, solved)
            return ended.estimate.theta, ended.progress.scored

    most = 0

    async def slowly(item: Item) -> Answer:
        nonlocal most
        running.add(item.step)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.discard(item.step)
        return solved(item)

    running: set[int] = set()
    expected = await asyncio.to_thread(one_after_the_other)
    async with AsyncSextant(server.url, server.key) as sextant:
        session = await sextant.create_session(
            "demo", mode="manual", examinee=EXAMINEE, stopping={"max_items": 8}, seed=1
        )
        ended = await sextant.answer_all(session.id, slowly)
        assert (ended.estimate.theta, ended.progress.scored) == expected
        assert (ended.status, ended.usage.usd, most) == ("completed", 4.0, 1)
        several = await sextant.create_session(
            "demo", mode="manual", concurrency=4, stopping={"max_items": 8}, seed=1
        )
        ended = await sextant.answer_all(several.id, slowly)
        assert (ended.status, ended.progress.scored, most) == ("completed", 8, 4)


async def test_a_failure_of_the_harness_ends_the_loop_and_a_new_one_continues(
    server: Running,
) -> None:
    async def breaks(item: Item) -> Answer:
        if item.step == 3:
            raise ValueError("no sandbox")
        return solved(item)

    async def works(item: Item) -> Answer:
        return solved(item)

    async with AsyncSextant(server.url, server.key) as sextant:
        session = await sextant.create_session(
            "demo", mode="manual", concurrency=4, stopping={"max_items": 8}
        )
        with pytest.raises(ValueError, match="no sandbox"):
            await sextant.answer_all(session.id, breaks)
        begun = await sextant.get_session(session.id)
        assert begun.awaits_answers
        assert begun.progress.scored >= 1
        ended = await sextant.answer_all(session.id, works)
        assert (ended.status, ended.progress.scored) == ("completed", 8)


async def test_a_session_that_another_program_ends_has_no_items(server: Running) -> None:
    async with AsyncSextant(server.url, server.key) as sextant:
        session = await sextant.create_session("demo", mode="manual")
        begun = await sextant.request("GET", f"/v1/sessions/{session.id}")
        await sextant.cancel_session(session.id)
        ended = await sextant.request("GET", f"/v1/sessions/{session.id}")
    loop = Loop(session.id)
    looking = loop.awaited()
    refusal = ProblemError(Problem(code="invalid_state", status=409, detail="It has ended."))
    next(looking)
    looking.send(httpx2.Response(200, json=begun))
    looking.throw(refusal)
    with pytest.raises(StopIteration) as told:
        looking.send(httpx2.Response(200, json=ended))
    assert told.value.value == []
    assert loop.session is not None
    assert loop.session.status == "cancelled"


def test_a_forked_process_has_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sextant("http://127.0.0.1:9") as own, httpx2.Client() as http:
        given = Sextant("http://127.0.0.1:9", http=http)
        before = own._http
        assert own._http is before
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert own._http is not before
        assert own._http is own._http
        assert given._http is http


async def test_problems_name_the_fault_and_its_place(server: Running) -> None:
    async with AsyncSextant(server.url, server.key, retries=0) as sextant:
        with pytest.raises(ProblemError) as refused:
            await sextant.create_session("demo", mode="manual", concurrency=100)
        assert (refused.value.code, refused.value.status) == ("invalid_input", 422)
        assert [fault.pointer for fault in refused.value.fields] == ["/concurrency"]
        with pytest.raises(ProblemError, match="no bank") as missing:
            await sextant.create_session("nowhere", mode="manual")
        assert (missing.value.code, missing.value.status) == ("not_found", 404)


def test_a_look_behind_an_impatient_proxy_waits_less_each_time() -> None:
    server = Server("http://localhost", {}, retries=6)
    steps = server.attempts(wait_for_session("ses_1"))
    waits = []
    step = next(steps)
    for _ in range(6):
        assert isinstance(step, Request)
        waits.append(step.params["wait"])
        pause = steps.send(httpx2.Response(504, request=httpx2.Request("GET", server.url)))
        assert isinstance(pause, Pause)
        step = next(steps)
    assert waits == [30, 15, 7, 3, 1, 0]


@pytest.mark.parametrize(
    ("status", "words"),
    [(413, r"a proxy .* size\.$"), (504, r"a proxy .* in time\.$"), (404, r"is it one\?$")],
)
def test_an_answer_of_a_proxy_is_told_as_one(status: int, words: str) -> None:
    server = Server("http://localhost", {}, retries=0)
    request = httpx2.Request("POST", f"{server.url}/v1/banks")
    page = httpx2.Response(status, html="<title>no</title>", request=request)
    with pytest.raises(NotSextantError, match=words):
        server.pause_after(page, "POST", 0)


def test_a_change_needs_no_tag_which_a_proxy_may_take_away() -> None:
    found = httpx2.Response(200, json={"revision": 3})
    for flow in (change("/v1/banks/b", lambda _: {"licence": "MIT"}), remove("/v1/banks/b")):
        steps = iter(flow)
        assert isinstance(next(steps), Request)
        asked = steps.send(found)
        assert isinstance(asked, Request)
        assert asked.headers == {"If-Match": '"3"'}


def test_an_answer_is_sent_again_after_a_lost_connection() -> None:
    content = ItemContent(id="q1", prompt="?", messages=[], choices=[])
    item = Item(session_id="ses_1", step=1, step_token="t", item=content)
    telling = Loop("ses_1").tell(item, Answer(score=1.0))
    first = next(telling)
    refused = Problem(code="idempotency_in_flight", status=409, detail="It is worked on.")
    again = telling.throw(ProblemError(refused))
    assert isinstance(first, Request)
    assert isinstance(again, Request)
    assert first.path == "/v1/sessions/ses_1/responses"
    assert (first.path, first.json) == (again.path, again.json)
    assert first.key != again.key
