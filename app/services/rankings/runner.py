"""Runs a claimed ranking: asks all its endpoints at once and stores each step under its lease."""

import asyncio
from dataclasses import dataclass

import structlog
from typing_extensions import override

from app.errors import EndpointMovedError, SextantError
from app.records.fields import convert
from app.records.rankings import RankingEnd, RankingFigures, RankingRecord, RankingStep
from app.records.sessions import UNDERWAY, Closing, SessionEvent
from app.services.banks.versions import VersionService
from app.services.leased import LeasedRunner
from app.services.rankings.run import Member, RankingPlan, RankingRun
from app.services.sessions.plan import abandoned, failed
from app.services.sessions.run import open_run
from app.services.sessions.runner import LiveSession, SessionRunner
from app.services.waiting import OnWait, Waiting, retry_outages
from app.storage.repositories.rankings import RankingRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)


@dataclass(eq=False, kw_only=True)
class RankingRunner(LeasedRunner[RankingRecord]):
    """Runs claimed rankings of one worker process; `SessionRunner` asks and scores the items.

    A member is a session like any other, except that the ranking chooses its items and holds its
    lease. Each step of a ranking is one transaction over all its members.
    """

    kind = "ranking"

    versions: VersionService
    sessions: SessionRunner

    @override
    def rows(self, uow: UnitOfWork) -> RankingRepository:
        return uow.rankings

    @override
    async def _run(self, record: RankingRecord) -> None:
        run, sessions = await retry_outages(
            lambda: self._prepare(record), self._waiting_note(record)
        )
        calls = {
            asyncio.create_task(self.sessions.ask(session, step)): (member, step)
            for member, session in sessions.items()
            for step in session.run.pending
        }
        closed: dict[int, dict[int, Closing]] = {}
        try:
            while True:
                asked, stop = run.choose()
                ends = None if run.n_pending else stop
                if ends:
                    await self.sessions.check_join([member.record for member in run.members])
                if closed or asked or ends:
                    elapsed_s = {member: live.elapsed_s() for member, live in sessions.items()}
                    step_on = run.step_forward(
                        closed=closed, asked=asked, elapsed_s=elapsed_s, stop=ends
                    )
                    await self._advance(record, step_on)
                    if (end := step_on.end) is not None:
                        logger.info("ranking_ended", status=end.status, stop_reason=end.stop_reason)
                        return
                for member, items in asked.items():
                    for item in items:
                        call = self.sessions.ask(sessions[member], item.step)
                        calls[asyncio.create_task(call)] = member, item.step
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                closed = {}
                for task in done:
                    member, step = calls.pop(task)
                    closing = sessions[member].run.close(step, task.result())
                    closed.setdefault(member, {})[step] = closing
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _waiting_note(self, record: RankingRecord) -> OnWait:
        """Callback that stores a wait of a ranking; the next stored step clears it."""

        async def note(waiting: Waiting | None) -> None:
            if waiting is None:
                return
            until = waiting.until.isoformat()
            told = {"until": until, "reason": waiting.reason, "error_code": waiting.error_code}
            summary: RankingFigures = {
                **record.summary,
                "waiting_until": until,
                "waiting_reason": waiting.reason,
            }
            events = [] if waiting.is_repeat else [SessionEvent("ranking.waiting", told)]
            await self._advance(record, RankingStep(summary=summary, events=events))

        return note

    async def _advance(self, record: RankingRecord, step: RankingStep) -> None:
        """Write one step of the ranking and all its members in one transaction."""

        async def stored() -> None:
            async with self.leasing.database.unit_of_work() as uow:
                await uow.rankings.advance(record.id, record.lease_epoch, step)

        await self._write(stored)

    async def _prepare(self, record: RankingRecord) -> tuple[RankingRun, dict[int, LiveSession]]:
        """The ranking in its stored state, and by position the sessions that are still asked."""
        # Loaded once: thetas of the members compare on one bank only.
        version = await self.versions.load(record.bank_version_id)
        async with self.leasing.database.unit_of_work() as uow:
            records = await uow.sessions.of_ranking(record.id)
        plan = RankingPlan.model_validate(record.settings)  # for members that have not ended
        sessions = {}
        for position, member in enumerate(records):
            if member.status in UNDERWAY:
                try:
                    prepared = await self.sessions.prepare(member, version, plan.asking)
                except EndpointMovedError as error:
                    # It can be asked nothing more; the others go on without it.
                    ended = {member.id: abandoned(member, failed(error))}
                    step = RankingStep(summary=record.summary, members=ended)
                    async with self.leasing.database.unit_of_work() as uow:
                        await uow.rankings.advance(record.id, record.lease_epoch, step)
                        records[position] = await uow.sessions.get(member.id)
                else:
                    sessions[position] = prepared
        members = []
        for position, member in enumerate(records):
            if position in sessions:
                members.append(Member(member, sessions[position].run))
                continue
            # The ended session of a member that was there before another one joined.
            async with self.leasing.database.unit_of_work() as uow:
                answers = await uow.sessions.administrations(member.id)
            closed = [answer for answer in answers if answer.closing is not None]
            run = await open_run(self.versions, member, closed, version=version)
            members.append(Member(member, run))
        return RankingRun(plan=plan, members=members, seed=record.seed), sessions

    @override
    async def _abandon(self, uow: UnitOfWork, record: RankingRecord, error: SextantError) -> None:
        ending = failed(error)
        members = await uow.sessions.of_ranking(record.id)
        end = convert(RankingEnd, ending)
        told = {"stop_reason": end.stop_reason, "stop_detail": end.stop_detail}
        stored = await uow.rankings.get(record.id)
        step = RankingStep(
            summary=stored.summary,
            events=[SessionEvent("ranking.failed", {**told, **(ending.failure or {})})],
            end=end,
            members={
                member.id: abandoned(member, ending)
                for member in members
                if member.status in UNDERWAY
            },
        )
        await uow.rankings.advance(record.id, record.lease_epoch, step)
