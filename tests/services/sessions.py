"""Helpers of the session tests: services with the demo bank, sessions run to their end."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from app.adapters.base import EndpointConfig
from app.records.endpoints import EndpointSettings
from app.records.leased import LeasedRecord, StoredEvent
from app.records.rankings import RankingRecord
from app.records.sessions import Administration, Closing, Plan, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.container import Services, open_services
from app.services.endpoints.specs import EndpointSpec
from app.services.sessions.drafts import SessionSpec
from app.services.sessions.manual import ManualAnswer, NextItem
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun
from app.services.visibility import View
from app.settings import Settings
from app.storage.database import Database
from app.storage.repositories.events import Kind
from app.worker.queue import JobQueue
from tests.demo_bank import install_demo_bank
from tests.waiting import reached

__all__ = ["EndpointConfig", "opened", "scripted", "spec", "until"]


@asynccontextmanager
async def opened(settings: Settings, database: Database) -> AsyncIterator[Services]:
    """Open services with the demo bank installed."""
    async with open_services(settings, database, JobQueue(database)) as services:
        await install_demo_bank(database)
        yield services


def figures_of(record: SessionRecord | RankingRecord) -> Any:
    """Return the current figures; a test knows which of them exist."""
    return record.summary


def scripted(settings: Mapping[str, Any] | None = None, /, **options: Any) -> EndpointSpec:
    """Return a simulated examinee that the worker runs itself, with settings of its endpoint."""
    given = {"kind": "scripted", "model": "simulated", "options": options}
    return EndpointSpec(settings=EndpointSettings(**{**given, **(settings or {})}))


def length(n: int, **plan: Any) -> Any:
    """Return the plan of a test of so many items, with these other parts."""
    return {"stopping": {"se": None, "min_items": n, "max_items": n}, **plan}


def spec(**changes: Any) -> SessionSpec:
    """Return a short live session of a simulated examinee on the demo bank."""
    given: dict[str, Any] = {
        "mode": "live",
        "bank": "demo",
        "endpoint": scripted(theta=0.5, seed=3),
        # One item at a time, so that items do not depend on which answer arrives first.
        "plan": length(12, concurrency=1),
        "seed": 11,
    }
    return SessionSpec(**{**given, **changes})


async def by_hand(services: Services, plan: Any = None, **changes: Any) -> SessionRecord:
    """Begin a manual session; `changes` as for `spec`."""
    given = {"mode": "manual", "endpoint": None, **({} if plan is None else {"plan": plan})}
    return await services.sessions.create(spec(**{**given, **changes}))


async def tell(services: Services, session_id: str, **answer: Any) -> SessionRecord:
    """Answer the next item of a manual session."""
    awaited = await services.manual_sessions.next_item(session_id)
    given = ManualAnswer(step_token=awaited.step_token, **answer)
    record, _ = await services.manual_sessions.answer(session_id, given)
    return record


def by_turns(awaited: NextItem) -> dict[str, Any]:
    """Return a right answer to the first item, a wrong one to the second, and so on."""
    return {"score": float(awaited.step % 2)}


async def until(
    services: Services, session_id: str, *statuses: str, limit_s: float = 240
) -> SessionRecord:
    """Return the session once it has one of these states (default: ended)."""
    return await reached(lambda: services.sessions.get(session_id), *statuses, limit_s=limit_s)


async def answered(
    services: Services,
    record: SessionRecord,
    answer: Callable[[NextItem], Mapping[str, Any]] = by_turns,
) -> SessionRecord:
    """Answer a manual session to its end; `answer` gives the fields of each answer."""
    while record.status == "awaiting_response":
        awaited = await services.manual_sessions.next_item(record.id)
        given = ManualAnswer(step_token=awaited.step_token, **answer(awaited))
        record, _ = await services.manual_sessions.answer(record.id, given)
    return record


async def replayed(
    services: Services, session_id: str, changes: Plan | None = None, version: str | None = None
) -> SessionRecord:
    """Estimate again from the answers of a session, by default with the settings it had."""
    return await services.derived_sessions.replay(
        session_id,
        changes or {},
        bank_version_id=version,
        metadata={"why": "again"},
        view=View(is_whole=True),
    )


def failure_of(record: LeasedRecord) -> Mapping[str, Any]:
    """Return why work failed."""
    assert record.failure is not None
    return record.failure


async def events_of(
    services: Services, kind: Kind, resource_id: str, *, limit: int = 1000
) -> list[StoredEvent]:
    """Return the events of a session, ranking or calibration."""
    async with services.database.reading() as uow:
        found = await uow.events.since(kind, {resource_id: 0}, limit=limit)
        return found.get(resource_id, [])


def administration(step: int, position: int, **more: Any) -> Administration:
    """Return an item as it is stored when it is asked, except for the fields in `more`."""
    given: dict[str, Any] = {
        "asked_at": datetime(2026, 1, 1, tzinfo=UTC),
        **dict.fromkeys(("step_token", "information", "arrival", "answered_at", "closing")),
    }
    return Administration(step=step, position=position, **{**given, **more})


def run_of(version: LoadedVersion, plan: SessionPlan, *, seed: int = 1, **more: Any) -> SessionRun:
    """Return the run of a session that is not stored."""
    session: Any = SimpleNamespace(id="ses_1", seed=seed, provenance={"endpoint": None})
    test = version.adaptive_test(plan.design)
    return SessionRun(session, test=test, plan=plan, version=version, **more)


def played(
    version: LoadedVersion,
    plan: SessionPlan,
    closings: Sequence[Closing],
    pick: Callable[[list[int], int], int],
    *,
    seed: int,
    final: bool = False,
) -> tuple[SessionRun, list[Administration]]:
    """Answer the pending step that `pick` chooses; each time, the run is rebuilt bit for bit."""
    run = run_of(version, plan, seed=seed)
    stored: dict[int, Administration] = {}
    for turn, given in enumerate(closings):
        for asked in run.choose(elapsed_s=0.0)[0]:
            stored[asked.step] = administration(
                asked.step, asked.position, probability=asked.probability
            )
        step = pick(sorted(run.pending), turn)
        closing = run.close(step, given)
        stored[step] = replace(stored[step], arrival=turn + 1, closing=closing)
        again = run_of(version, plan, seed=seed, administrations=list(stored.values()))
        now = 10.0 * turn  # figures are renewed every few seconds
        assert again.summary(elapsed_s=now, final=final) == run.summary(elapsed_s=now, final=final)
        assert again.pending == run.pending
        assert again.state.responses == run.state.responses
        assert again.state.draws == run.state.draws
        assert again.state.usage == run.state.usage
    return run, list(stored.values())
