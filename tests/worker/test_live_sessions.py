"""Live sessions from the queue to the result, with a real worker and database."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores
from app.items import ScorerSpec
from app.records.banks import BankSpec
from app.services.container import Services
from tests.servers import serving
from tests.services.banks import make_bank, question
from tests.services.sessions import figures_of, length, scripted, until
from tests.waiting import waiting
from tests.worker.models import Faults, Model
from tests.worker.sessions import asked, model_at, run_session


async def test_a_live_session_runs_to_its_end_and_its_seed_repeats_it(working: Services) -> None:
    ended, again = await asyncio.gather(run_session(working), run_session(working))

    assert (ended.status, ended.stop_reason) == ("completed", "max_items")
    outcomes = dict.fromkeys(("unparsed", "refused", "error", "truncated"), 0)
    assert figures_of(ended)["outcomes"] == {"scored": 12, **outcomes}
    assert figures_of(ended)["usage"]["calls"] == 12
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


async def test_faults_of_an_endpoint_are_no_answers(working: Services, faults: Faults) -> None:
    plan = length(40, failures={"max_consecutive": 20})
    ended = await run_session(working, plan=plan, endpoint=faults.model("mixed"))

    outcomes = figures_of(ended)["outcomes"]
    rows = await working.sessions.responses(ended.id)
    closings = [row.closing for row in rows]
    assert sum(faults.played.values()) > 5
    assert all(c is not None and (c.score is None) == (c.outcome != "scored") for c in closings)
    assert sum(outcomes.values()) == len(rows)


async def test_answers_bear_on_the_join_before_the_end(working: Services, faults: Faults) -> None:
    model = faults.model("ok")
    ended = await run_session(working, plan=length(20), endpoint=model)

    assert ended.join == (await working.joins.look("demo")).check.verdict


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


N_ITEMS, THETA, WORDS = 40, 0.8, 20
RNG = np.random.default_rng(1)
TRUE = ItemBank.from_difficulties(
    a=RNG.lognormal(0.0, 0.2, N_ITEMS),
    b=RNG.normal(0.0, 1.0, N_ITEMS),
    k=RNG.uniform(0.04, 0.15, N_ITEMS),
    item_ids=[f"q{number}" for number in range(N_ITEMS)],
)


def words(key: str) -> list[str]:
    return [f"{key}w{n}" for n in range(WORDS)]


def partly_right() -> Callable[[str], str]:
    """Return a model that says as many words of a target as its ability allows."""
    (shares,) = draw_scores(TRUE, [THETA], np.random.default_rng(3))

    def say(key: str) -> str:
        right = round(WORDS * shares[TRUE.index_of(key)])
        return " ".join([*words(key)[:right], *["hm"] * (WORDS - right)])

    return say


@pytest.mark.usefixtures("fits_here")
@pytest.mark.parametrize("kind", ["continuous", "logistic"])
async def test_answers_marked_in_parts_measure_a_live_model(working: Services, kind: str) -> None:
    logistic = ItemBank.from_difficulties(a=TRUE.a, b=TRUE.b, item_ids=TRUE.item_ids)
    await make_bank(
        working,
        BankSpec(name="told", default_scorer=ScorerSpec("token_f1", {})),
        TRUE if kind == "continuous" else logistic,
        [question(key, " ".join(words(key))) for key in TRUE.item_ids],
    )
    with serving(Model(partly_right()).app) as url:
        record = await run_session(
            working, bank="told", endpoint=model_at(f"{url}/v1"), plan=length(15, concurrency=3)
        )

    assert record.status == "completed", record.failure
    assert figures_of(record)["outcomes"]["scored"] == 15
    rows = await working.sessions.responses(record.id)
    marks = [row.closing.score for row in rows if row.closing]
    assert any(mark is not None and 0 < mark < 1 for mark in marks)
    estimate = figures_of(record)["estimate"]
    assert abs(estimate["theta"] - THETA) < 4 * max(estimate["se"], 0.1)
    # A fraction counts as one answer where items are binary, and as 1 / k where they are graded.
    assert estimate["se"] < 0.2 if kind == "continuous" else estimate["se"] > 0.3
