"""Rankings from the queue to the result, with a real worker and database."""

import asyncio
from typing import Any

import psycopg
import pytest

from app.engine.ranking.rules import RankingBudget, RankingRules
from app.errors import InvalidStateError
from app.records.endpoints import Price
from app.records.rankings import RankingRecord
from app.services.container import Services
from tests.services.rankings import contest, members_of, places, ranked
from tests.services.sessions import events_of, failure_of, figures_of, scripted
from tests.waiting import waiting
from tests.worker.models import Faults

_WAITING_STEP = """
    SELECT FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query ILIKE 'update rankings%summary%'
"""


_FREE_MEMBERS = """
    SELECT id FROM sessions WHERE ranking_id = %s FOR NO KEY UPDATE SKIP LOCKED
"""


async def run_ranking(services: Services, **changes: Any) -> RankingRecord:
    """Return a ranking that has ended; `changes` as for `contest`."""
    created = await services.rankings.create(contest(**changes))
    return await ranked(services, created.id)


async def slow_one(services: Services, latency_ms: int) -> RankingRecord:
    """Return a ranking of two slow endpoints, once answers have changed it."""
    slow = [scripted(theta=theta, seed=1, latency_ms=latency_ms) for theta in (0.0, 0.1)]
    created = await services.rankings.create(contest(endpoints=slow))
    async with waiting() as pause:
        while "ranking.updated" not in await kinds(services, created):
            await pause()
    return created


async def kinds(services: Services, ranking: RankingRecord) -> list[str]:
    return [event.type for event in await events_of(services, "ranking", ranking.id)]


async def statuses(services: Services, ranking: RankingRecord) -> set[str]:
    return {member.status for member in await members_of(services, ranking.id)}


async def test_endpoints_are_ranked_and_each_has_a_session_of_its_own(working: Services) -> None:
    ended = await run_ranking(working)

    lowest, highest, middle = [one.id for one in await members_of(working, ended.id)]
    assert ended.status == "completed", ended.failure
    assert ended.stop_reason == "decision_reached"
    assert places(ended) == [highest, middle, lowest]
    assert [(entry["rank_lo"], entry["rank_hi"]) for entry in figures_of(ended)["order"]] == [
        (1, 1), (2, 2), (3, 3),
    ]  # fmt: skip
    for entry in figures_of(ended)["order"]:
        session = await working.sessions.get(entry["session_id"])
        assert session.status == "completed"
        assert session.stop_reason == "decision_reached"
        assert figures_of(session)["progress"]["items"] == entry["items"] >= 10
        assert figures_of(session)["estimate"]["theta"] == entry["theta"]
    events = await events_of(working, "ranking", ended.id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == "ranking.created"
    assert {event.type for event in events[1:-1]} == {"ranking.updated"}
    assert events[-1].type == "ranking.completed"
    assert events[-1].data["order"] == figures_of(ended)["order"]


async def test_endpoints_are_asked_side_by_side(working: Services, faults: Faults) -> None:
    endpoints = [faults.model("slow", model=name) for name in "abcd"]
    rules = RankingRules(min_items=5, max_items=5)
    ended = await run_ranking(working, endpoints=endpoints, rules=rules, asking={"concurrency": 1})

    rows = [
        row
        for member in await members_of(working, ended.id)
        for row in await working.sessions.responses(member.id)
    ]
    under_way = [
        sum(row.asked_at <= moment.asked_at < (row.answered_at or row.asked_at) for row in rows)
        for moment in rows
    ]
    assert max(under_way) == 4


async def test_endpoints_with_few_scored_answers_have_no_rank(working: Services) -> None:
    rules = RankingRules(min_items=1, max_items=3)
    endpoints = [scripted(theta=theta, seed=1) for theta in (-3.0, 3.0)]
    ended = await run_ranking(working, endpoints=endpoints, rules=rules)

    assert ended.status == "completed"
    order = figures_of(ended)["order"]
    assert [(entry["theta"], entry["se"], entry["group"]) for entry in order] == [(None,) * 3] * 2
    assert [(entry["rank_lo"], entry["rank_hi"]) for entry in order] == [(1, 2)] * 2
    assert all("Needs at least 5 scored answers" in entry["reason"] for entry in order)
    assert (figures_of(ended)["pairs"], figures_of(ended)["ties"]) == ([], [])
    assert figures_of(ended)["decided"] is False


async def test_the_shared_budget_is_kept_and_expensive_endpoints_are_asked_less(
    working: Services, faults: Faults
) -> None:
    endpoints = [
        faults.model("ok", model=name, price=Price(input_per_1m=usd, output_per_1m=0))
        for name, usd in (("a", 1.0), ("b", 1.0), ("c", 50.0), ("d", 50.0))
    ]
    rules = RankingRules(min_items=5, max_items=80, futility=0.0)
    ended = await run_ranking(
        working, endpoints=endpoints, rules=rules, budget=RankingBudget(items=80)
    )

    items = {entry["model"]: entry["items"] for entry in figures_of(ended)["order"]}
    assert figures_of(ended)["progress"]["items"] <= 80
    assert items["a"] + items["b"] > 2 * (items["c"] + items["d"])
    assert figures_of(ended)["usage"]["usd"] == pytest.approx(
        sum(entry["usd"] for entry in figures_of(ended)["order"])
    )


async def test_two_endpoints_are_compared_though_a_third_one_fails(
    working: Services, faults: Faults
) -> None:
    # The failed one has no answers, so its theta is that of the prior, between the others.
    faults.api_key = "right"
    broken = faults.model("ok", model="broken")
    near = [scripted(theta=-0.6, seed=1), broken, scripted(theta=0.6, seed=2)]
    rules = RankingRules(min_items=3, max_items=200)
    ended = await run_ranking(working, endpoints=near, rules=rules, budget=RankingBudget(items=300))

    low, failed, high = [one.id for one in await members_of(working, ended.id)]
    assert (ended.status, ended.stop_reason) == ("completed", "decision_reached")
    assert places(ended) == [high, low, failed]
    assert figures_of(ended)["decided"]
    assert figures_of(ended)["ties"] == []
    assert len(figures_of(ended)["pairs"]) == 1
    first, second, last = figures_of(ended)["order"]
    assert [(e["rank_lo"], e["rank_hi"], e["group"]) for e in (first, second, last)] == [
        (1, 2, 1), (2, 3, 2), (1, 3, None),
    ]  # fmt: skip
    assert first["items"] > 3  # the warm-up alone does not decide it
    assert (last["theta"], last["se"]) == (None, None)
    assert "API key" in last["left_behind"] or "401" in last["left_behind"]
    assert first["left_behind"] is None


async def test_a_failed_endpoint_leaves_its_budget(working: Services, faults: Faults) -> None:
    broken = faults.model("error_500", model="broken")
    ended = await run_ranking(
        working,
        endpoints=[scripted(theta=0.1, seed=1), broken, scripted(theta=0.0, seed=2)],
        # A confidence at which forty items decide nothing, whoever answers first.
        rules=RankingRules(min_items=10, max_items=60, futility=0.0, confidence=0.99999),
        budget=RankingBudget(items=40),
    )

    assert ended.stop_reason == "budget_exhausted"
    assert figures_of(ended)["progress"]["items"] == 40
    assert len(figures_of(ended)["ties"]) == 1
    assert len(figures_of(ended)["ties"][0]) == 2


async def test_a_ranking_without_answers_fails(working: Services, faults: Faults) -> None:
    faults.api_key = "right"
    endpoints = [faults.model("ok", model=name) for name in "ab"]
    ended = await run_ranking(working, endpoints=endpoints)

    assert ended.status == "failed"
    assert "Only 0 of 2 examinees" in failure_of(ended)["detail"]


async def test_a_cancelled_ranking_stops_its_sessions(working: Services) -> None:
    ranking = await slow_one(working, 100)

    cancelled = await working.rankings.cancel(ranking.id)

    assert cancelled.status == "cancelled"
    assert await statuses(working, ranking) == {"cancelled"}
    before = await kinds(working, ranking)
    await asyncio.sleep(0.3)
    assert await kinds(working, ranking) == before
    assert before[-1] == "ranking.cancelled"
    with pytest.raises(InvalidStateError):
        await working.rankings.cancel(ranking.id)
    with pytest.raises(InvalidStateError):
        await working.rankings.join(ranking.id, scripted(theta=0.0), RankingBudget())


async def test_a_ranking_is_cancelled_while_a_step_waits_for_its_row(working: Services) -> None:
    ranking = await slow_one(working, 50)
    connect, url = psycopg.AsyncConnection.connect, working.database.conninfo
    async with (
        await connect(url, autocommit=True) as watching,
        working.database.unit_of_work() as uow,
        waiting() as pause,
    ):
        await uow.rankings.get(ranking.id, for_update=True)
        while not (await watching.execute(_WAITING_STEP)).rowcount:
            await pause()
        free = (await watching.execute(_FREE_MEMBERS, [ranking.id])).rowcount
        await uow.rankings.cancel(ranking.id, detail="")

    # With the lock held, the step and the cancellation would wait for each other.
    assert free == len(await members_of(working, ranking.id))
    assert await statuses(working, ranking) == {"cancelled"}
