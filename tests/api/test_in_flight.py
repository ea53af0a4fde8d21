"""Several pending items of a manual session: none lost, none counted twice, all in exposure."""

import asyncio
import random
import time
from typing import Any

import pytest

from app.engine.inference.diagnostics import exposure_rates, overlap, use_counts
from app.printable import percent
from app.services.banks.items import LEAST_TESTS
from app.services.container import Services
from app.storage.database import Database
from tests.api.calls import (
    an_hour_passed,
    answered,
    bank_of,
    got,
    listing,
    posted,
    problem_of,
    refusal_of,
)
from tests.api.conftest import Client

pytestmark = pytest.mark.usefixtures("services")


async def begun(client: Client, **said: Any) -> str:
    body = {"mode": "manual", "bank": "demo", "concurrency": 4, "stopping": {"max_items": 12}}
    made = await posted(client, "/v1/sessions", {**body, **said}, 201)
    return f"/v1/sessions/{made['id']}"


async def awaited(client: Client, path: str, n: int = 64) -> list[dict[str, Any]]:
    found = await posted(client, f"{path}/next-items", {"n": n}, 200)
    items: list[dict[str, Any]] = found["data"]
    return items


async def told(client: Client, path: str, item: dict[str, Any], **answer: Any) -> dict[str, Any]:
    given = {"step_token": item["step_token"], **(answer or {"score": 1.0})}
    return await posted(client, f"{path}/responses", given, 201)


async def test_answers_come_in_any_order_and_each_brings_what_is_asked_next(client: Client) -> None:
    path, rng = await begun(client), random.Random(1)
    items = await awaited(client, path)
    assert [item["step"] for item in items] == [1, 2, 3, 4]
    assert await awaited(client, path, 2) == items[:2]
    assert "target" not in str(items)
    seen, session = {item["item"]["id"] for item in items}, {}
    while items:
        item = items.pop(rng.randrange(len(items)))
        session = await told(client, path, item, score=float(rng.random() < 0.6))
        fresh = session["next_items"]
        assert seen.isdisjoint(one["item"]["id"] for one in fresh)
        seen |= {one["item"]["id"] for one in fresh}
        items += fresh
        assert session["progress"]["in_flight"] == len(items)
        assert items or session["status"] == "completed"
    assert session["progress"]["scored"] == len(seen) == 12
    answers = await listing(client, f"{path}/responses")
    assert sorted(one["arrival"] for one in answers) == list(range(1, 13))
    await refusal_of(client.get(f"{path}/next-item"), 409, "invalid_state")


async def test_answers_that_come_at_once_are_all_counted_once(client: Client) -> None:
    path = await begun(client, concurrency=8, stopping={"max_items": 40})
    items = await awaited(client, path)
    while items:
        answers = [{"step_token": item["step_token"], "score": 1.0} for item in items]
        replies = await asyncio.gather(
            *(client.post(f"{path}/responses", json=answer) for answer in (*answers, *answers))
        )
        codes = sorted(reply.status_code for reply in replies)
        assert codes == [201] * len(items) + [409] * len(items)
        taken = [reply.json() for reply in replies if reply.status_code == 201]
        items = [item for one in taken for item in one["next_items"]]
    session = await got(client, path)
    assert (session["status"], session["progress"]["scored"]) == ("completed", 40)
    assert session["outcomes"]["scored"] == 40


async def test_a_refused_answer_names_its_field(client: Client) -> None:
    path = await begun(client)
    first, *_ = await awaited(client, path)
    token = {"step_token": first["step_token"]}
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, ""),
        ({"response": "4", "score": 1.0}, ""),
        ({"response": "4", "text": "5"}, "/text"),
        ({"score": 1.0, "item_id": "another"}, "/item_id"),
    ]
    for answer, pointer in refused:
        await problem_of(client, f"{path}/responses", {**token, **answer}, at=pointer)


async def test_an_item_is_given_back_or_answered_at_once_but_only_once(client: Client) -> None:
    path = await begun(client)
    for item in await awaited(client, path):
        token = {"step_token": item["step_token"]}
        calls = [(f"{path}:release", token), (f"{path}/responses", {**token, "score": 1.0})]
        replies = await asyncio.gather(*(client.post(to, json=body) for to, body in calls * 3))
        codes = sorted(reply.status_code for reply in replies)
        assert codes[0] in {200, 201}
        assert codes[1:] == [409] * 5


async def test_a_client_that_begins_anew_finds_what_it_had_not_answered(client: Client) -> None:
    path = await begun(client)
    items = await awaited(client, path)
    after = await told(client, path, items[2])
    found = await awaited(client, path)
    assert found == [items[0], items[1], items[3], *after["next_items"]]


async def test_a_returned_item_is_late_for_its_former_client(client: Client) -> None:
    path = await begun(client)
    first, *_ = await awaited(client, path)
    given_back = {"step_token": first["step_token"]}
    released = await posted(client, f"{path}:release", given_back)
    assert released["item"] == first["item"]
    assert released["step_token"] != first["step_token"]
    late, says = {**given_back, "score": 0.0}, "one of steps 1, 2, 3, 4, which are pending"
    await problem_of(client, f"{path}/responses", late, 409, says=says)
    await problem_of(client, f"{path}:release", given_back, 409)
    session = await told(client, path, released)
    assert session["progress"]["scored"] == 1


async def test_an_item_past_its_limit_is_an_error(client: Client, database: Database) -> None:
    path = await begun(client, answer_within=1800)
    items = await awaited(client, path)
    await an_hour_passed(database)
    found = await awaited(client, path)
    assert {one["step"] for one in found} == {5, 6, 7, 8}
    late = {"step_token": items[0]["step_token"], "score": 1.0}
    await problem_of(client, f"{path}/responses", late, 409)
    session = await got(client, path)
    assert session["outcomes"]["error"] == 4
    assert session["progress"]["scored"] == 0
    rows = await listing(client, f"{path}/responses")
    assert {row["error_code"] for row in rows[:4]} == {"timeout"}


async def test_a_session_of_a_silent_client_ends(client: Client, app: Any) -> None:
    services: Services = app.state.services
    path = await begun(client, idle_timeout=0.2)
    patient = await begun(client, idle_timeout=600)
    items = await awaited(client, path)
    for item in items:
        await told(client, path, item)
    await asyncio.sleep(0.25)  # waits for the limit under test
    assert await services.sessions.end_idle() == [path.rsplit("/", 1)[1]]
    session = await got(client, path)
    assert (session["status"], session["progress"]["scored"]) == ("cancelled", 4)
    assert "No answer came within idle_timeout" in session["stop_detail"]
    assert (await got(client, patient))["status"] == "awaiting_response"


async def test_a_waiting_client_is_told_of_the_end_at_once(client: Client) -> None:
    path = await begun(client)
    assert (await got(client, path, params={"wait": 1}))["status"] == "awaiting_response"
    waiting = asyncio.create_task(client.get(path, params={"wait": 60}))
    await client.post(f"{path}:cancel")
    async with asyncio.timeout(30):
        assert (await waiting).json()["status"] == "cancelled"
        assert (await got(client, path, params={"wait": 60}))["status"] == "cancelled"
    unknown = client.get(f"/v1/sessions/ses_{'0' * 26}", params={"wait": 60})
    await refusal_of(unknown, 404, "not_found")


async def test_clients_that_wait_leave_their_key_its_turns_to_read(client: Client) -> None:
    path = await begun(client)
    waits = [asyncio.create_task(client.get(path, params={"wait": 60})) for _ in range(20)]
    async with asyncio.timeout(50):
        for _ in range(30):  # turns are given in order, so the later reads come after the waits
            assert (await got(client, path))["status"] == "awaiting_response"
    assert not any(wait.done() for wait in waits)
    await client.post(f"{path}:cancel")
    assert {answer.json()["status"] for answer in await asyncio.gather(*waits)} == {"cancelled"}


async def test_a_cost_that_some_answers_do_not_tell_is_unknown(client: Client) -> None:
    path = await begun(client, concurrency=1, stopping={"max_items": 6})
    session: dict[str, Any] = {}
    for nth in range(6):
        (item,) = await awaited(client, path)
        cost = {} if nth % 2 else {"usd": 1.0, "tokens_in": 10, "tokens_out": 1}
        session = await told(client, path, item, score=1.0, **cost)
    usage = session["usage"]
    assert (usage["calls"], usage["usd"]) == (6, None)
    assert (usage["tokens_in"], usage["tokens_out"], usage["at_most"]) == (None, None, None)
    assert (session["headline"]["usd"], session["headline"]["usd_all"]) == (None, None)
    report = (await client.get(f"{path}/report", params={"format": "html"})).text
    assert "$" not in report
    assert "It took 6 calls" not in report


async def test_costs_without_tokens_tell_no_number_of_tokens(client: Client) -> None:
    path = await begun(client, concurrency=1, stopping={"max_items": 5})
    for _ in range(5):
        (item,) = await awaited(client, path)
        await told(client, path, item, score=1.0, usd=0.25)
    report = (await client.get(f"{path}/report", params={"format": "html"})).text
    assert "It took 5 calls, an unknown number of tokens for $1.25" in report


async def test_an_answer_reports_its_usage_and_budgets_count_it(client: Client) -> None:
    path = await begun(client, concurrency=1, budget={"usd": 2.0})
    (item,) = await awaited(client, path)
    rich = {
        "score": 1.0,
        "text": "It is B.",
        "tokens_in": 900,
        "tokens_out": 80,
        "usd": 0.75,
        "seconds": 12.5,
        "finish_reason": "stop",
        "explanation": "All tests pass.",
        "link": "https://ci.example/run/1",
        "metadata": {"try": "1"},
    }
    session = await told(client, path, item, **rich)
    usage = session["usage"]
    assert (usage["calls"], usage["usd"]) == (1, 0.75)
    assert (usage["tokens_in"], usage["tokens_out"]) == (900, 80)
    (row, *_) = await listing(client, f"{path}/responses")
    assert (row["answer"], row["reason"]) == (rich["text"], rich["explanation"])
    assert row["finish_reason"] == "stop"
    assert row["latency_ms"] == 12500
    assert row["method"]["reported"] == {"link": rich["link"], "metadata": {"try": "1"}}

    session = await told(client, path, session["next_items"][0], score=0.0, usd=1.5)
    assert (session["status"], session["stop_reason"]) == ("completed", "budget_exhausted")
    assert session["usage"]["usd"] == 2.25


async def test_a_budget_that_cannot_be_kept_counts_as_spent(client: Client) -> None:
    path = await begun(client, concurrency=1, budget={"tokens": 1000})
    (item,) = await awaited(client, path)
    session = await told(client, path, item)
    assert session["stop_reason"] == "budget_exhausted"
    assert "does not say how many tokens an answer took" in session["stop_detail"]


FORBIDDEN: list[tuple[str, dict[str, Any], str]] = [
    ("/next-items", {"n": 10_000}, "/n"),
    ("/next-items", {"n": 0}, "/n"),
    ("/responses", {"link": "javascript:1"}, "/link"),
    ("/responses", {"score": 1.5}, "/score"),
    ("/responses", {"usd": 1e308}, "/usd"),
    ("/responses", {"tokens_in": -1}, "/tokens_in"),
    ("/responses", {"tokens_out": 2**31}, "/tokens_out"),
    ("/responses", {"seconds": -1}, "/seconds"),
]


async def test_forbidden_fields_are_refused_with_a_pointer(client: Client) -> None:
    session = await begun(client)
    for path, fields, pointer in FORBIDDEN:
        body = {"step_token": "x", "score": 1.0, **fields} if path == "/responses" else fields
        refused = await problem_of(client, f"{session}{path}", body, at=pointer)
        assert "% say" not in refused["errors"][0]["detail"]  # a score of 1.5 is no percentage


async def test_the_answer_of_another_session_is_not_taken(client: Client) -> None:
    mine, theirs = await begun(client), await begun(client)
    (item, *_) = await awaited(client, theirs)
    stolen = {"step_token": item["step_token"], "score": 1.0}
    await problem_of(client, f"{mine}/responses", stolen, 409)


async def test_no_time_of_a_test_counts_twice(client: Client) -> None:
    began = time.monotonic()
    path = await begun(client, stopping={"max_items": 30})
    session: dict[str, Any] = {}
    while items := await awaited(client, path) if not session.get("finished_at") else []:
        session = await told(client, path, items[0])
    assert 0 < session["usage"]["seconds"] <= time.monotonic() - began


async def test_a_cancelled_test_awaits_no_answer(client: Client) -> None:
    path = await begun(client)
    for item in await awaited(client, path):
        await told(client, path, item)
    cancelled = (await client.post(f"{path}:cancel")).json()
    assert (cancelled["progress"]["items"], cancelled["progress"]["in_flight"]) == (4, 0)
    report = " ".join((await client.get(f"{path}/report", params={"format": "html"})).text.split())
    assert "<p>4 of 360 questions were asked." in report


PATH = "/v1/banks/demo/versions/latest/exposure"


async def test_exposure_counts_tests_that_asked_an_item(client: Client) -> None:
    empty = await got(client, PATH)
    assert [empty[name] for name in ("tests", "n_asked", "overlap", "most_asked")] == [0, 0, 0, []]

    asked: list[list[str]] = []
    for seed in range(LEAST_TESTS):
        path = await begun(
            client, seed=seed, stopping={"max_items": 3}, concurrency=1, preset="ability"
        )
        await answered(client, path.rpartition("/")[2], *[{"score": 1.0}] * 3)
        asked.append([row["item_id"] for row in await listing(client, f"{path}/responses")])

    shown = await got(client, PATH)
    names = sorted({name for test in asked for name in test})
    tests = [[names.index(name) for name in test] for test in asked]
    rates = exposure_rates(tests, len(names))
    assert (shown["tests"], shown["n_items"]) == (LEAST_TESTS, 360)
    assert shown["n_asked"] == len(names)
    assert shown["exposure_max"] == pytest.approx(rates.max())
    assert shown["exposure_mean"] == pytest.approx(rates.sum() / 360)
    assert shown["overlap"] == pytest.approx(overlap(use_counts(tests, len(names)), LEAST_TESTS))
    assert [one["exposure"] for one in shown["most_asked"]] == sorted(rates, reverse=True)[:10]
    dates = next(one for one in shown["tasks"] if one["tag"] == "dates")
    of_dates = sum(name.startswith("dates") for test in asked for name in test)
    assert (dates["asked"], dates["bank"]) == pytest.approx((of_dates / (3 * LEAST_TESTS), 1 / 6))
    assert f"one item was in {percent(rates.max())} of the tests (guide: 30 %)" in shown["caution"]


async def test_an_extension_asks_what_its_test_did_not(client: Client) -> None:
    path = await begun(client, stopping={"max_items": 3}, concurrency=1)
    await answered(client, path.rpartition("/")[2], *[{"score": 1.0}] * 3)
    longer = await posted(client, f"{path}:extend", {"stopping": {"max_items": 5}}, 202)
    await answered(client, longer["id"], *[{"score": 1.0}] * 2)
    await posted(client, f"/v1/sessions/{longer['id']}:replay", {}, 201)
    # Both ask two questions more; they are one test.
    other = await posted(client, f"{path}:extend", {"stopping": {"max_items": 5}}, 202)
    await answered(client, other["id"], *[{"score": 1.0}] * 2)
    shown = (await client.get(PATH)).json()
    assert (shown["tests"], shown["n_asked"]) == (1, 5)
    assert [one["asked"] for one in shown["most_asked"]] == [1] * 5


async def test_a_question_is_in_a_test_once_however_the_test_was_extended(client: Client) -> None:
    numbers = "".join(f"q{n},1,{b},0,1\n" for n, b in enumerate((0, 1, 2, 2.2, 2.4)))
    items = [{"id": f"q{n}", "prompt": f"{n}?", "target": "1"} for n in range(5)]
    await bank_of(client, "few", items, numbers)
    asked = {"bank": "few", "concurrency": 1, "preset": "ability"}

    async def on(path: str, n: int, *answers: dict[str, Any]) -> str:
        longer = await posted(client, f"{path}:extend", {"stopping": {"max_items": n}}, 202)
        await answered(client, longer["id"], *answers)
        return f"/v1/sessions/{longer['id']}"

    right = {"score": 1.0}
    first = await begun(client, **asked, stopping={"max_items": 3})
    await answered(client, first.rpartition("/")[2], {"outcome": "error"}, right, right)
    # The question that failed is asked again by the last extension, whose parent did not ask it.
    await on(await on(first, 3, right), 5, right, right)
    replay = await posted(client, f"{first}:replay", {}, 201)
    await on(f"/v1/sessions/{replay['id']}", 3, right)
    shown = await got(client, "/v1/banks/few/versions/latest/exposure")
    assert (shown["tests"], shown["exposure_max"], shown["overlap"]) == (1, 1.0, 0.0), shown
    assert [one["asked"] for one in shown["most_asked"]] == [1] * 5
