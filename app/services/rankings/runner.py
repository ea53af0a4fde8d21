"""Runs a claimed ranking: asks all its endpoints at once and stores each step under its lease."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from typing_extensions import override

from app.engine import Stop
from app.errors import SextantError
from app.records.rankings import RankingEnd, RankingRecord
from app.records.sessions import (
    UNDERWAY,
    Advance,
    Closing,
    SelectedItem,
    SessionEvent,
    SessionRecord,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.leased import LeasedRunner, Leasing
from app.services.patience import OnWait, Waiting, once_readable
from app.services.rankings.run import Member, RankingPlan, RankingRun, event_of
from app.services.sessions.endings import abandoned, failed
from app.services.sessions.run import SessionRun, open_run
from app.services.sessions.runner import LiveSession, SessionRunner
from app.storage.repositories.rankings import RankingRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRanking:
    """A claimed ranking with everything needed to go on with it."""

    record: RankingRecord
    run: RankingRun
    sessions: dict[int, LiveSession]
    """Of the members that are asked, by position."""


class RankingRunner(LeasedRunner[RankingRecord]):
    """Drives claimed rankings of one worker process; asking and marking is the sessions' own.

    A member is a session like any other, but for who chooses its items and holds its lease: each
    step of a ranking is one transaction over all of them.
    """

    kind = "ranking"

    def __init__(
        self,
        leasing: Leasing,
        *,
        versions: VersionService,
        sessions: SessionRunner,
    ) -> None:
        super().__init__(leasing)
        self._versions = versions
        self._sessions = sessions

    @override
    def _leases(self, uow: UnitOfWork) -> RankingRepository:
        return uow.rankings

    @override
    async def _run(self, record: RankingRecord) -> None:
        live = await once_readable(lambda: self._prepare(record), self._waiting_note(record))
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

    def _waiting_note(self, record: RankingRecord) -> OnWait:
        """Shows waits of a ranking before it goes on; its next stored step ends them."""

        async def note(waiting: Waiting | None) -> None:
            if waiting is None:
                return
            until = waiting.until.isoformat()
            told = {"until": until, "reason": waiting.reason, "error_code": waiting.error_code}
            summary = {**record.summary, "waiting_until": until, "waiting_reason": waiting.reason}
            events = [] if waiting.is_repeat else [SessionEvent("ranking.waiting", told)]
            await self._write_step(record, {}, summary, events, None)

        return note

    async def _prepare(self, record: RankingRecord) -> LiveRanking:
        # Loaded once, for thetas compare on one bank only.
        version = await self._versions.load(record.bank_version_id)
        async with self._database.unit_of_work() as uow:
            records = await uow.sessions.of_ranking(record.id)
        plan = RankingPlan.from_dict(record.settings)  # by which whoever has not ended is asked
        sessions = {
            position: await self._sessions.prepare(member, version, plan.asking)
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
        run = RankingRun(plan=plan, members=members, seed=record.seed)
        return LiveRanking(record=record, run=run, sessions=sessions)

    async def _of_before(self, member: SessionRecord, version: LoadedVersion) -> SessionRun:
        """The ended session of a member who was there before somebody joined."""
        async with self._database.unit_of_work() as uow:
            answers = await uow.sessions.administrations(member.id)
        closed = [answer for answer in answers if answer.closing is not None]
        return await open_run(self._versions, member, closed, version=version)

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
        summary = live.run.summary()
        await self._write_step(live.record, steps, summary, [event_of(summary, end)], end)
        if end is not None:
            logger.info("ranking_ended", status=end.status, stop_reason=end.stop_reason)

    async def _write_step(
        self,
        record: RankingRecord,
        steps: Mapping[str, Advance],
        summary: Mapping[str, Any],
        events: Sequence[SessionEvent],
        end: RankingEnd | None,
    ) -> None:
        async def write(uow: UnitOfWork) -> None:
            # The ranking's row before its members', as by whoever claims or cancels it: the other
            # way about, each would wait for what the other holds.
            await uow.rankings.advance(
                record.id, record.lease_epoch, summary=summary, events=events, end=end
            )
            if steps:
                await uow.sessions.advance(steps, record.lease_epoch)

        await self._write(write)

    @override
    async def _abandon(self, uow: UnitOfWork, record: RankingRecord, error: SextantError) -> None:
        ending, epoch = failed(error), record.lease_epoch
        members = await uow.sessions.of_ranking(record.id)
        steps = {
            member.id: abandoned(member, ending) for member in members if member.status in UNDERWAY
        }
        end = RankingEnd(
            status=ending.status,
            stop_reason=ending.stop_reason,
            stop_detail=ending.stop_detail,
            failure=ending.failure,
        )
        told = {"stop_reason": end.stop_reason, "stop_detail": end.stop_detail}
        event = SessionEvent("ranking.failed", {**told, **(ending.failure or {})})
        stored = await uow.rankings.get(record.id)
        await uow.rankings.advance(
            record.id, epoch, summary=stored.summary, events=[event], end=end
        )
        if steps:
            await uow.sessions.advance(steps, epoch)
