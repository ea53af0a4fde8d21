"""Collecting answers of sessions in a response set: each session once."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from app.errors import NotFoundError
from app.items import Outcome
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.responses.collection import Collection
from app.worker.loop import running_worker
from tests.services.living import BANK, living_bank
from tests.services.sessions import answered, by_hand, by_turns, length, replayed, spec, until

PLAN = length(6, pretest={"items_per_session": 2})
WANTED = Collection(bank=BANK)


@pytest.fixture(autouse=True)
async def _living(services: Services) -> None:
    await living_bank(services)
    await services.response_sets.create("live")


async def manual(services: Services, *, seed: int = 1, error_at: int = 0) -> SessionRecord:
    """Answer a session to its end; every other answer is wrong, one may be missing."""
    record = await by_hand(services, PLAN, bank=BANK, seed=seed)
    return await answered(
        services,
        record,
        lambda at: {"outcome": Outcome.ERROR} if at.step == error_at else by_turns(at),
    )


async def test_the_answers_of_sessions_become_a_set(services: Services) -> None:
    sessions = [await manual(services, seed=seed) for seed in range(3)]

    report = await services.collector.collect("live", WANTED)

    table = await services.response_sets.matrix("live")
    assert (report.sessions, report.accepted, report.left_out) == (3, 24, {})
    assert report.pretest_answers == 6
    assert table.examinees == tuple(f"manual/{session.id}" for session in sessions)
    for session, scores in zip(sessions, table.scores, strict=True):
        rows = await services.sessions.responses(session.id)
        expected = {row.item_key: float(row.step % 2) for row in rows}
        got = {
            key: score
            for key, score in zip(table.items, scores.tolist(), strict=True)
            if not np.isnan(score)
        }
        assert got == expected
    assert report.response_set.imports[0]["files"][0]["name"] == f"sessions on bank {BANK}"


async def test_a_session_is_collected_once(services: Services) -> None:
    await manual(services)
    first = await services.collector.collect("live", WANTED)
    again = await services.collector.collect("live", WANTED)
    await manual(services, seed=2)
    both = await asyncio.gather(*(services.collector.collect("live", WANTED) for _ in range(3)))

    assert first.sessions == 1
    assert (again.sessions, again.accepted, again.left_out) == (0, 0, {"taken_before": 1})
    assert again.response_set.revision == first.response_set.revision
    assert sorted(report.sessions for report in both) == [0, 0, 1]
    assert (await services.response_sets.get("live")).outcomes["scored"] == 16


async def test_an_extension_adds_the_missing_answers_of_its_session(services: Services) -> None:
    parent = await manual(services, error_at=3)
    first = await services.collector.collect("live", WANTED)
    extended = await services.derived_sessions.extend(parent.id, length(9), {})
    unfinished = await services.collector.collect("live", WANTED)
    await answered(services, extended)
    await replayed(services, parent.id)
    report = await services.collector.collect("live", WANTED)

    table = await services.response_sets.matrix("live")
    assert (first.outcomes["scored"], first.outcomes["error"]) == (7, 1)
    assert unfinished.left_out == {"taken_before": 1, "not_ended": 1}
    assert report.left_out == {"taken_before": 1, "replay": 1}
    assert report.sessions == 1
    assert table.examinees == (f"manual/{parent.id}",)
    rows = await services.sessions.responses(extended.id)
    assert int(np.isfinite(table.scores).sum()) == len(rows) == 11
    # Failed items were asked again, and a scored answer replaces a missing one.
    assert (report.outcomes["scored"], report.outcomes["error"]) == (4, -1)


async def test_simulated_examinees_are_left_out_unless_asked_for(services: Services) -> None:
    simulated_model = spec(bank=BANK, plan=PLAN)
    async with running_worker(services):
        await until(services, (await services.sessions.create(simulated_model)).id)

    without = await services.collector.collect("live", WANTED)
    simulated = Collection(bank=BANK, simulated=True)
    taken = await services.collector.collect("live", simulated)

    assert (without.sessions, without.left_out) == (0, {"simulated": 1})
    assert taken.sessions == 1
    table = await services.response_sets.matrix("live")
    (examinee,) = table.examinees
    assert examinee.startswith("simulated/")
    async with running_worker(services):  # the same model is no second examinee
        again = await services.sessions.create(replace(simulated_model, seed=9))
        await until(services, again.id)
    later = await services.collector.collect("live", simulated)
    assert (later.sessions, later.new_examinees) == (1, 0)


async def test_only_sessions_of_a_version_or_since_a_moment_are_taken(services: Services) -> None:
    await manual(services)
    now = datetime.now(UTC)
    later = Collection(bank=BANK, since=now + timedelta(hours=1))
    earlier = Collection(bank=BANK, version="1", since=now - timedelta(hours=1))

    assert (await services.collector.collect("live", later)).sessions == 0
    assert (await services.collector.collect("live", earlier)).sessions == 1
    with pytest.raises(NotFoundError, match="version"):
        await services.collector.collect("live", Collection(bank=BANK, version="7"))
    with pytest.raises(NotFoundError, match="nowhere"):
        await services.collector.collect("live", Collection(bank="nowhere"))
