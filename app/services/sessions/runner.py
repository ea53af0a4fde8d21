"""Runs a live session: asks the endpoint, marks the answers, stores each step under its lease."""

import math
import time
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import structlog

from app import scorers
from app.adapters.base import SimulationHints
from app.adapters.retry import OnWait, Waiting
from app.adapters.transport import Transport
from app.engine import Stop, StopReason
from app.errors import (
    AlreadyExistsError,
    DatabaseUnavailableError,
    LeaseLostError,
    SextantError,
    StaleStepError,
)
from app.items import Outcome
from app.observability import ITEMS_ASKED, OUTCOMES, SESSIONS_FINISHED
from app.records.banks import OPEN
from app.records.sessions import Advance, Closing, Ending, SelectedItem, SessionRecord
from app.services.banks.loaded import BankItem, LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.cached import Cached
from app.services.endpoints.of_scorers import ids_in
from app.services.endpoints.rate_limited import RateLimited
from app.services.endpoints.service import EndpointService, ReadyEndpoint, price_in
from app.services.marking.marker import AnswerMarker
from app.services.patience import once_readable, patiently
from app.services.sessions.asking import Asker, hints_of
from app.services.sessions.endings import abandoned
from app.services.sessions.in_flight import InFlight
from app.services.sessions.plan import SessionPlan
from app.services.sessions.rescoring import RESCORE, Rescoring
from app.services.sessions.run import SessionRun
from app.storage.database import Database

logger = structlog.get_logger(__name__)

#: What people are told of a fault that is not theirs.
FAULT = (
    "An unexpected fault ended it; the server's log has the details under its id. The answers so "
    "far are kept."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A claimed session with everything needed to go on with it."""

    record: SessionRecord
    run: SessionRun
    version: LoadedVersion
    endpoint: ReadyEndpoint
    asker: Asker
    concurrency: int
    time_limit_s: float | None
    started: float

    def elapsed_s(self) -> float:
        """Seconds worked on this session, earlier leases included."""
        return self.record.active_s + time.monotonic() - self.started

    def time_left_s(self) -> float | None:
        """Seconds until the time limit, 0 when it is past; None where there is none."""
        if self.time_limit_s is None:
            return None
        return max(0.0, self.time_limit_s - self.elapsed_s())

    def is_late(self) -> bool:
        """Whether the time limit, if there is one, is reached."""
        return self.time_limit_s is not None and self.elapsed_s() >= self.time_limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """Two clients that share nothing: a connection made for one is never used by the other.

    Attributes:
        public: Refuses loopback and private addresses that are not allow-listed.
        private: Calls them too.
    """

    public: Transport
    private: Transport

    def of(self, record: SessionRecord) -> Transport:
        """The client for a session, by what the server that made it allows."""
        return self.private if record.provenance["private_endpoints"] else self.public


class SessionRunner:
    """Drives claimed sessions of one worker process."""

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        endpoints: EndpointService,
        networks: Networks,
        worker_id: str,
        lease: timedelta,
    ) -> None:
        self._database = database
        self._versions = versions
        self._endpoints = endpoints
        self._networks = networks
        self._worker_id = worker_id
        self._lease = lease

    async def claim(self, session_id: str) -> SessionRecord | None:
        """Take the lease of a session; None when it has ended or somebody else runs it."""
        async with self._database.unit_of_work() as uow:
            return await uow.sessions.claim(
                session_id, worker_id=self._worker_id, lease=self._lease
            )

    async def drive(self, record: SessionRecord) -> None:
        """Go on with a claimed session until it ends, or until the lease is lost."""
        with structlog.contextvars.bound_contextvars(session_id=record.id):
            try:
                if record.relation == RESCORE:
                    await self._rescoring(record).run()
                else:
                    live = await once_readable(
                        lambda: self.prepare(record), self.waiting_note(record)
                    )
                    await self._loop(live)
            except LeaseLostError:
                logger.info("lease_lost", epoch=record.lease_epoch)
            except Exception as error:  # any fault must end the session, or it is run forever
                if isinstance(error, SextantError):  # its words may quote an item: not for a log
                    logger.warning("session_failed", code=error.code)
                else:
                    logger.exception("session_failed")
                await self.fail(record, error)

    def _rescoring(self, record: SessionRecord) -> Rescoring:
        return Rescoring(
            record=record,
            database=self._database,
            versions=self._versions,
            endpoints=self._endpoints,
            transport=self._networks.of(record),
            write=self._write,
            on_wait=self.waiting_note(record),
        )

    async def prepare(
        self, record: SessionRecord, version: LoadedVersion | None = None
    ) -> LiveSession:
        """A claimed session with all it takes to go on, rebuilt from what is stored.

        Args:
            record: The session.
            version: Its bank version, where the caller has it: tests on one are compared.

        Raises:
            SextantError: It has no endpoint, or one that cannot be opened.
        """
        if record.endpoint_id is None:
            raise SextantError(f"Session {record.id} has no endpoint to ask.")
        version = version or await self._versions.load(record.bank_version_id)
        version = version.asking_as(record.provenance["asking"])
        endpoint = await self._endpoints.ready(record.endpoint_id)
        async with self._database.unit_of_work() as uow:
            administrations = await uow.sessions.administrations(record.id)
        plan = SessionPlan.from_dict(record.design)
        run = SessionRun(
            test=await self._versions.adaptive_test(
                version, plan.design, price_in(record.provenance)
            ),
            plan=plan,
            version=version,
            seed=record.seed,
            administrations=administrations,
        )
        return LiveSession(
            record=record,
            run=run,
            version=version,
            endpoint=endpoint,
            asker=Asker(
                examinee=self._examinee(endpoint, record, version, plan),
                endpoint=endpoint,
                marker=AnswerMarker(
                    endpoints=self._endpoints,
                    transport=self._networks.of(record),
                    resolved=ids_in(record.provenance),
                    owner=record.id,
                    seed=record.seed,
                    stored=[item.closing.marking for item in administrations if item.closing],
                ),
                style=version.prompt_style,
                unparsed_is_wrong=version.unparsed_policy == "wrong",
                repeats=plan.repeats,
            ),
            concurrency=plan.design.concurrency,
            time_limit_s=plan.design.budget.seconds,
            started=time.monotonic(),
        )

    def _examinee(
        self,
        endpoint: ReadyEndpoint,
        record: SessionRecord,
        version: LoadedVersion,
        plan: SessionPlan,
    ) -> RateLimited | Cached:
        calling = RateLimited(endpoint, self._endpoints, self._networks.of(record))
        if not plan.cache:
            return calling
        realm = "" if version.visibility == OPEN and not record.withheld else version.bank_id
        return Cached(calling, self._database, realm)

    async def _loop(self, live: LiveSession) -> None:
        run = live.run
        calls: InFlight[Closing] = InFlight()
        for step in run.pending:
            calls.begin(step, self.ask(live, step))
        closed: dict[int, Closing] = {}
        try:
            while True:
                asked, stop = self._choose(live)
                ending = run.ending(stop) if stop is not None and not run.pending else None
                if closed or asked or ending:
                    await self._store(live, closed, asked, ending)
                if ending is not None:
                    return
                for item in asked:
                    calls.begin(item.step, self.ask(live, item.step))
                closed = await self._next_closed(live, calls)
        finally:
            await calls.give_up()

    def _choose(self, live: LiveSession) -> tuple[list[SelectedItem], Stop | None]:
        """As many new items as may be in flight, and why there are no more."""
        asked: list[SelectedItem] = []
        while len(live.run.pending) < live.concurrency:
            decision = live.run.next_item(elapsed_s=live.elapsed_s())
            if isinstance(decision, Stop):
                return asked, decision
            asked.append(decision)
        return asked, None

    async def _next_closed(self, live: LiveSession, calls: InFlight[Closing]) -> dict[int, Closing]:
        """Wait for the next answers; past the time limit, give up those in flight."""
        closed = await calls.ended(live.time_left_s())
        # The event loop counts in milliseconds and may wake us a little before the limit.
        if not closed and live.is_late():
            given_up = Closing(
                outcome=Outcome.ERROR,
                error_code=StopReason.TIME_LIMIT.value,
                reason="The session's time limit came before the answer.",
            )
            closed = dict.fromkeys(await calls.give_up(), given_up)
        return {step: live.run.close(step, closing) for step, closing in closed.items()}

    async def ask(self, live: LiveSession, step: int) -> Closing:
        """Put one item to the endpoint and mark the answer."""
        position = int(live.run.position(step))
        item = (await patiently(lambda: self._versions.items_at(live.version, [position])))[
            position
        ]
        ITEMS_ASKED.inc()
        closing = await live.asker.ask(
            item,
            # Jitter only spreads calls in time; it does not touch the measurement.
            rng=np.random.default_rng([live.record.seed, step]),
            hints=await _hints(live, item, position),
            on_wait=self.waiting_note(live.record, step),
        )
        OUTCOMES.labels(closing.outcome).inc()
        return closing

    def waiting_note(self, record: SessionRecord, step: int | None = None) -> OnWait:
        """Shows waits of a session: for the answer to a step, or before it goes on at all."""

        async def note(waiting: Waiting | None) -> None:
            if waiting is None:  # the next stored step says that the wait is over
                return
            data = {
                "step": step,
                "until": waiting.until.isoformat(),
                "reason": waiting.reason,
                "attempt": waiting.attempt,
                "error_code": waiting.error_code,
            }
            try:
                async with self._database.unit_of_work() as uow:
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

    async def _store(
        self,
        live: LiveSession,
        closed: dict[int, Closing],
        asked: list[SelectedItem],
        ending: Ending | None,
    ) -> None:
        step = live.run.step_forward(
            closed=closed, asked=asked, elapsed_s=live.elapsed_s(), ending=ending
        )
        await self._write(live.record, step)
        if ending is not None:
            SESSIONS_FINISHED.labels(ending.status).inc()
            logger.info("session_ended", status=ending.status, stop_reason=ending.stop_reason)

    async def _write(self, record: SessionRecord, step: Advance) -> None:
        tries = 0

        async def write() -> None:
            nonlocal tries
            tries += 1
            try:
                async with self._database.unit_of_work() as uow:
                    await uow.sessions.advance(record.id, record.lease_epoch, step)
            except (AlreadyExistsError, StaleStepError):
                # Nobody else writes under this lease: the step was stored before, and only the
                # word of its commit was lost with the connection.
                if tries == 1:
                    raise

        await patiently(write)

    async def fail(self, record: SessionRecord, error: Exception) -> None:
        """End claimed work that cannot go on, with the reason."""
        known = isinstance(error, SextantError)
        detail = error.detail if isinstance(error, SextantError) else FAULT
        async with self._database.unit_of_work() as uow:
            stored = await uow.sessions.get(record.id)
        ending = Ending(
            status="failed",
            stop_reason=StopReason.CUSTOM.value,
            stop_detail=detail,
            precision_reached=None,
            failure={
                "code": error.code
                if isinstance(error, SextantError) and known
                else "internal_error",
                "detail": detail,
            },
        )
        try:
            await self._write(record, abandoned(stored, ending))
        except LeaseLostError:
            logger.info("lease_lost", epoch=record.lease_epoch)
        else:
            SESSIONS_FINISHED.labels("failed").inc()


async def _hints(live: LiveSession, item: BankItem, position: int) -> SimulationHints | None:
    """What a scripted examinee needs; nothing for a real one."""
    if live.endpoint.config.kind != "scripted":
        return None
    bank = live.version.bank

    def probability_right(theta: float) -> float:
        if live.version.is_pretest(position):  # of average difficulty, until somebody knows better
            return 1 / (1 + math.exp(-theta))
        return float(bank.expected_score(theta, [position])[0])

    with scorers.working_for(live.record.id):
        return await hints_of(item, probability_right, [live.record.seed, position])
