"""Internal faults: they cost time, but no answer, session or worker."""

import asyncio
import contextlib
import itertools
from typing import Any

import procrastinate
import psycopg
import pytest
from procrastinate.exceptions import ConnectorException

from app import scorers
from app.adapters.base import Completion, CompletionRequest
from app.adapters.scripted import Scripted
from app.errors import (
    DatabaseUnavailableError,
    EndpointRejectedError,
    ExamineeTimeoutError,
    InvalidStateError,
)
from app.records.endpoints import CallLimits, Price
from app.services.container import Services
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.plan import FailureLimits
from app.storage.repositories.endpoints import EndpointRepository
from app.storage.repositories.sessions import SessionRepository
from app.storage.unit_of_work import UnitOfWork
from app.worker import loop
from app.worker.loop import running_worker
from tests.services.sessions import by_hand, length, scripted, spec, until
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import QUICK, run_session


async def test_a_step_whose_commit_was_not_confirmed_is_stored_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, leave = SessionRepository.advance_each, UnitOfWork.__aexit__
    lost: set[str] = set()
    cuts = 0

    async def remembered(self: SessionRepository, steps: Any) -> Any:
        refusals = await advance(self, steps)
        if repr(steps) not in lost:
            lost.add(repr(steps))
            self.unconfirmed = True  # type: ignore[attr-defined]  # a mark for `cut` below
        return refusals

    async def cut(self: UnitOfWork, *failure: Any) -> None:
        nonlocal cuts
        await leave(self, *failure)
        if getattr(self.sessions, "unconfirmed", False):
            cuts += 1
            raise DatabaseUnavailableError("The connection broke while the commit was confirmed.")

    monkeypatch.setattr(SessionRepository, "advance_each", remembered)
    monkeypatch.setattr(UnitOfWork, "__aexit__", cut)
    monkeypatch.setattr("app.services.waiting._RETRY_S", (0.01, 0.01))
    plan = {"stopping": {"min_items": 1, "max_items": 4}, "concurrency": 1}
    async with running_worker(services):
        created = await services.sessions.create(spec(plan=plan))
        ended = await until(services, created.id, limit_s=60)

    rows = await services.sessions.responses(created.id)
    assert ended.status == "completed", ended.failure
    assert [row.arrival for row in rows] == [1, 2, 3, 4]
    assert len(lost) == cuts == 5


async def test_a_session_that_an_unexpected_fault_ends_says_so_in_its_last_event(
    working: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a scorer's own fault")

    monkeypatch.setattr(scorers, "mark", broken)
    ended = await run_session(working, endpoint=scripted(theta=0.0, seed=1, latency_ms=20))

    events = await working.sessions.events(ended.id)
    assert ended.status == "failed"
    assert events[-1].type == "session.failed"
    assert events[-1].seq == ended.event_seq
    assert ended.active_s == pytest.approx(ended.summary["usage"]["seconds"], abs=0.001)


async def test_the_time_limit_with_many_calls_in_flight_is_no_failure_of_the_endpoint(
    working: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, answered = Scripted.complete, itertools.count(1)

    async def silent_in_the_end(self: Scripted, request: CompletionRequest) -> Completion:
        if next(answered) > 12:
            await asyncio.Event().wait()
        return await answer(self, request)

    monkeypatch.setattr(Scripted, "complete", silent_in_the_end)
    # Each round of answers doubles the number in flight, starting at four.
    plan = length(300, budget={"seconds": 3.0}, concurrency=64)
    priced = scripted({"price": Price(input_per_1m=1.0, output_per_1m=4.0)}, theta=0.0)
    ended = await run_session(working, plan=plan, endpoint=priced)

    assert (ended.status, ended.stop_reason) == ("completed", "time_limit")
    usage, asked = ended.summary["usage"], ended.summary["progress"]["items"]
    assert (usage["calls"], usage["usd"]) == (asked, None)  # what was given up may have cost
    # As many failures in a row as would end a session.
    assert ended.summary["outcomes"]["error"] > FailureLimits().max_consecutive


@pytest.mark.parametrize(
    ("failure", "usd"), [(EndpointRejectedError("400"), 0.0), (ExamineeTimeoutError("slow"), None)]
)
async def test_a_failed_call_has_no_cost_only_where_it_was_refused(
    working: Services, monkeypatch: pytest.MonkeyPatch, failure: Exception, usd: float | None
) -> None:
    async def fails(*_: object) -> Completion:
        raise failure

    monkeypatch.setattr(Scripted, "complete", fails)
    given = {"price": Price(input_per_1m=1.0, output_per_1m=4.0), "retry": QUICK}
    ended = await run_session(working, endpoint=scripted(given, theta=0.0))
    assert (ended.status, ended.summary["usage"]["usd"]) == ("failed", usd)


async def test_a_session_that_was_paused_in_the_queue_is_resumed(services: Services) -> None:
    created = await services.sessions.create(spec())
    await services.sessions.pause(created.id)

    resumed = await services.sessions.resume(created.id)

    assert resumed.status == "queued"
    async with running_worker(services):
        assert (await until(services, created.id)).status == "completed"


async def test_postgres_away_while_a_turn_is_taken_costs_time_only(
    working: Services, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    reserve = EndpointRepository.reserve
    refused: list[str] = []

    async def flickering(self: EndpointRepository, endpoint_id: str, tokens: float) -> float:
        if len(refused) < 2:
            refused.append(endpoint_id)
            raise DatabaseUnavailableError("Postgres is away.")
        return await reserve(self, endpoint_id, tokens)

    monkeypatch.setattr(EndpointRepository, "reserve", flickering)
    paced = faults.model("ok", limits=CallLimits(rpm=60_000))
    ended = await run_session(working, "completed", endpoint=paced)

    assert ended.summary["outcomes"]["error"] == 0
    assert faults.asked["ok"] == 12


async def test_a_fault_of_a_background_task_does_not_stop_the_worker(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: dict[str, asyncio.Event] = {}

    def failing_once(owner: Any, name: str, error: Exception) -> None:
        original, event = getattr(owner, name), met.setdefault(name, asyncio.Event())

        def instead(*args: Any, **kwargs: Any) -> Any:
            if not event.is_set():
                event.set()
                raise error
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, instead)

    failing_once(SessionRepository, "stalled", RuntimeError("read-only transaction"))
    failing_once(SessionRepository, "renew", RuntimeError("read-only transaction"))
    # procrastinate raises this when Postgres stays away longer than its pool waits.
    failing_once(loop, "queue_app", psycopg.OperationalError("pool initialization incomplete"))
    async with running_worker(services):
        slow = scripted(theta=0.0, seed=1, latency_ms=50)
        first = await services.sessions.create(spec(endpoint=slow))
        async with asyncio.timeout(240):
            for event in met.values():
                await event.wait()
        second = await services.sessions.create(spec())
        ended = [await until(services, record.id, limit_s=60) for record in (first, second)]

    assert {record.status for record in ended} == {"completed"}


async def test_a_session_waits_for_a_throttled_endpoint_only_while_a_worker_has_it(
    services: Services, faults: Faults
) -> None:
    faults.retry_after_s = 30
    throttled = faults.model("rate_limited-1")
    async with running_worker(services):
        waiting = await run_session(services, "waiting", plan=length(1), endpoint=throttled)
    assert waiting.waiting_until is not None
    events = await services.sessions.events(waiting.id)
    assert "session.waiting" in {event.type for event in events}

    given_back = await services.sessions.get(waiting.id)
    assert given_back.status == "queued"
    assert (given_back.waiting_until, given_back.waiting_reason) == (None, None)
    async with running_worker(services):
        await until(services, waiting.id, "completed")


async def test_an_answer_that_another_process_gave_meanwhile_is_a_conflict(
    services: Services, other_services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = await by_hand(services, length(1))
    token = (await services.manual_sessions.next_item(manual.id)).step_token
    read = SessionRepository.administrations

    async def answered_first(self: SessionRepository, session_id: str) -> Any:
        monkeypatch.setattr(SessionRepository, "administrations", read)
        answer = ManualAnswer(step_token=token, score=1.0)
        await services.manual_sessions.answer(session_id, answer)
        return await read(self, session_id)

    monkeypatch.setattr(SessionRepository, "administrations", answered_first)
    late = ManualAnswer(step_token=token, score=0.0)
    with pytest.raises(InvalidStateError):
        await other_services.manual_sessions.answer(manual.id, late)
    (stored,) = await services.sessions.responses(manual.id)
    assert not_none(stored.closing).score == 1.0


@pytest.mark.parametrize(
    ("owner", "name", "leaves_with"),
    [
        (procrastinate.App, "run_worker_async", ConnectorException("Postgres is away.")),
        (loop, "sweep", None),
    ],
    ids=["unable to sign off", "while it connects"],
)
async def test_a_worker_stops_even_if_it_is_not_in_good_order(
    services: Services, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, leaves_with: Any
) -> None:
    up = asyncio.Event()

    async def held(*_: object, **__: object) -> None:
        up.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if leaves_with:
            raise leaves_with

    monkeypatch.setattr(owner, name, held)
    worker = asyncio.create_task(loop.work(services))
    await up.wait()

    worker.cancel()
    stopped, _ = await asyncio.wait([worker], timeout=60)

    assert stopped
