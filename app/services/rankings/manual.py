"""Rankings by hand: a client asks for items and answers each in its member's session."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from typing_extensions import override

from app.errors import InvalidStateError
from app.records.rankings import RankingRecord, RankingStep
from app.records.sessions import Administration, Closing, SessionRecord
from app.services.rankings.run import Member, RankingPlan, RankingRun
from app.services.sessions.manual import (
    ITEMS_PER_RUN,
    KEPT_ITEMS,
    LATE,
    Awaited,
    Held,
    ManualAnswer,
    ManualSessions,
    NextItem,
    is_overdue,
    new_token,
)
from app.services.sessions.run import open_run


class ManualRankings(ManualSessions):
    """Answering by hand, where sessions may be members of rankings.

    A ranking chooses the items of all its members. It chooses no more at a time than its client
    asks for, so that every choice uses all answers so far. An answer locks the rows of the ranking
    and of its members. Runs are kept between answers, as those of sessions are.
    """

    async def ranking_items(self, ranking_id: str, n: int) -> Sequence[NextItem]:
        """At most `n` items whose answers a ranking awaits, in order of asking.

        Overdue items are closed first; where fewer than `n` are awaited, more are chosen.

        Raises:
            NotFoundError: There is no such ranking.
            InvalidStateError: The ranking is not by hand, or has ended.
        """
        awaited, _ = await self._ranked(ranking_id, n)
        return await self._items(awaited[:n])

    @override
    async def _member_advanced(
        self, ranking_id: str, session_id: str, answer: ManualAnswer | None, marked: Closing | None
    ) -> tuple[SessionRecord, list[Administration], list[Awaited]]:
        told = None if answer is None else (session_id, answer, marked)
        _, asked = await self._ranked(ranking_id, told=told)
        async with self.database.reading() as uow:
            return *(await uow.sessions.with_awaited(session_id)), asked

    async def _ranked(
        self,
        ranking_id: str,
        n: int = 0,
        told: tuple[str, ManualAnswer, Closing | None] | None = None,
    ) -> tuple[list[Awaited], list[Awaited]]:
        """Take in an answer, close overdue items and choose new ones.

        As many items are chosen as were closed, or as are missing from `n` if that is more. `told`
        is the session's id, the answer, and the closing with its score.

        Returns:
            All items that the ranking awaits now, and those of them that this step asked.
        """
        turn = self._turns.setdefault(ranking_id, asyncio.Lock())
        async with turn:
            while True:
                held = self._runs.get(ranking_id) or await self._opened_ranking(ranking_id)
                async with self.database.unit_of_work() as uow:
                    ranking = await uow.rankings.hold(ranking_id)
                    _require_open(ranking)
                    awaited = await uow.sessions.awaited_in(ranking_id)
                    given = {(of.id, one.step): LATE for of, one in awaited if is_overdue(of, one)}
                    if told is not None:
                        session_id, answer, marked = told
                        record, own = await uow.sessions.with_awaited(session_id)
                        version = held.run.members[0].run.version
                        item = answer.item_among(own, record, version)
                        given[record.id, item.step] = answer.closing(version, marked)
                    # Removed first: a run whose step was not stored must not be used again.
                    self._runs.pop(ranking_id, None)
                    if held.revision != ranking.event_seq:  # another process was quicker
                        continue
                    step = _step_forward(held.run, given, n)
                    if step.members or step.end:
                        await uow.rankings.advance(ranking_id, ranking.lease_epoch, step)
                    ranking = await uow.rankings.get(ranking_id)
                    awaited = await uow.sessions.awaited_in(ranking_id)
                break
            if awaited and held.n_items <= KEPT_ITEMS:
                self._runs[ranking_id] = replace(held, revision=ranking.event_seq)
        if step.end is not None:
            await self.joins.renew(ranking.bank_version_id)
        asked = {(of, item.step) for of, member in step.members.items() for item in member.asked}
        return awaited, [(of, one) for of, one in awaited if (of.id, one.step) in asked]

    async def _opened_ranking(self, ranking_id: str) -> Held[RankingRun]:
        async with self.database.reading() as uow:
            ranking = await uow.rankings.get(ranking_id)
            _require_open(ranking)
            records = await uow.sessions.of_ranking(ranking_id)
            asked = [await uow.sessions.administrations(record.id) for record in records]
        # Loaded once: thetas of the members compare on one bank only.
        version = await self._version_of(records[0])
        members = [
            Member(record, await open_run(self.versions, record, items, version=version))
            for record, items in zip(records, asked, strict=True)
        ]
        plan = RankingPlan.model_validate(ranking.settings)
        run = RankingRun(plan=plan, members=members, seed=ranking.seed)
        n_items = ITEMS_PER_RUN * len(members) + version.bank.n_items
        return Held(ranking.event_seq, run, n_items)


def _step_forward(run: RankingRun, given: Mapping[tuple[str, int], Closing], n: int) -> RankingStep:
    """Take in answers, keyed by session id and step, then choose items or end the ranking."""
    position = {member.record.id: i for i, member in enumerate(run.members)}
    closed: dict[int, dict[int, Closing]] = {}
    for (session_id, step), closing in given.items():
        i = position[session_id]
        run.members[i].run.forget_figures()  # made anew, as in a run that was just opened
        closed.setdefault(i, {})[step] = run.members[i].run.close(step, closing)
    chosen, stop = run.choose(at_most=max(len(given), n - run.n_pending))
    now = datetime.now(UTC)
    return run.step_forward(
        closed=closed,
        asked={i: [replace(one, step_token=new_token()) for one in chosen[i]] for i in chosen},
        elapsed_s={
            i: (now - member.record.created_at).total_seconds()
            for i, member in enumerate(run.members)
        },
        stop=None if run.n_pending else stop,
        status="awaiting_response",
    )


def _require_open(ranking: RankingRecord) -> None:
    if not RankingPlan.model_validate(ranking.settings).by_hand:
        raise InvalidStateError(
            f"Ranking {ranking.id} is live: the server asks the endpoints itself."
        )
    if ranking.status != "running":
        raise InvalidStateError(f"Ranking {ranking.id} is {ranking.status} and asks nothing more.")
