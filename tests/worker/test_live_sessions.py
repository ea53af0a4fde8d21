"""Live sessions from the queue to the result, with a real worker and database."""

import asyncio
from dataclasses import replace

import pytest

from app.records.endpoints import Price
from app.services.container import Services
from tests.servers.fault_server import FaultServer
from tests.services.sessions import failure_of, figures_of, length, scripted, spec, until
from tests.waiting import waiting
from tests.worker.sessions import QUICK, asked, model_at, run_session


async def test_a_live_session_runs_to_its_end_and_its_seed_repeats_it(working: Services) -> None:
    ended, again = await asyncio.gather(run_session(working), run_session(working))

    assert (ended.status, ended.stop_reason) == ("completed", "max_items")
    outcomes = dict.fromkeys(("unparsed", "refused", "error", "truncated"), 0)
    assert figures_of(ended)["outcomes"] == {"scored": 12, **outcomes}
    assert figures_of(ended)["estimate"]["se"] < 0.6
    assert figures_of(ended)["usage"]["calls"] == 12
    known = figures_of(ended)["score"]["interval"]
    assert 0 < known["lo"] < known["hi"] < 1
    assert await asked(working, ended) == await asked(working, again)
    assert figures_of(ended)["estimate"] == figures_of(again)["estimate"]
    events = await working.sessions.events(ended.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("session.created", "session.completed")
    assert kinds.count("response.received") == kinds.count("session.item_selected") == 12


async def test_items_in_flight_cut_the_wait(working: Services) -> None:
    slow = scripted(theta=0.0, seed=1, latency_ms=1000)
    ended = await run_session(working, plan=length(16, concurrency=8), endpoint=slow)

    in_flight = [0]
    for event in await working.sessions.events(ended.id):
        change = {"session.item_selected": 1, "response.received": -1}.get(event.type, 0)
        in_flight.append(in_flight[-1] + change)
    assert 4 <= max(in_flight) <= 8


async def test_faults_of_the_endpoint_are_never_wrong_answers(
    working: Services, faults_url: str, faults: FaultServer
) -> None:
    plan = length(40, failures={"max_consecutive": 20})
    ended = await run_session(working, plan=plan, endpoint=model_at(f"{faults_url}/mixed/v1"))

    outcomes = figures_of(ended)["outcomes"]
    rows = await working.sessions.responses(ended.id)
    closings = [row.closing for row in rows]
    assert sum(faults.played.values()) > 5
    assert all(c is not None and (c.score is None) == (c.outcome != "scored") for c in closings)
    assert sum(outcomes.values()) == len(rows)


async def test_the_answers_of_a_session_bear_on_the_join_before_its_end_is_seen(
    working: Services, faults_url: str
) -> None:
    model = model_at(f"{faults_url}/ok/v1")
    ended = await run_session(working, plan=length(20), endpoint=model)

    assert ended.join == (await working.joins.look("demo")).check.verdict


async def test_a_wrong_key_ends_the_session_at_once(
    working: Services, faults_url: str, faults: FaultServer
) -> None:
    faults.api_key = "right"
    one_by_one, model = {"concurrency": 1}, model_at(f"{faults_url}/ok/v1")
    ended = await run_session(working, "failed", plan=one_by_one, endpoint=model)

    assert ended.stop_reason == "too_many_failures"
    assert failure_of(ended)["code"] == "endpoint_unauthorized"
    start_again = "Start again with the right address and key (sextant run, SEXTANT_ENDPOINT_KEY)."
    assert str(ended.stop_detail).endswith(start_again)
    assert figures_of(ended)["outcomes"]["error"] == 1
    assert faults.asked["ok"] == 1


async def test_an_endpoint_that_is_not_there_fails_the_session_with_a_reason(
    working: Services,
) -> None:
    plan = {"failures": {"max_consecutive": 2}}
    nobody = model_at("http://127.0.0.1:9/v1", retry=replace(QUICK, max_attempts=1))
    ended = await run_session(working, "failed", plan=plan, endpoint=nobody)

    assert failure_of(ended)["code"] == "endpoint_unreachable"
    told = f"then continue the session (sextant sessions extend {ended.id} --max-items N)."
    assert str(ended.stop_detail).endswith(f"refused. Repair the endpoint, {told}")
    estimate = figures_of(ended)["estimate"]
    assert estimate["theta"] is None
    assert estimate["reason"].startswith("Needs at least 5 scored answers, has 0")


async def test_a_throttled_endpoint_makes_the_session_wait_and_say_so(
    working: Services, faults_url: str, faults: FaultServer
) -> None:
    faults.retry_after_s = 0.5
    throttled = model_at(f"{faults_url}/rate_limited-1/v1")
    created = await working.sessions.create(spec(plan=length(1), endpoint=throttled))

    waiting = await until(working, created.id, "waiting")
    ended = await until(working, created.id)

    assert waiting.waiting_until is not None
    assert ended.status == "completed"
    assert ended.waiting_until is None
    assert "session.waiting" in {e.type for e in await working.sessions.events(created.id)}


async def test_a_budget_ends_the_test_with_a_valid_theta(working: Services) -> None:
    plan = length(300, preset="ability", budget={"usd": 0.0005}, concurrency=1)
    priced = scripted({"price": Price(input_per_1m=1.0, output_per_1m=4.0)}, theta=0.5, seed=3)
    ended = await run_session(working, plan=plan, endpoint=priced)

    assert ended.stop_reason == "budget_exhausted"
    assert 0.0004 < figures_of(ended)["usage"]["usd"] <= 0.0005
    assert figures_of(ended)["estimate"]["se"] < 1


async def test_cancel_pause_and_resume(working: Services) -> None:
    slow = {"plan": length(40), "endpoint": scripted(theta=0.0, seed=1, latency_ms=30)}
    first = await run_session(working, "running", **slow)

    async with waiting() as pause:
        while not (await working.sessions.get(first.id)).summary["progress"]["in_flight"]:
            await pause()
    paused = await working.sessions.pause(first.id)
    assert paused.summary["progress"]["in_flight"] == 0  # its calls are made again
    held = len([1 for _, outcome in await asked(working, paused) if outcome])
    again = await working.sessions.pause(first.id)
    resumed = await working.sessions.resume(first.id)
    ended = await until(working, first.id)

    assert (paused.status, again.status, resumed.status) == ("paused", "paused", "queued")
    assert ended.status == "completed"
    assert len(await asked(working, ended)) == 40
    assert held < 40

    second = await run_session(working, "running", **slow)
    cancelled = await working.sessions.cancel(second.id)
    before = await working.sessions.events(second.id)
    await asyncio.sleep(0.5)  # long enough for an answer in flight
    assert cancelled.status == "cancelled"
    assert await working.sessions.events(second.id) == before


async def test_an_extended_session_continues_where_the_old_one_stopped(working: Services) -> None:
    parent = await run_session(working)

    extended = await working.derived_sessions.extend(parent.id, length(20), {})
    ended = await until(working, extended.id)

    old, new = await asked(working, parent), await asked(working, ended)
    assert new[: len(old)] == old
    assert len(new) == 20
    assert ended.parent_id == parent.id
    straight = await run_session(working, plan=length(20, concurrency=1))
    found, told = (figures_of(one)["estimate"]["theta"] for one in (straight, ended))
    assert found == pytest.approx(told)


async def test_a_model_with_only_unparsed_answers_gets_no_theta(
    working: Services, faults_url: str, faults: FaultServer
) -> None:
    choice = {"message": {"content": ""}, "finish_reason": "stop"}
    silent = faults.canned("silent", {"choices": [choice], "usage": {}})
    plan = {"stopping": {"se": None, "min_items": 1, "max_items": 6}}
    ended = await run_session(working, plan=plan, endpoint=model_at(f"{faults_url}{silent}/v1"))

    assert ended.status == "failed"
    assert figures_of(ended)["outcomes"]["unparsed"] == 6
    assert "None of 6 answers could be parsed" in str(ended.stop_detail)


async def test_an_extended_session_repeats_items_that_failed(
    working: Services, faults_url: str, faults: FaultServer
) -> None:
    faults.api_key = "right"
    failed = await run_session(working, endpoint=model_at(f"{faults_url}/ok/v1"))
    faults.api_key = None

    again = await until(working, (await working.derived_sessions.extend(failed.id, {}, {})).id)

    assert failed.status == "failed"
    assert again.status == "completed"
    assert figures_of(again)["outcomes"]["error"] == 0
