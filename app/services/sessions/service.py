"""Creates, reads, pauses, resumes, cancels and deletes sessions."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.acting import maker, owner
from app.adapters.prompting import LOGLIKELIHOOD
from app.engine.design.design import stops_when
from app.errors import (
    AlreadyExistsError,
    FieldProblem,
    InvalidInputError,
    LeaseLapsedError,
    MissingScopeError,
)
from app.items import ScorerSpec
from app.records.banks import OPEN
from app.records.endpoints import Endpoint, StoredEndpoint
from app.records.fields import convert
from app.records.leased import StoredEvent
from app.records.sessions import (
    ALL_SESSIONS,
    UNDERWAY,
    Administration,
    Examinee,
    NewSession,
    Origin,
    PromptChanges,
    SessionEvent,
    SessionFilter,
    SessionRecord,
    examinee_of_endpoint,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import described, scorer_endpoints
from app.services.leased import Queue
from app.services.sessions.asking import chosen_style
from app.services.sessions.drafts import (
    SessionDraft,
    SessionSpec,
    check_plan,
    check_reachable,
    provenance_of,
    require_answers,
    require_content,
    require_options,
    require_theta,
)
from app.services.sessions.manual import ManualSessions, next_step
from app.services.sessions.plan import PretestPlan, SessionPlan
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest, within_size
from app.storage.unit_of_work import UnitOfWork

_SEED_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer(Administration):
    """One item of a session, with its key in the bank, which may be withheld."""

    item_key: str
    is_pretest: bool
    withheld: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionService:
    """Use cases of sessions. `SessionRunner` runs live sessions.

    Attributes:
        private_endpoints: Whether sessions made here may call loopback and private addresses. The
            server that takes the request decides this for any worker that runs the session.

    Raises:
        NotFoundError: A session or another named object does not exist; true of all methods.
    """

    database: Database
    versions: VersionService
    endpoints: EndpointService
    manual: ManualSessions
    queue: Queue
    private_endpoints: bool

    async def create(self, spec: SessionSpec, *, is_admin: bool = False) -> SessionRecord:
        """Create a session; a live one is queued in the same transaction.

        With `is_admin`, the caller may answer for examinees that other keys named.

        Raises:
            AlreadyExistsError: Another endpoint has the name of the new endpoint, or another
                examinee has the name of this examinee.
            MissingScopeError: Another key named the examinee.
            InvalidInputError: The design makes no sense for this bank or endpoint.
            NotFoundError: The endpoint or the bank version does not exist.
            SecretsError: The key of a saved endpoint cannot be decrypted.
        """
        version = await self.versions.load(spec.bank_version_id, bank=spec.bank)
        if spec.unparsed_policy is not None:
            version = replace(version, unparsed_policy=spec.unparsed_policy)
        # Manual sessions have one item in flight by default.
        wanted = spec.plan if spec.mode == "live" else {"concurrency": 1, **spec.plan}
        plan = SessionPlan.of_new(wanted)
        if plan.pretest.items_per_session is None:
            pretest = PretestPlan(items_per_session=version.pretest_items)
            plan = plan.model_copy(update={"pretest": pretest})
        if plan.stopping.asks_theta:
            require_theta(version, "/stopping")
        reachable = await check_reachable(spec.plan, plan, version)
        endpoint: Endpoint | None = None
        if spec.mode == "live":
            require_content(version)
            chosen = spec.endpoint or spec.endpoint_id
            if chosen is None:
                raise InvalidInputError("A live session needs an endpoint.")
            endpoint = await self.endpoints.to_ask(chosen)
        elif spec.examinee is not None:
            endpoint = await self.named(spec.examinee, is_admin=is_admin)
        seed = secrets.randbits(_SEED_BITS) if spec.seed is None else spec.seed
        draft = await self.draft(
            endpoint,
            version,
            plan,
            prompt=spec.prompt,
            seed=seed,
            reachable_se=reachable,
            metadata=spec.metadata,
        )
        try:
            return await self.start(draft)
        except AlreadyExistsError:
            if spec.examinee is None or draft.endpoint is None:
                raise
            # A concurrent request has just named the examinee: start again with the known name.
            return await self.create(spec, is_admin=is_admin)

    async def named(self, examinee: Examinee, *, is_admin: bool) -> Endpoint:
        """The known examinee of this name, or a new one; raises the errors of `create`."""
        async with self.database.reading() as uow:
            known = await uow.endpoints.by_hand(examinee.name)
        if known is None:
            return Endpoint(id=new_id("end"), settings=examinee.as_endpoint())
        if known.created_by != maker() and not is_admin:
            raise MissingScopeError(
                f"The examinee {examinee.name!r} was named by another key: answering for it needs "
                "that key, or one with the scope 'admin'."
            )
        if (is_now := examinee_of_endpoint(known.settings)) != examinee:
            raise AlreadyExistsError(
                f"The examinee {examinee.name!r} is {is_now.described()}; this request says "
                f"{examinee.described()}. "
                "Another examinee needs another name."
            )
        return known

    async def draft(
        self,
        endpoint: Endpoint | None,
        version: LoadedVersion,
        plan: SessionPlan,
        *,
        seed: int,
        prompt: PromptChanges | None = None,
        reachable_se: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SessionDraft:
        """Draft a live or a manual session; nothing is stored.

        `endpoint` may be the named examinee of a manual session, or None without a name.
        `reachable_se` comes from `check_reachable`.

        Raises:
            InvalidInputError: The plan makes no sense for this bank or endpoint.
        """
        is_live = endpoint is not None and endpoint.settings.is_called
        settings = endpoint.settings if endpoint and is_live else None
        price = None if settings is None else settings.price
        check_plan(plan, price)
        if settings is not None:
            require_answers(settings.kind)
            await self.endpoints.budgets.require_bounds(settings, owner())
        markers = await self.markers_of(version)
        test = await self.versions.adaptive_test(version, plan.design, price)
        if settings is not None:
            style = chosen_style(version.prompt_style, prompt or {}, settings, self.endpoints)
            if style.mode == LOGLIKELIHOOD:
                async with self.database.reading() as uow:
                    require_options(version, await uow.versions.without_options(version.id))
            version = version.put_as(style)
            if plan.repeats > 1 and style.mode == LOGLIKELIHOOD:
                raise InvalidInputError(
                    "Options compared by likelihood give the same answer each time: repeats need "
                    "mode 'generate'.",
                    problems=[FieldProblem("/repeats", f"expected 1, got {plan.repeats}")],
                )
        return SessionDraft(
            new=NewSession(
                id=new_id("ses"),
                mode="live" if is_live else "manual",
                status="queued" if is_live else "awaiting_response",
                endpoint_id=endpoint.id if endpoint else None,
                bank_version_id=version.id,
                design=plan.to_dict(),
                stops_when=stops_when(plan, reachable_se, version.n_active),
                seed=seed,
                provenance=provenance_of(
                    version,
                    endpoint,
                    seed=seed,
                    markers=markers,
                    private_endpoints=self.private_endpoints,
                    reachable_se=reachable_se,
                ),
                metadata=dict(metadata or {}),
            ),
            version=version,
            plan=plan,
            test=test,
            endpoint=None if isinstance(endpoint, StoredEndpoint) else endpoint,
        )

    async def start(
        self, draft: SessionDraft, administrations: Sequence[Administration] = ()
    ) -> SessionRecord:
        """Store a session, and queue it for the workers or ask its first item.

        Raises:
            AlreadyExistsError: Another endpoint has the name of the new endpoint.
        """
        async with self.database.unit_of_work() as uow:
            if draft.endpoint is not None:
                await uow.endpoints.add(draft.endpoint)
            if draft.new.parent_id is None and draft.plan.pretest.items_per_session:
                positions = await uow.versions.draw_pretest(
                    draft.version.id,
                    draft.plan.pretest.items_per_session,
                    seed=draft.new.seed,
                    barred=draft.version.barred,
                    need_content=draft.new.mode == "live",
                )
                pretest = draft.plan.pretest.model_copy(update={"positions": tuple(positions)})
                plan = draft.plan.model_copy(update={"pretest": pretest})
                new = replace(draft.new, design=plan.to_dict())
                draft = replace(draft, plan=plan, new=new)
            new, run = draft.new, draft.run(administrations)
            if new.mode == "live":
                figures = run.summary(elapsed_s=new.active_s)
                await uow.sessions.add(new, summary=figures, administrations=administrations)
                await self.queue.enqueue(uow, new.id, is_new=True)
            else:
                step = next_step(run, {}, elapsed_s=new.active_s)
                await uow.sessions.add(new, summary=step.summary, administrations=administrations)
                await uow.sessions.advance({new.id: step}, 0)
            record = await uow.sessions.get(new.id)
        if record.status == "awaiting_response":
            self.manual.keep(record, run)
        return record

    async def markers_of(
        self, version: LoadedVersion, named: ScorerSpec | None = None
    ) -> dict[str, Origin]:
        """Endpoints of a version's scorers, or of the scorer that the caller names instead.

        Raises:
            InvalidInputError: An endpoint cannot serve; of a withheld bank's scorers it is not
                named.
        """
        specs = version.calling_scorers if named is None else (named,)
        if not specs:
            return {}
        try:
            async with self.database.reading() as uow:
                found = await scorer_endpoints(uow, specs)
            for endpoint in found.values():
                await self.endpoints.budgets.require_bounds(endpoint.settings, owner())
        except InvalidInputError as exc:
            if named is not None or version.visibility == OPEN:
                raise
            raise InvalidInputError(
                f"A scorer of bank {version.bank_name!r} calls an endpoint that is not there or "
                "cannot serve. The bank is withheld: a key that may write it sees which."
            ) from exc
        return described(found)

    async def get(self, session_id: str) -> SessionRecord:
        """One session."""
        async with self.database.reading() as uow:
            return await uow.sessions.get(session_id)

    async def list_page(
        self, request: PageRequest, wanted: SessionFilter = ALL_SESSIONS
    ) -> Page[SessionRecord]:
        """One page of sessions."""
        async with self.database.reading() as uow:
            return await uow.sessions.list_page(request, wanted)

    async def delete(self, session_id: str) -> None:
        """Remove an ended session.

        Raises:
            InvalidStateError: The session has not ended.
        """
        async with self.database.unit_of_work() as uow:
            asked = await uow.removals.endpoints_of(session_id)
            await uow.sessions.delete(session_id)
            await uow.removals.unused(session_id, endpoints=asked)

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 500
    ) -> list[StoredEvent]:
        """Events after number `after`, in order."""
        async with self.database.reading() as uow:
            told = await uow.events.since("session", {session_id: after}, limit=limit)
            return told.get(session_id, [])

    async def responses(
        self, session_id: str, *, after_step: int = 0, limit: int | None = None
    ) -> list[AskedAnswer]:
        """Items asked after step `after_step`, in order of asking."""
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)
            items = await uow.sessions.administrations(session_id, after=after_step, limit=limit)
        return await self._by_name(record, items)

    async def responses_page(
        self, session_id: str, *, after_step: int, limit: int
    ) -> Page[AskedAnswer]:
        """One page of `responses` with at most `limit` items; fewer if their texts are long."""
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)

            async def fetch(last: Administration | None, n: int) -> Sequence[Administration]:
                after = last.step if last else after_step
                return await uow.sessions.administrations(session_id, after=after, limit=n)

            page = await within_size(fetch, limit, _chars)
        return Page(tuple(await self._by_name(record, page.items)), page.has_more)

    async def _by_name(
        self, record: SessionRecord, items: Sequence[Administration]
    ) -> list[AskedAnswer]:
        version = await self.versions.load(record.bank_version_id)
        # Comparisons need the stored theta at each step; nobody sees it where it is withheld.
        hidden: Any = {} if version.theta_withheld is None else {"theta": None, "se": None}
        return [
            convert(
                AskedAnswer,
                item,
                closing=item.closing and replace(item.closing.reported, **hidden),
                item_key=version.key_at(item.position),
                is_pretest=version.is_pretest(item.position),
                withheld=record.withheld,
            )
            for item in items
        ]

    async def cancel(self, session_id: str) -> SessionRecord:
        """End a session now; calls in flight are dropped.

        Raises:
            InvalidStateError: The session has ended.
        """
        detail = "Cancelled on request; the answers so far are kept."
        allowed = (*UNDERWAY, "paused", "awaiting_response")
        async with self.database.unit_of_work() as uow:
            return await _cancelled(uow, session_id, allowed, detail)

    async def end_idle(self) -> list[str]:
        """Cancel the manual sessions whose client was silent longer than `idle_timeout`."""
        detail = "No answer came within idle_timeout; the answers so far are kept."
        async with self.database.unit_of_work() as uow:
            idle = await uow.sessions.idle()
            for session_id in idle:
                await _cancelled(uow, session_id, ("awaiting_response",), detail)
        return idle

    async def pause(self, session_id: str) -> SessionRecord:
        """Stop asking until the session is resumed. Pausing a paused session changes nothing.

        Raises:
            InvalidStateError: The session is not queued, running or waiting.
        """
        record = await self.get(session_id)
        if record.status == "paused":
            return record
        event = SessionEvent("session.paused", {})
        async with self.database.unit_of_work() as uow:
            return await uow.sessions.transition(
                session_id, allowed=UNDERWAY, status="paused", event=event
            )

    async def resume(self, session_id: str) -> SessionRecord:
        """Continue a paused session, or one that failed because its lease ran out too often.

        Resuming a session that is under way changes nothing.

        Raises:
            InvalidStateError: The session has ended, or waits for a manual answer.
        """
        record = await self.get(session_id)
        if record.status in UNDERWAY:
            return record
        failure = record.failure
        lapsed = failure is not None and failure["code"] == LeaseLapsedError.code
        async with self.database.unit_of_work() as uow:
            record = await uow.sessions.transition(
                session_id,
                allowed=("failed",) if lapsed else ("paused",),
                status="queued",
                event=SessionEvent("session.resumed", {}),
            )
            await self.queue.enqueue(uow, session_id)
        return record


async def _cancelled(
    uow: UnitOfWork, session_id: str, allowed: Sequence[str], detail: str
) -> SessionRecord:
    return await uow.sessions.transition(
        session_id,
        allowed=allowed,
        status="cancelled",
        event=SessionEvent("session.cancelled", {}),
        stop_reason="cancelled",
        stop_detail=detail,
    )


def _chars(item: Administration) -> int:
    """Number of characters in the texts of an answer, repeats included."""
    closing = item.closing
    if closing is None:
        return 0
    texts = (closing.answer_text, closing.raw_text, closing.reasoning)
    repeats = None if closing.method is None else closing.method.get("repeats")
    return sum(len(text) for text in texts if text) + (len(str(repeats)) if repeats else 0)
