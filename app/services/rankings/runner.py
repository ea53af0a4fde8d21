"""Runs a claimed ranking: asks all its endpoints at once and stores each step under its lease."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from app.adapters.retry import OnWait, Waiting
from app.engine import Stop, StopReason
from app.errors import (
    AlreadyExistsError,
    LeaseLostError,
    SextantError,
    StaleStepError,
)
from app.records.rankings import RankingEnd, RankingRecord
from app.records.sessions import (
    UNDERWAY,
    Advance,
    Closing,
    Ending,
    SelectedItem,
    SessionEvent,
    SessionRecord,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import price_in
from app.services.patience import once_readable, patiently
from app.services.rankings.run import Member, RankingPlan, RankingRun
from app.services.sessions.endings import abandoned
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun
from app.services.sessions.runner import FAULT, LiveSession, SessionRunner
from app.storage.database import Database

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRanking:
    """A claimed ranking with everything needed to go on with it."""

    record: RankingRecord
    run: RankingRun
    sessions: dict[int, LiveSession]
    """Of the members that are asked, by position."""


class RankingRunner:
    """Drives claimed rankings of one worker process; asking and marking is the sessions' own.

    A member is a session like any other, but for who chooses its items and holds its lease: each
    step of a ranking is one transaction over all of them.
    """

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        sessions: SessionRunner,
        worker_id: str,
        lease: timedelta,
    ) -> None:
        self._database = database
        self._versions = versions
        self._sessions = sessions
        self._worker_id = worker_id
        self._lease = lease

    async def claim(self, ranking_id: str) -> RankingRecord | None:
        """Take the lease of a ranking; None when it has ended or somebody else runs it."""
        async with self._database.unit_of_work() as uow:
            return await uow.rankings.claim(
                ranking_id, worker_id=self._worker_id, lease=self._lease
            )

    async def drive(self, record: RankingRecord) -> None:
        """Go on with a claimed ranking until it ends, or until the lease is lost."""
        with structlog.contextvars.bound_contextvars(ranking_id=record.id):
            try:
                live = await once_readable(
                    lambda: self._prepare(record), self._waiting_note(record)
                )
                await self._loop(live)
            except LeaseLostError:
                logger.info("lease_lost", epoch=record.lease_epoch)
            except Exception as error:  # any fault must end the ranking, or it is run forever
                if isinstance(error, SextantError):  # its words may quote an item: not for a log
                    logger.warning("ranking_failed", code=error.code)
                else:
                    logger.exception("ranking_failed")
                await self.fail(record, error)

    def _waiting_note(self, record: RankingRecord) -> OnWait:
        """Shows waits of a ranking before it goes on; its next stored step ends them."""

        async def note(waiting: Waiting | None) -> None:
            if waiting is None:
                return
            until = waiting.until.isoformat()
            told = {"until": until, "reason": waiting.reason, "error_code": waiting.error_code}
            summary = {**record.summary, "waiting_until": until, "waiting_reason": waiting.reason}
            events = [] if waiting.is_repeat else [SessionEvent("ranking.waiting", told)]
            await self._write(record, {}, summary, events, None)

        return note

    async def _prepare(self, record: RankingRecord) -> LiveRanking:
        # Loaded once, for thetas compare on one bank only.
        version = await self._versions.load(record.bank_version_id)
        async with self._database.unit_of_work() as uow:
            records = await uow.rankings.members(record.id)
        sessions = {
            position: await self._sessions.prepare(member, version)
            for position, member in enumerate(records)
            if member.status in UNDERWAY
        }
        members = [
            Member(
                member,
                sessions[position].run
                if position in sessions
                else await self._of_before(member, version),
            )
            for position, member in enumerate(records)
        ]
        plan = RankingPlan.from_dict(record.settings)
        run = RankingRun(plan=plan, members=members, seed=record.seed)
        return LiveRanking(record=record, run=run, sessions=sessions)

    async def _of_before(self, member: SessionRecord, version: LoadedVersion) -> SessionRun:
        """The ended session of a member who was there before somebody joined."""
        async with self._database.unit_of_work() as uow:
            answers = await uow.sessions.administrations(member.id)
        plan = SessionPlan.from_dict(member.design)
        return SessionRun(
            test=await self._versions.adaptive_test(
                version, plan.design, price_in(member.provenance)
            ),
            plan=plan,
            version=version,
            seed=member.seed,
            administrations=[answer for answer in answers if answer.closing is not None],
        )

    async def _loop(self, live: LiveRanking) -> None:
        calls = {
            asyncio.create_task(self._sessions.ask(session, step)): (member, step)
            for member, session in live.sessions.items()
            for step in session.run.pending
        }
        closed: dict[int, dict[int, Closing]] = {}
        try:
            while True:
                asked, stop = live.run.choose()
                is_over = stop is not None and not live.run.is_waiting
                if closed or asked or is_over:
                    await self._store(live, closed, asked, stop if is_over else None)
                if is_over:
                    return
                for member, items in asked.items():
                    for item in items:
                        call = self._sessions.ask(live.sessions[member], item.step)
                        calls[asyncio.create_task(call)] = member, item.step
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                closed = {}
                for task in done:
                    member, step = calls.pop(task)
                    closing = live.sessions[member].run.close(step, task.result())
                    closed.setdefault(member, {})[step] = closing
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _store(
        self,
        live: LiveRanking,
        closed: dict[int, dict[int, Closing]],
        asked: dict[int, list[SelectedItem]],
        stop: Stop | None,
    ) -> None:
        """Write one step of all members and of the ranking, or nothing."""
        steps: dict[str, Advance] = {}
        for member, session in live.sessions.items():
            ending = None if stop is None else session.run.ending(live.run.stop_of(member, stop))
            if member in closed or member in asked or ending is not None:
                steps[session.record.id] = session.run.step_forward(
                    closed=closed.get(member, {}),
                    asked=asked.get(member, []),
                    elapsed_s=session.elapsed_s(),
                    ending=ending,
                )
        end = None if stop is None else live.run.end(stop)
        await self._write(live.record, steps, live.run.summary(), [live.run.event(end)], end)
        if end is not None:
            logger.info("ranking_ended", status=end.status, stop_reason=end.stop_reason)

    async def _write(
        self,
        record: RankingRecord,
        steps: Mapping[str, Advance],
        summary: Mapping[str, Any],
        events: Sequence[SessionEvent],
        end: RankingEnd | None,
    ) -> None:
        tries = 0

        async def write() -> None:
            nonlocal tries
            tries += 1
            try:
                async with self._database.unit_of_work() as uow:
                    for session_id, step in steps.items():
                        await uow.sessions.advance(session_id, record.lease_epoch, step)
                    await uow.rankings.advance(
                        record.id, record.lease_epoch, summary=summary, events=events, end=end
                    )
            except (AlreadyExistsError, StaleStepError):
                # Nobody else writes under this lease: the step was stored before, and only the
                # word of its commit was lost with the connection.
                if tries == 1:
                    raise

        await patiently(write)

    async def fail(self, record: RankingRecord, error: Exception) -> None:
        """End claimed work that cannot go on, with the reason."""
        if isinstance(error, SextantError):
            code, detail = error.code, error.detail
        else:
            code, detail = "internal_error", FAULT
        failure = {"code": code, "detail": detail}
        ending = Ending(
            status="failed",
            stop_reason=StopReason.CUSTOM.value,
            stop_detail=detail,
            precision_reached=None,
            failure=failure,
        )
        end = RankingEnd(
            status="failed",
            stop_reason=ending.stop_reason,
            stop_detail=detail,
            failure=failure,
        )
        async with self._database.unit_of_work() as uow:
            members = await uow.rankings.members(record.id)
            stored = await uow.rankings.get(record.id)
        steps = {
            member.id: abandoned(member, ending) for member in members if member.status in UNDERWAY
        }
        told = {"stop_reason": end.stop_reason, "stop_detail": detail, **failure}
        event = SessionEvent("ranking.failed", told)
        try:
            await self._write(record, steps, stored.summary, [event], end)
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
