"""Sessions: create, watch, steer, answer by hand, and make new ones from old answers."""

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version as installed_version
from typing import Any, Protocol

from app.errors import (
    InvalidInputError,
    InvalidStateError,
    LeaseLapsedError,
)
from app.items import Outcome, ScorerSpec
from app.services.endpoints import EndpointService, EndpointSpec, price_in, public
from app.services.loaded_version import LoadedVersion
from app.services.manual_sessions import ask_next
from app.services.pretest import PretestPlan
from app.services.rescoring import RESCORE, Change, changes, old_closings
from app.services.scorer_checks import require_usable
from app.services.scorer_endpoints import described, scorer_endpoints
from app.services.session_checks import (
    check_plan,
    check_reachable,
    reachable_se,
    require_answers,
    require_content,
)
from app.services.session_copies import moved, renumbered
from app.services.session_run import SessionPlan, SessionRun
from app.services.versions import VersionService
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.repositories.bank_values import OPEN, scorer_json
from app.storage.repositories.endpoints import Endpoint, EndpointSettings
from app.storage.repositories.session_values import (
    ENDED,
    LIVE,
    Administration,
    Ending,
    NewSession,
    SessionEvent,
    SessionRecord,
)
from app.storage.unit_of_work import UnitOfWork

_SEED_BITS = 31


class SessionQueue(Protocol):
    """Whoever brings sessions to the workers."""

    def enqueue(self, uow: UnitOfWork, session_id: str) -> Awaitable[None]:
        """Ask for a session to be run, within the given transaction."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """A session to be created.

    Attributes:
        mode: `live` (the server asks an endpoint) or `manual` (the client answers).
        endpoint_id: For live sessions: a stored endpoint.
        endpoint: Or one that is stored with the session, without a name.
        bank_version_id: What is asked.
        bank: Or the newest version of a bank, by its id or name.
        plan: Design and failure limits, as `SessionPlan.from_dict` reads them.
        unparsed_policy: What an answer that nobody can read counts as, `wrong` or `missing`; by
            default as the bank version has it.
        seed: For every random choice; drawn if not given.
        metadata: Free string pairs.
    """

    mode: str
    endpoint_id: str | None = None
    endpoint: EndpointSpec | None = None
    bank_version_id: str | None = None
    bank: str | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    unparsed_policy: str | None = None
    seed: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer:
    """One row of a session's list of responses.

    Attributes:
        withheld: It is an answer to a withheld bank.
    """

    administration: Administration
    item_key: str
    is_pretest: bool
    withheld: bool


class SessionService:
    """Use cases around sessions. Running live ones is `SessionRunner`'s.

    Args:
        database: Where they are stored.
        versions: What is asked.
        endpoints: Who is asked.
        queue: Brings live sessions to the workers.
        private_endpoints: Whether sessions made here may call loopback and private addresses. The
            server that takes the request decides this for whichever worker runs the session.
    """

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        endpoints: EndpointService,
        queue: SessionQueue,
        private_endpoints: bool,
    ) -> None:
        self._database = database
        self._private_endpoints = private_endpoints
        self._versions = versions
        self._endpoints = endpoints
        self._queue = queue

    async def create(self, spec: SessionSpec) -> SessionRecord:
        """Create a session; a live one is queued in the same transaction.

        Raises:
            InvalidInputError: A design that makes no sense for this bank or endpoint.
            NotFoundError: No such endpoint or bank version.
        """
        return await self._start(*await self.draft(spec))

    async def draft(self, spec: SessionSpec) -> tuple[NewSession, LoadedVersion, SessionPlan]:
        """A session that is checked and not stored yet; an endpoint given in place is.

        Raises:
            InvalidInputError: A design that makes no sense for this bank or endpoint.
            NotFoundError: No such endpoint or bank version.
            SecretsError: The key of a saved endpoint cannot be decrypted.
        """
        version_id = spec.bank_version_id
        if version_id is None:
            version_id = await self._versions.resolve(spec.bank or "")
        version = await self._versions.load(version_id)
        if spec.unparsed_policy is not None:
            version = replace(version, unparsed_policy=spec.unparsed_policy)
        plan = SessionPlan.from_dict(spec.plan)
        if plan.pretest.items_per_session is None:
            plan = replace(plan, pretest=PretestPlan(items_per_session=version.pretest_items))
        await check_reachable(spec.plan, plan, version)
        markers = await self._markers_of(version)
        endpoint = None
        if spec.mode == "live":
            require_content(version)
            if spec.endpoint is not None:
                # Checked before it is stored, so that a refused session leaves no endpoint behind.
                await self._check_live(spec.endpoint.settings, plan, version)
                endpoint = await self._endpoints.create(spec.endpoint)
            elif spec.endpoint_id is not None:
                # Opened, so that a secret that cannot be read is said now.
                endpoint = (await self._endpoints.ready(spec.endpoint_id)).endpoint
                await self._check_live(endpoint.settings, plan, version)
            else:
                raise InvalidInputError("A live session needs an endpoint.")
        else:
            check_plan(plan, None)
            await self._versions.adaptive_test(version, plan.design)
        seed = secrets.randbits(_SEED_BITS) if spec.seed is None else spec.seed
        new = NewSession(
            id=new_id("ses"),
            mode=spec.mode,
            status="queued" if spec.mode == "live" else "awaiting_response",
            endpoint_id=endpoint.id if endpoint else None,
            bank_version_id=version.id,
            design=plan.to_dict(),
            seed=seed,
            metadata=dict(spec.metadata),
            provenance={
                **self._provenance(version, endpoint, seed, markers),
                **await self._reach(version, plan),
            },
        )
        return new, version, plan

    async def get(self, session_id: str) -> SessionRecord:
        """One session.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.reading() as uow:
            return await uow.sessions.get(session_id)

    async def list_page(
        self,
        request: PageRequest,
        *,
        status: str | None = None,
        endpoint_id: str | None = None,
        bank_id: str | None = None,
    ) -> Page[SessionRecord]:
        """One page of sessions."""
        async with self._database.reading() as uow:
            return await uow.sessions.list_page(
                request, status=status, endpoint_id=endpoint_id, bank_id=bank_id
            )

    async def delete(self, session_id: str) -> None:
        """Remove an ended session.

        Raises:
            InvalidStateError: It has not ended.
        """
        async with self._database.unit_of_work() as uow:
            await uow.sessions.delete(session_id)

    async def events(
        self, session_id: str, *, after: int = 0, limit: int = 500
    ) -> list[SessionEvent]:
        """Events after number `after`, in order."""
        async with self._database.reading() as uow:
            return await uow.sessions.events(session_id, after=after, limit=limit)

    async def responses(
        self, session_id: str, *, after_step: int = 0, limit: int | None = None
    ) -> list[AskedAnswer]:
        """Items asked after step `after_step`, in order of asking.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.reading() as uow:
            record = await uow.sessions.get(session_id)
            items = await uow.sessions.administrations(session_id, after=after_step, limit=limit)
        version = await self._versions.load(record.bank_version_id)
        return [
            AskedAnswer(
                administration=item,
                item_key=version.key_at(item.position),
                is_pretest=version.is_pretest(item.position),
                withheld=record.withheld,
            )
            for item in items
        ]

    async def cancel(self, session_id: str) -> SessionRecord:
        """End a session where it stands; calls in flight are dropped.

        Raises:
            InvalidStateError: It has ended.
        """
        return await self._transition(
            session_id,
            allowed=(*LIVE, "paused", "awaiting_response"),
            status="cancelled",
            event="session.cancelled",
            stop_reason="cancelled",
            stop_detail="Cancelled on request; the answers so far are kept.",
        )

    async def pause(self, session_id: str) -> SessionRecord:
        """Stop asking until resumed. Pausing a paused session changes nothing.

        Raises:
            InvalidStateError: It is not queued, running or waiting.
        """
        record = await self.get(session_id)
        if record.status == "paused":
            return record
        return await self._transition(
            session_id, allowed=LIVE, status="paused", event="session.paused"
        )

    async def resume(self, session_id: str) -> SessionRecord:
        """Go on with a paused session, or one that failed because its lease ran out too often.

        Resuming a live one changes nothing.

        Raises:
            InvalidStateError: It has ended or waits for a manual answer.
        """
        record = await self.get(session_id)
        if record.status in LIVE:
            return record
        lapsed = (record.failure or {}).get("code") == LeaseLapsedError.code
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.transition(
                session_id,
                allowed=("failed",) if lapsed else ("paused",),
                status="queued",
                event=SessionEvent("session.resumed", {}),
            )
            await self._queue.enqueue(uow, session_id)
        return record

    async def extend(
        self, session_id: str, changes: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> SessionRecord:
        """A new session that goes on where an ended one stopped, under a changed design.

        It begins with the old answers; only items that ended in an error may be asked again.

        Args:
            session_id: The ended session; it stays as it is.
            changes: Sections of the design to replace (`stopping`, `budget`, ...).
            metadata: Of the new session.

        Raises:
            InvalidStateError: The session has not ended, or marks another one's answers again.
        """
        parent, administrations = await self._ended(session_id)
        if parent.relation == RESCORE:
            raise InvalidStateError(
                f"Session {session_id} marks the answers of {parent.parent_id} again: extend that "
                "one, and rescore the result."
            )
        version = await self._versions.load(parent.bank_version_id)
        version = version.asking_as(parent.provenance["asking"])
        endpoint = await self._endpoint_of(parent)
        plan = SessionPlan.from_dict({**parent.design, **changes})
        check_plan(plan, endpoint.settings.price if endpoint else None)
        await check_reachable(changes, plan, version)
        # What failed for want of an answer may be asked again: the endpoint may be back.
        kept = renumbered(
            [
                item
                for item in administrations
                if item.closing is not None and item.closing.outcome != Outcome.ERROR
            ]
        )
        new = NewSession(
            id=new_id("ses"),
            mode=parent.mode,
            status="queued" if parent.mode == "live" else "awaiting_response",
            endpoint_id=parent.endpoint_id,
            bank_version_id=parent.bank_version_id,
            design=plan.to_dict(),
            seed=parent.seed,
            parent_id=parent.id,
            relation="extend",
            metadata=dict(metadata),
            provenance={
                **self._provenance(version, endpoint, parent.seed, _markers_of(parent)),
                **await self._reach(version, plan),
            },
            active_s=parent.active_s,
        )
        return await self._start(new, version, plan, kept)

    async def replay(
        self,
        session_id: str,
        changes: Mapping[str, Any],
        *,
        bank_version_id: str | None,
        metadata: Mapping[str, str],
    ) -> SessionRecord:
        """Estimate again from an ended session's answers, under other settings; asks nothing.

        Items that the other bank version does not have are left out and counted in the
        provenance.

        Raises:
            InvalidStateError: The session has not ended.
            InvalidInputError: None of its items is in the other bank version.
        """
        parent, administrations = await self._ended(session_id)
        source = await self._versions.load(parent.bank_version_id)
        source = source.asking_as(parent.provenance["asking"])
        version = source
        closed = [item for item in administrations if item.closing is not None]
        if bank_version_id is not None and bank_version_id != source.id:
            version = await self._versions.load(bank_version_id)
            version = version.asking_as(parent.provenance["asking"])
            closed = moved(closed, source, version)
        closed = renumbered(closed)
        endpoint = await self._endpoint_of(parent)
        price = endpoint.settings.price if endpoint else None
        plan = SessionPlan.from_dict({**parent.design, **changes})
        # Nothing is asked; what was in pretest counts if the other version has its parameters.
        plan = replace(plan, pretest=PretestPlan(items_per_session=0))
        run = SessionRun(
            test=await self._versions.adaptive_test(version, plan.design, price),
            plan=plan,
            version=version,
            seed=parent.seed,
            administrations=[
                replace(item, arrival=None, answered_at=None, closing=None) for item in closed
            ],
        )
        refitted = {
            item.step: replace(item, closing=run.close(item.step, item.closing))
            for item in sorted(closed, key=lambda item: item.arrival or 0)
            if item.closing is not None
        }
        new = NewSession(
            id=new_id("ses"),
            mode=parent.mode,
            status="awaiting_response",
            endpoint_id=parent.endpoint_id,
            bank_version_id=version.id,
            design=plan.to_dict(),
            seed=parent.seed,
            parent_id=parent.id,
            relation="replay",
            metadata=dict(metadata),
            provenance={
                **self._provenance(version, endpoint, parent.seed, _markers_of(parent)),
                **_rescored_with(parent),
                "left_out": sum(item.closing is not None for item in administrations) - len(closed),
            },
            active_s=parent.active_s,
        )
        ending = Ending(
            status="completed",
            stop_reason=parent.stop_reason or "custom",
            stop_detail=f"Replay of {parent.id}: its {len(closed)} answers, estimated again.",
            precision_reached=run.precision_reached,
        )
        async with self._database.unit_of_work() as uow:
            await uow.sessions.add(new, summary={})
            await uow.sessions.copy_administrations(new.id, list(refitted.values()))
            await uow.sessions.advance(
                new.id,
                0,
                run.step_forward(closed={}, asked=(), elapsed_s=parent.active_s, ending=ending),
            )
            return await uow.sessions.get(new.id)

    async def rescore(
        self, session_id: str, scorer: ScorerSpec | None, metadata: Mapping[str, str]
    ) -> SessionRecord:
        """Mark the stored answers of an ended session again; no model is asked.

        Makes a linked session that a worker fills; the old one stays as it is. Scorers that call
        out do so within their budgets.

        Args:
            session_id: The ended session.
            scorer: Marks every answer; by default what marks each item by now.
            metadata: Of the new session.

        Raises:
            InvalidStateError: The session has not ended, or nothing was answered.
            InvalidInputError: The scorer cannot be built, or its endpoint could not serve.
        """
        if scorer is not None:
            await require_usable(scorer)
        parent, administrations = await self._ended(session_id)
        closed = renumbered([item for item in administrations if item.closing is not None])
        if not closed:
            raise InvalidStateError(f"Session {session_id} holds no answers to mark again.")
        present = await self._versions.load(parent.bank_version_id)
        asking = {
            **parent.provenance["asking"],
            "bank_revision": present.bank_revision,
            "default_scorer": scorer_json(scorer or present.default_scorer),
        }
        version = present.asking_as(asking)
        markers = await (self._markers((scorer,)) if scorer else self._markers_of(version))
        endpoint = await self._endpoint_of(parent)
        plan = SessionPlan.from_dict(parent.design)
        new = NewSession(
            id=new_id("ses"),
            mode=parent.mode,
            status="queued",
            endpoint_id=parent.endpoint_id,
            bank_version_id=version.id,
            design=parent.design,
            seed=parent.seed,
            parent_id=parent.id,
            relation=RESCORE,
            metadata=dict(metadata),
            provenance={
                **self._provenance(version, endpoint, parent.seed, markers),
                "rescored_with": scorer and scorer_json(scorer),
            },
        )
        run = SessionRun(
            test=await self._versions.adaptive_test(version, plan.design, price_in(new.provenance)),
            plan=plan,
            version=version,
            seed=parent.seed,
        )
        async with self._database.unit_of_work() as uow:
            await uow.sessions.add(new, summary=run.summary(elapsed_s=0.0))
            await uow.sessions.copy_asked(new.id, closed)
            await self._queue.enqueue(uow, new.id)
            return await uow.sessions.get(new.id)

    async def changes(self, session_id: str) -> list[Change]:
        """What marking again has changed, answer by answer.

        Raises:
            NotFoundError: No such session.
            InvalidStateError: The session does not mark another one's answers.
        """
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            if record.relation != RESCORE or record.parent_id is None:
                raise InvalidStateError(
                    f"Session {session_id} does not mark the answers of another one again."
                )
            theirs = await uow.sessions.administrations(record.parent_id)
            ours = await uow.sessions.administrations(session_id)
        version = await self._versions.load(record.bank_version_id)
        return changes(version, old_closings(theirs, ours), ours, withheld=record.withheld)

    async def _start(
        self,
        new: NewSession,
        version: LoadedVersion,
        plan: SessionPlan,
        administrations: Sequence[Administration] = (),
    ) -> SessionRecord:
        test = await self._versions.adaptive_test(version, plan.design, price_in(new.provenance))
        async with self._database.unit_of_work() as uow:
            if new.parent_id is None and plan.pretest.items_per_session:
                positions = await uow.versions.draw_pretest(
                    version.id,
                    plan.pretest.items_per_session,
                    seed=new.seed,
                    barred=version.barred,
                    need_content=new.mode == "live",
                )
                plan = replace(plan, pretest=replace(plan.pretest, positions=tuple(positions)))
                new = replace(new, design=plan.to_dict())
            run = SessionRun(
                test=test,
                plan=plan,
                version=version,
                seed=new.seed,
                administrations=administrations,
            )
            await uow.sessions.add(new, summary=run.summary(elapsed_s=new.active_s))
            await uow.sessions.copy_administrations(new.id, administrations)
            if new.mode == "live":
                await self._queue.enqueue(uow, new.id)
            else:
                record = await uow.sessions.get(new.id)
                await ask_next(uow, record, run, {}, elapsed_s=new.active_s)
            return await uow.sessions.get(new.id)

    async def _check_live(
        self, endpoint: EndpointSettings, plan: SessionPlan, version: LoadedVersion
    ) -> None:
        """Refuse a live session that could not work, before anything is stored."""
        check_plan(plan, endpoint.price)
        require_answers(endpoint.kind)
        await self._versions.adaptive_test(version, plan.design, endpoint.price)

    async def _markers_of(self, version: LoadedVersion) -> dict[str, Any]:
        """Endpoints of a version's own scorers; who may ask is not told which those are."""
        try:
            return await self._markers(version.calling_scorers)
        except InvalidInputError as exc:
            if version.visibility == OPEN:
                raise
            raise InvalidInputError(
                f"A scorer of bank {version.bank_name!r} calls an endpoint that is not there or "
                "cannot serve. The bank is withheld: whoever may write it sees which."
            ) from exc

    async def _reach(self, version: LoadedVersion, plan: SessionPlan) -> dict[str, float]:
        """What a test towards an SE can reach at all, for those who are told what will end it."""
        if plan.design.stopping.se is None:
            return {}
        least, _ = await reachable_se(plan.design, version)
        return {"reachable_se": least}

    async def _markers(self, specs: Sequence[ScorerSpec]) -> dict[str, Any]:
        """Endpoints of these scorers; one that cannot serve is refused before any call."""
        if not specs:
            return {}
        async with self._database.reading() as uow:
            return described(await scorer_endpoints(uow, specs))

    def _provenance(
        self,
        version: LoadedVersion,
        endpoint: Endpoint | None,
        seed: int,
        markers: Mapping[str, Any],
    ) -> dict[str, Any]:
        return {
            "code_version": installed_version("sextant"),
            "bank": version.bank_name,
            "bank_version_id": version.id,
            "bank_version": version.number,
            "parameters_hash": version.parameters_hash,
            "scale": version.bank.scale,
            "response_model": version.response_model,
            "provisional": version.provisional,
            "n_items": int(version.active.sum()),
            "asking": version.asking(),
            "unparsed_when_calibrated": version.unparsed_when_calibrated,
            "prompt_template_hash": version.prompt_style.template_hash,
            "endpoint": public(endpoint) if endpoint else None,
            "scorer_endpoints": dict(markers),
            "private_endpoints": self._private_endpoints,
            "seed": seed,
        }

    async def _endpoint_of(self, parent: SessionRecord) -> Endpoint | None:
        if parent.endpoint_id is None:
            return None
        return await self._endpoints.get(parent.endpoint_id, archived=True)

    async def _ended(self, session_id: str) -> tuple[SessionRecord, list[Administration]]:
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            administrations = await uow.sessions.administrations(session_id)
        if record.status not in ENDED:
            raise InvalidStateError(
                f"Session {session_id} is {record.status}; this needs one that has ended."
            )
        return record, administrations

    async def _transition(
        self,
        session_id: str,
        *,
        allowed: Sequence[str],
        status: str,
        event: str,
        stop_reason: str | None = None,
        stop_detail: str | None = None,
    ) -> SessionRecord:
        async with self._database.unit_of_work() as uow:
            return await uow.sessions.transition(
                session_id,
                allowed=allowed,
                status=status,
                event=SessionEvent(event, {}),
                stop_reason=stop_reason,
                stop_detail=stop_detail,
            )


def _rescored_with(parent: SessionRecord) -> dict[str, Any]:
    """What marked all answers of an older session that its copies repeat, if one scorer did."""
    name = "rescored_with"
    return {name: parent.provenance[name]} if name in parent.provenance else {}


def _markers_of(parent: SessionRecord) -> dict[str, Any]:
    """The scorers' endpoints of an older session, which its copies keep."""
    stored: dict[str, Any] = parent.provenance.get("scorer_endpoints", {})
    return stored
