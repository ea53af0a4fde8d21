"""Scores the stored answers of an ended session again, without calling the model."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app.adapters.transport import Transport
from app.engine import Stop, StopReason
from app.errors import SextantError
from app.items import Answer, FinishReason, Outcome, ScorerSpec
from app.records.figures import RescoreFigures
from app.records.sessions import Administration, Advance, Closing, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.scoring import AnswerScorer, is_cut
from app.services.sessions.asking import combined, repeats_in
from app.services.sessions.run import SessionRun, open_run
from app.services.waiting import OnWait, retry_outages
from app.storage.database import Database

#: Answers that are scored at the same time; endpoints of scorers have their own limits.
_AT_ONCE = 8

#: What a closing tells of the call that got the answer.
_OF_CALL = ("tokens_in", "tokens_out", "usd", "latency_ms", "attempts", "method")

Write = Callable[[SessionRecord, Advance], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One answer before and after a rescoring; its bank may be withheld."""

    step: int
    item_key: str
    before: Closing
    after: Closing | None
    withheld: bool

    @property
    def is_changed(self) -> bool:
        """Whether score or outcome differ."""
        after = self.after
        return after is None or (self.before.outcome, self.before.score) != (
            after.outcome,
            after.score,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescoring:
    """A rescoring session that this worker has claimed."""

    record: SessionRecord
    database: Database
    versions: VersionService
    endpoints: EndpointService
    transport: Transport
    write: Write
    on_wait: OnWait

    async def run(self) -> None:
        """Score the pending answers in the order of their arrival, and end the session."""
        record, started = self.record, time.monotonic()
        parent, sources, administrations = await retry_outages(self._stored)
        run = await open_run(self.versions, record, administrations)
        marker = AnswerScorer.of(
            record, administrations, endpoints=self.endpoints, transport=self.transport
        )

        def elapsed_s() -> float:
            return record.active_s + time.monotonic() - started

        async for batch in self._marked(run, sources, marker):
            closed = {step: run.close(step, closing) for step, closing in batch.items()}
            step_on = run.step_forward(closed=closed, asked=(), elapsed_s=elapsed_s())
            await self.write(record, step_on)
        stop = run.blocked() or Stop(
            StopReason.CUSTOM, f"The {len(sources)} answers of {parent.id}, scored again."
        )
        last = run.step_forward(closed={}, asked=(), elapsed_s=elapsed_s(), ending=run.ending(stop))
        async with self.database.unit_of_work() as uow:
            ours = await uow.sessions.administrations(record.id)
        figures = _figures(parent, changes(run.version, sources, ours, withheld=record.withheld))
        await self.write(record, replace(last, summary={**last.summary, "rescore": figures}))

    async def _stored(self) -> tuple[SessionRecord, dict[int, Closing], list[Administration]]:
        """The parent session, its closings by our steps in order of arrival, and our own items."""
        if self.record.parent_id is None:
            raise SextantError(f"Session {self.record.id} has no answers to score again.")
        async with self.database.unit_of_work() as uow:
            parent = await uow.sessions.get(self.record.parent_id)
            theirs = await uow.sessions.administrations(parent.id)
            ours = await uow.sessions.administrations(self.record.id)
        return parent, old_closings(theirs, ours), ours

    async def _marked(
        self, run: SessionRun, sources: Mapping[int, Closing], marker: AnswerScorer
    ) -> AsyncIterator[dict[int, Closing]]:
        """Yield new closings of the pending items, in order, all that are ready at a time."""
        pending = run.pending
        left = deque(step for step in sources if step in pending)
        waiting: deque[tuple[int, asyncio.Task[Closing]]] = deque()
        try:
            while left or waiting:
                if run.blocked() is not None:
                    left.clear()  # calls in flight are paid for, so their results are kept
                while left and len(waiting) < _AT_ONCE:
                    step = left.popleft()
                    call = self._mark(run.version, marker, int(run.steps[step]), sources[step])
                    waiting.append((step, asyncio.create_task(call)))
                if not waiting:
                    return
                await waiting[0][1]
                ready: dict[int, Closing] = {}
                while waiting and waiting[0][1].done():
                    step, task = waiting.popleft()
                    ready[step] = task.result()
                yield ready
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    async def _mark(
        self, version: LoadedVersion, marker: AnswerScorer, position: int, old: Closing
    ) -> Closing:
        """The new closing of an item; a scored one whose text is not stored whole is an error."""
        if repeats := repeats_in(old):
            return combined([await self._mark(version, marker, position, each) for each in repeats])
        if old.answer_text is None or is_cut(old.answer_text) or is_cut(old.raw_text):
            if old.outcome != Outcome.SCORED:
                return replace(old, theta=None, se=None, marking=None, scorer_hash=None)
            return replace(
                old,
                outcome=Outcome.ERROR.value,
                score=None,
                extracted=None,
                extractor=None,
                error_code="no_stored_answer",
                marking=None,
                scorer_hash=None,
                reason="The answer is not stored, or not whole: only its score was given, it was "
                "too long, or its time was up. There is nothing to score again.",
            )
        item = (await retry_outages(lambda: self.versions.items_at(version, [position])))[position]
        own = self.record.provenance["rescored_with"]
        if own is not None:
            item = replace(item, scorer=ScorerSpec(**own))
        answer = Answer(
            text=old.answer_text,
            raw=old.answer_text if old.raw_text is None else old.raw_text,
            reasoning=old.reasoning,
            finish=FinishReason(old.finish_reason or FinishReason.STOP),
        )
        made = await marker.close(item, answer, on_wait=self.on_wait)
        return replace(made, **{name: getattr(old, name) for name in _OF_CALL})


def old_closings(
    theirs: Sequence[Administration], ours: Sequence[Administration]
) -> dict[int, Closing]:
    """Closings of the parent session by the steps of the new session, in order of arrival."""
    steps = {item.position: item.step for item in ours}
    return {
        steps[item.position]: item.closing
        for item in sorted(theirs, key=lambda item: item.arrival or 0)
        if item.closing is not None
    }


def changes(
    version: LoadedVersion,
    sources: Mapping[int, Closing],
    ours: Sequence[Administration],
    *,
    withheld: bool,
) -> list[Change]:
    """Each answer before and after, in order of asking."""
    return [
        Change(
            step=item.step,
            item_key=version.key_at(item.position),
            before=sources[item.step],
            after=item.closing,
            withheld=withheld,
        )
        for item in ours
        if item.step in sources
    ]


def _figures(parent: SessionRecord, found: Sequence[Change]) -> RescoreFigures:
    """Figures of the changes that the rescoring made."""
    both = [
        (change.before.score, change.after.score)
        for change in found
        if change.after is not None
        and change.before.score is not None
        and change.after.score is not None
    ]
    estimate = parent.summary["estimate"]
    return {
        "answers": len(found),
        "changed": sum(change.is_changed for change in found),
        "scored_in_both": len(both),
        "mean_before": sum(old for old, _ in both) / len(both) if both else None,
        "mean_after": sum(new for _, new in both) / len(both) if both else None,
        "theta_before": estimate["theta"],
        "se_before": estimate["se"],
    }
