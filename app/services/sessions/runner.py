"""Runs live sessions: asks the endpoint, scores the answers, stores each step under its lease."""

import asyncio
import math
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import structlog
from scipy.special import expit
from typing_extensions import override

from app.adapters.base import SimulationHints
from app.adapters.transport import Transport
from app.engine import StopReason
from app.errors import DatabaseUnavailableError, SextantError
from app.items import Outcome
from app.observability import ITEMS_ASKED, OUTCOMES, SESSIONS_FINISHED, note_evaluation, span
from app.records.endpoints import SIMULATED
from app.records.sessions import RESCORE, Advance, Closing, SessionRecord
from app.services.banks.joins import JoinChecks
from app.services.banks.loaded import BankItem, LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.calls import Cached, RateLimited
from app.services.endpoints.service import EndpointService
from app.services.leased import LeasedRunner, acting_as
from app.services.scoring import AnswerScorer
from app.services.sessions.asking import Asker, hints_of
from app.services.sessions.figures import SpareTime
from app.services.sessions.plan import SessionPlan, abandoned, failed
from app.services.sessions.rescoring import Rescoring
from app.services.sessions.run import SessionRun, open_run
from app.services.waiting import OnWait, Waiting, retry_outages
from app.storage.database import Database
from app.storage.repositories.sessions import SessionRepository
from app.storage.unit_of_work import UnitOfWork

logger = structlog.get_logger(__name__)

T = TypeVar("T")

#: Calls that start together end at slightly different times. After the first one ends, the others
#: get this share of its duration, so that the answers of all decide what is asked next.
TOGETHER = 0.1
#: Most steps that one statement writes, which bounds how long one step can delay others.
MOST_AT_ONCE = 64


class InFlight(Generic[T]):
    """Calls in flight, each for one step."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Task[T], tuple[int, float]] = {}  # -> its step, its beginning

    def begin(self, step: int, call: Coroutine[Any, Any, T]) -> None:
        """Start a call."""
        self._calls[asyncio.create_task(call)] = step, _now()

    async def ended(self, timeout_s: float | None = None) -> dict[int, T]:
        """Results of the next calls that end, in the order of their steps; none after the timeout.

        Raises:
            Exception: The exception that a call raised.
        """
        until = math.inf if timeout_s is None else _now() + timeout_s
        await asyncio.wait(self._calls, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        # Those that began together with one that has just ended get a moment more.
        now = _now()
        took = max(
            (now - began for call, (_, began) in self._calls.items() if call.done()), default=0.0
        )
        others = [
            call
            for call, (_, began) in self._calls.items()
            if not call.done() and now - began >= (1 - TOGETHER) * took
        ]
        patience = min(TOGETHER * took, until - now)
        if others and patience > 0.0:
            await asyncio.wait(others, timeout=patience)
        ended = [task for task in self._calls if task.done()]
        # If one failed, all stay in flight until given up: another may have failed, too.
        results = {self._calls[task][0]: task.result() for task in ended}
        for task in ended:
            del self._calls[task]
        return dict(sorted(results.items()))

    async def give_up(self) -> list[int]:
        """Cancel all calls, and return their steps."""
        given_up, self._calls = self._calls, {}
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        return sorted(step for step, _ in given_up.values())


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A claimed session with everything needed to continue it."""

    record: SessionRecord
    run: SessionRun
    asker: Asker
    started: float

    def elapsed_s(self) -> float:
        """Seconds worked on this session, earlier leases included."""
        return self.record.active_s + time.monotonic() - self.started

    def time_left_s(self) -> float | None:
        """Seconds until the time limit, 0 after it; None without a limit."""
        limit = self.run.plan.budget.seconds
        return None if limit is None else max(0.0, limit - self.elapsed_s())


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """Two HTTP clients that share no connections, so that neither can use the other's.

    Attributes:
        public: Client that refuses loopback and private addresses which are not allow-listed.
        private: Client that calls these addresses as well.
    """

    public: Transport
    private: Transport

    def of(self, record: SessionRecord) -> Transport:
        """The client for a session, by what the server that created the session allows."""
        return self.private if record.provenance["private_endpoints"] else self.public


@dataclass(eq=False, kw_only=True)
class SessionRunner(LeasedRunner[SessionRecord]):
    """Runs the claimed sessions of one worker process."""

    kind = "session"

    versions: VersionService
    joins: JoinChecks
    endpoints: EndpointService
    networks: Networks
    _spare: SpareTime = field(init=False, default_factory=SpareTime)

    def __post_init__(self) -> None:
        self._steps = StepWriter(self.leasing.database)

    @override
    def rows(self, uow: UnitOfWork) -> SessionRepository:
        return uow.sessions

    @override
    async def stop(self) -> None:
        await super().stop()
        await self._steps.ended()

    @override
    async def _run(self, record: SessionRecord) -> None:
        if record.relation == RESCORE:
            rescoring = Rescoring(
                record=record,
                database=self.leasing.database,
                versions=self.versions,
                endpoints=self.endpoints,
                transport=self.networks.of(record),
                write=self._write_step,
                on_wait=self.waiting_note(record),
            )
            await rescoring.run()
            return
        live = await retry_outages(lambda: self.prepare(record), self.waiting_note(record))
        run = live.run
        calls: InFlight[Closing] = InFlight()
        for step in run.pending:
            calls.begin(step, self.ask(live, step))
        closed: dict[int, Closing] = {}
        try:
            while True:
                elapsed_s = live.elapsed_s()
                asked, stop = run.choose(elapsed_s=elapsed_s)
                ending = run.ending(stop) if stop is not None and not run.pending else None
                if closed or asked or ending:
                    step_on = run.step_forward(
                        closed=closed, asked=asked, elapsed_s=elapsed_s, ending=ending
                    )
                    if ending is not None:
                        await self.check_join([record])
                    await self._write_step(record, step_on)
                    if ending is not None:
                        SESSIONS_FINISHED.labels(ending.status).inc()
                        how = {"status": ending.status, "stop_reason": ending.stop_reason}
                        logger.info("session_ended", **how)
                        score = step_on.summary["score"]
                        value = None if score is None else score["value"]
                        note_evaluation("score", value, ending.stop_reason or ending.status)
                        return
                for item in asked:
                    calls.begin(item.step, self.ask(live, item.step))
                closed = await self._next_closed(live, calls)
        finally:
            await calls.give_up()

    async def prepare(
        self,
        record: SessionRecord,
        version: LoadedVersion | None = None,
        plan: SessionPlan | None = None,
    ) -> LiveSession:
        """Rebuild a claimed session from storage, with everything needed to continue it.

        Raises:
            SextantError: The session has no endpoint, or its endpoint cannot be opened.
        """
        if record.endpoint_id is None:
            raise SextantError(f"Session {record.id} has no endpoint to ask.")
        asking = record.provenance["asking"]
        if version is None:
            version = await self.versions.load_as(record.bank_version_id, asking)
        else:
            version = version.asking_as(asking)
        endpoint = await self.endpoints.ready(record.endpoint_id, record.provenance["endpoint"])
        async with self.leasing.database.reading() as uow:
            administrations = await uow.sessions.administrations(record.id)
        run = await open_run(
            self.versions, record, administrations, version=version, plan=plan, spare=self._spare
        )
        keeping, transport = None, self.networks.of(record)
        if run.plan.cache:
            keeping = partial(
                Cached,
                database=self.leasing.database,
                realm=record.bank_id if record.withheld else "",
                session_id=record.id,
            )
        calling = RateLimited(endpoint, self.endpoints, transport)
        return LiveSession(
            record=record,
            run=run,
            asker=Asker(
                examinee=calling if keeping is None else keeping(calling),
                endpoint=endpoint,
                marker=AnswerScorer.of(
                    record,
                    administrations,
                    endpoints=self.endpoints,
                    transport=transport,
                    keeping=keeping,
                ),
                style=version.prompt_style,
                repeats=run.plan.repeats,
            ),
            started=time.monotonic(),
        )

    async def _next_closed(self, live: LiveSession, calls: InFlight[Closing]) -> dict[int, Closing]:
        """Wait for the next answers; after the time limit, give up the calls in flight."""
        closed = await calls.ended(live.time_left_s())
        # The event loop counts in milliseconds, and may wake up slightly before the limit.
        if not closed and live.time_left_s() == 0:
            given_up = Closing(
                outcome=Outcome.ERROR,
                error_code=StopReason.TIME_LIMIT.value,
                reason="The session's time limit came before the answer.",
                attempts=1,  # it may have been paid: its cost is unknown, not 0
            )
            closed = dict.fromkeys(await calls.give_up(), given_up)
        return {step: live.run.close(step, closing) for step, closing in closed.items()}

    async def ask(self, live: LiveSession, step: int) -> Closing:
        """Ask the endpoint one item and score the answer, on behalf of the session's maker.

        In a ranking, members may have different makers, who each pay for their own member.
        """
        position = int(live.run.steps[step])
        version = live.run.version
        items = await retry_outages(lambda: self.versions.items_at(version, [position]))
        item = items[position]
        ITEMS_ASKED.inc()
        with acting_as(self.kind, live.record), span("step", {"sextant.step": step}):
            closing = await live.asker.ask(
                item,
                # The random jitter only spreads calls in time; it does not affect the measurement.
                rng=np.random.default_rng([live.record.seed, step]),
                hints=await _hints(live, item, position),
                on_wait=self.waiting_note(live.record, step),
            )
        OUTCOMES.labels(closing.outcome).inc()
        return closing

    def waiting_note(self, record: SessionRecord, step: int | None = None) -> OnWait:
        """Callback that shows the waits of a session: for a step's answer, or before it goes on."""

        async def note(waiting: Waiting | None) -> None:
            if waiting is None:  # the next stored step shows that the wait is over
                return
            data = {
                "step": step,
                "until": waiting.until.isoformat(),
                "reason": waiting.reason,
                "attempt": waiting.attempt,
                "error_code": waiting.error_code,
            }
            try:
                async with self.leasing.database.unit_of_work() as uow:
                    await uow.sessions.note_waiting(
                        record.id,
                        record.lease_epoch,
                        until=waiting.until,
                        reason=waiting.reason,
                        data=None if waiting.is_repeat else data,
                    )
            except DatabaseUnavailableError:
                logger.warning("waiting_not_shown", reason=waiting.reason)

        return note

    async def check_join(self, ending: Sequence[SessionRecord]) -> None:
        """Let answers to one version bear on its join, as the sessions are about to end."""
        origins = {record.id: record.provenance["endpoint"] for record in ending}
        ids = [name for name, origin in origins.items() if origin and origin["kind"] != SIMULATED]
        if ids:
            await retry_outages(lambda: self.joins.renew(ending[0].bank_version_id, ids))

    async def _write_step(self, record: SessionRecord, step: Advance) -> None:
        await self._write(lambda: self._steps.write(record.id, record.lease_epoch, step))

    @override
    async def _abandon(self, uow: UnitOfWork, record: SessionRecord, error: SextantError) -> None:
        stored = await uow.sessions.get(record.id)
        step = abandoned(stored, failed(error))
        await uow.sessions.advance({record.id: step}, record.lease_epoch)

    @override
    async def fail(self, record: SessionRecord, error: Exception) -> bool:
        is_ours = await super().fail(record, error)
        if is_ours:
            SESSIONS_FINISHED.labels("failed").inc()
        return is_ours


class _Queued(NamedTuple):
    """A step with its session's id and lease epoch, and the future of the task that waits."""

    step: tuple[str, int, Advance]
    written: "asyncio.Future[None]"


class StepWriter:
    """Writes steps of the sessions that one process runs.

    Each commit waits for the disk. One statement writes all steps that arrive in the meantime: a
    single step waits for no other, and a hundred steps at once share the cost of a commit.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Queued] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, session_id: str, epoch: int, step: Advance) -> None:
        """Write one step, completely or not at all.

        Raises:
            LeaseLostError: The session's lease is no longer that of `epoch`.
            StaleStepError: An answer in the step was closed before.
            DatabaseUnavailableError: It is unknown whether the step is written.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Queued((session_id, epoch, step), written))
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="steps")
        await written

    async def ended(self) -> None:
        """Wait until all writing ends; steps are written even if the task that waited is gone."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MOST_AT_ONCE]
                del self._waiting[:MOST_AT_ONCE]
                await self._write(batch)
        finally:
            self._task = None

    async def _write(self, queued: Sequence[_Queued]) -> None:
        batch = [each for each in queued if not each.written.done()]  # done: the task was stopped
        if not batch:
            return
        refusals: Sequence[Exception | None]
        try:
            async with self._database.reading() as uow:
                refusals = await uow.sessions.advance_each([step for step, _ in batch])
        except Exception as error:  # noqa: BLE001 - the tasks that wait for the steps get it
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailableError):
                # One of the steps has a value that cannot be stored: find it.
                for each in batch:
                    await self._write([each])
                return
            refusals = [error] * len(batch)
        for (_, written), refusal in zip(batch, refusals, strict=True):
            if written.done():
                continue
            if refusal is None:
                written.set_result(None)
            else:
                written.set_exception(refusal)


async def _hints(live: LiveSession, item: BankItem, position: int) -> SimulationHints | None:
    """Simulation hints for a scripted examinee; None for a real one."""
    if live.asker.endpoint.config.kind != SIMULATED:
        return None
    bank = live.run.version.bank

    def probability_right(theta: float) -> float:
        if live.run.version.is_pretest(position):  # of unknown difficulty: assume an average one
            return float(expit(theta))
        return float(bank.expected_score(theta, [position])[0])

    return await hints_of(item, probability_right, [live.record.seed, position])
