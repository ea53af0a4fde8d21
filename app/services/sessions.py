"""Sessions: create, watch, steer, answer by hand, and make new ones from old answers."""

import math
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version as installed_version
from typing import Any, Protocol

import numpy as np

from app import scorers
from app.engine import Method, Stop
from app.errors import (
    FieldProblem,
    InvalidInputError,
    InvalidStateError,
    StaleStepError,
)
from app.items import Answer, ItemContent, Outcome
from app.services.banks import BankItem, BankService, LoadedVersion
from app.services.endpoints import EndpointService, EndpointSpec, ReadyEndpoint
from app.services.marking import closing_of
from app.services.session_run import SessionPlan, SessionRun
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.repositories.endpoints import Endpoint, Price
from app.storage.repositories.sessions import (
    ENDED,
    LIVE,
    Administration,
    AskedItem,
    Closing,
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
        seed: For every random choice; drawn if not given.
        metadata: Free string pairs.
    """

    mode: str
    endpoint_id: str | None = None
    endpoint: EndpointSpec | None = None
    bank_version_id: str | None = None
    bank: str | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextItem:
    """The item that a manual session waits for."""

    step: int
    step_token: str
    item: BankItem
    version: LoadedVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAnswer:
    """What a client says about an item: its text, a score, or an outcome; exactly one of them."""

    step_token: str
    item_id: str | None = None
    response: str | None = None
    score: float | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer:
    """One row of a session's list of responses."""

    administration: Administration
    item_key: str


class SessionService:
    """Use cases around sessions. Running live ones is `SessionRunner`'s."""

    def __init__(
        self,
        *,
        database: Database,
        banks: BankService,
        endpoints: EndpointService,
        queue: SessionQueue,
    ) -> None:
        self._database = database
        self._banks = banks
        self._endpoints = endpoints
        self._queue = queue

    async def create(self, spec: SessionSpec) -> SessionRecord:
        """Create a session; a live one is queued in the same transaction.

        Raises:
            InvalidInputError: A design that makes no sense for this bank or endpoint.
            NotFoundError: No such endpoint or bank version.
        """
        plan = SessionPlan.from_dict(spec.plan)
        version_id = spec.bank_version_id
        if version_id is None:
            version_id = await self._banks.resolve_version(spec.bank or "")
        version = await self._banks.load_version(version_id)
        endpoint = None
        if spec.mode == "live":
            _require_content(version)
            endpoint_id = spec.endpoint_id
            if spec.endpoint is not None:
                # Checked before it is stored, so that a refused session leaves no endpoint behind.
                _check_plan(plan, spec.endpoint.settings.price)
                endpoint_id = (await self._endpoints.create(spec.endpoint)).id
            if endpoint_id is None:
                raise InvalidInputError("A live session needs an endpoint.")
            endpoint = await self._endpoints.ready(endpoint_id)
        _check_plan(plan, endpoint.endpoint.settings.price if endpoint else None)
        _check_reachable(spec.plan, plan, version)
        seed = secrets.randbits(_SEED_BITS) if spec.seed is None else spec.seed
        new = NewSession(
            id=new_id("ses"),
            mode=spec.mode,
            status="queued" if spec.mode == "live" else "awaiting_response",
            endpoint_id=endpoint.endpoint.id if endpoint else None,
            bank_version_id=version.id,
            design=plan.to_dict(),
            seed=seed,
            metadata=dict(spec.metadata),
            provenance=_provenance(version, endpoint, seed),
        )
        return await self._start(new, version, plan)

    async def get(self, session_id: str) -> SessionRecord:
        """One session.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.unit_of_work() as uow:
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
        async with self._database.unit_of_work() as uow:
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
        async with self._database.unit_of_work() as uow:
            return await uow.sessions.events(session_id, after=after, limit=limit)

    async def responses(
        self, session_id: str, *, after_step: int = 0, limit: int | None = None
    ) -> list[AskedAnswer]:
        """Items asked after step `after_step`, in order of asking.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            items = await uow.sessions.administrations(session_id, after=after_step, limit=limit)
        version = await self._banks.load_version(record.bank_version_id)
        return [
            AskedAnswer(administration=item, item_key=version.keys[item.position]) for item in items
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
        """Go on with a paused session. Resuming a live one changes nothing.

        Raises:
            InvalidStateError: It has ended or waits for a manual answer.
        """
        record = await self.get(session_id)
        if record.status in LIVE:
            return record
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.transition(
                session_id,
                allowed=("paused",),
                status="queued",
                event=SessionEvent("session.resumed", {}),
            )
            await self._queue.enqueue(uow, session_id)
        return record

    async def next_item(self, session_id: str) -> NextItem:
        """The item that a manual session waits for.

        Raises:
            InvalidStateError: It is not a manual session that waits for an answer.
        """
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            awaited = _awaited(record, await uow.sessions.administrations(session_id))
        version = await self._banks.load_version(record.bank_version_id)
        items = await self._banks.items_at(version, [awaited.position])
        return NextItem(
            step=awaited.step,
            step_token=awaited.step_token or "",
            item=items[awaited.position],
            version=version,
        )

    async def answer(self, session_id: str, answer: ManualAnswer) -> SessionRecord:
        """Take one answer of a manual session and choose the next item, or end it.

        Raises:
            InvalidInputError: Not exactly one of response, score and outcome; or another item.
            InvalidStateError: The session does not wait for an answer.
            StaleStepError: The step was answered before, or the token is not its own.
        """
        expected = await self._expected(session_id, answer)
        closing = await _manual_closing(expected, answer)
        async with self._database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id, for_update=True)
            administrations = await uow.sessions.administrations(session_id)
            awaited = _awaited(record, administrations)
            if awaited.step_token != answer.step_token:
                raise _stale(awaited.step)
            run = SessionRun(
                plan=SessionPlan.from_dict(record.design),
                version=expected.version,
                seed=record.seed,
                administrations=administrations,
            )
            closed = {awaited.step: run.close(awaited.step, closing)}
            await self._advance_manually(uow, record, run, closed)
            return await uow.sessions.get(session_id)

    async def extend(
        self, session_id: str, changes: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> SessionRecord:
        """A new session that goes on where an ended one stopped, under a changed design.

        Args:
            session_id: The ended session; it stays as it is.
            changes: Sections of the design to replace (`stopping`, `budget`, ...).
            metadata: Of the new session.

        Raises:
            InvalidStateError: The session has not ended.
        """
        parent, administrations = await self._ended(session_id)
        version = await self._banks.load_version(parent.bank_version_id)
        endpoint = await self._endpoints.ready(parent.endpoint_id) if parent.endpoint_id else None
        plan = SessionPlan.from_dict({**parent.design, **changes})
        _check_plan(plan, endpoint.endpoint.settings.price if endpoint else None)
        _check_reachable(changes, plan, version)
        kept = _renumbered([item for item in administrations if item.closing is not None])
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
            provenance=_provenance(version, endpoint, parent.seed),
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
        source = await self._banks.load_version(parent.bank_version_id)
        version = source
        closed = [item for item in administrations if item.closing is not None]
        if bank_version_id is not None and bank_version_id != source.id:
            version = await self._banks.load_version(bank_version_id)
            closed = _moved(closed, source, version)
        closed = _renumbered(closed)
        plan = SessionPlan.from_dict({**parent.design, **changes})
        run = SessionRun(
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
        endpoint = await self._endpoints.ready(parent.endpoint_id) if parent.endpoint_id else None
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
                **_provenance(version, endpoint, parent.seed),
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

    async def _start(
        self,
        new: NewSession,
        version: LoadedVersion,
        plan: SessionPlan,
        administrations: Sequence[Administration] = (),
    ) -> SessionRecord:
        run = SessionRun(plan=plan, version=version, seed=new.seed, administrations=administrations)
        async with self._database.unit_of_work() as uow:
            await uow.sessions.add(new, summary=run.summary(elapsed_s=new.active_s))
            await uow.sessions.copy_administrations(new.id, administrations)
            if new.mode == "live":
                await self._queue.enqueue(uow, new.id)
            else:
                await self._advance_manually(uow, await uow.sessions.get(new.id), run, {})
            return await uow.sessions.get(new.id)

    async def _advance_manually(
        self, uow: UnitOfWork, record: SessionRecord, run: SessionRun, closed: dict[int, Closing]
    ) -> None:
        decision = run.next_item(elapsed_s=record.active_s)
        asked: list[AskedItem] = []
        ending = None
        if isinstance(decision, Stop):
            ending = run.ending(decision)
        else:
            asked = [replace(decision, step_token=secrets.token_urlsafe(16))]
        await uow.sessions.advance(
            record.id,
            record.lease_epoch,
            run.step_forward(
                closed=closed,
                asked=asked,
                elapsed_s=record.active_s,
                ending=ending,
                status="awaiting_response",
            ),
        )

    async def _expected(self, session_id: str, answer: ManualAnswer) -> NextItem:
        """The awaited item, if the answer's token and key are those of it."""
        expected = await self.next_item(session_id)
        if expected.step_token != answer.step_token:
            raise _stale(expected.step)
        if answer.item_id is not None and answer.item_id != expected.item.key:
            raise InvalidInputError(
                f"Step {expected.step} asked item {expected.item.key!r}, the answer is for "
                f"{answer.item_id!r}."
            )
        return expected

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


async def _manual_closing(expected: NextItem, answer: ManualAnswer) -> Closing:
    given = [answer.response is not None, answer.score is not None, answer.outcome is not None]
    if sum(given) != 1:
        raise InvalidInputError(
            f"Give exactly one of response, score and outcome; got {sum(given)} of them."
        )
    if answer.score is not None:
        if not 0 <= answer.score <= 1:
            raise InvalidInputError(f"A score lies in [0, 1], got {answer.score!r}.")
        return Closing(outcome=Outcome.SCORED.value, score=answer.score)
    if answer.outcome is not None:
        if answer.outcome is Outcome.SCORED:
            raise InvalidInputError("outcome 'scored' needs a score: give the score instead.")
        return Closing(outcome=answer.outcome.value, reason="Reported by the client.")
    item = expected.item
    if item.content == ItemContent():
        raise InvalidInputError(
            f"Item {item.key!r} has no content to score a response against: give a score."
        )
    text = Answer(text=answer.response or "", raw=answer.response or "")
    mark = await scorers.mark(scorers.build(item.scorer), item.content, text)
    return closing_of(mark, text, unparsed_is_wrong=expected.version.unparsed_policy == "wrong")


def _awaited(record: SessionRecord, administrations: Sequence[Administration]) -> Administration:
    if record.mode != "manual":
        raise InvalidStateError(
            f"Session {record.id} is live: the server asks the endpoint itself."
        )
    if record.status != "awaiting_response":
        raise InvalidStateError(f"Session {record.id} is {record.status} and waits for no answer.")
    return next(item for item in administrations if item.closing is None)


def _stale(step: int) -> StaleStepError:
    return StaleStepError(
        f"The step_token is not that of step {step}, which is awaited: the step was "
        "answered before, or never asked. Fetch the next item."
    )


def _require_content(version: LoadedVersion) -> None:
    missing = version.n_without_content
    if missing:
        raise InvalidInputError(
            f"{missing} active items of bank {version.bank_name!r} have parameters but no content, "
            "so no endpoint can be asked. Import the items, or use a manual session."
        )


def _check_plan(plan: SessionPlan, price: Price | None) -> None:
    """Refuse what could never work, before anything is spent. Manual sessions have no price."""
    design = plan.design
    if price is None and design.concurrency != 1:
        raise InvalidInputError(
            "A manual session asks one item at a time.",
            problems=[FieldProblem("/concurrency", f"expected 1, got {design.concurrency}")],
        )
    if design.budget.usd is not None and (price is None or not price.known):
        raise InvalidInputError(
            "A budget in usd needs the endpoint's price; without it the cap would never be met.",
            problems=[FieldProblem("/budget/usd", "set price on the endpoint, or cap tokens")],
        )


#: Where the bank's best precision is looked for, logits.
_THETA_GRID = np.linspace(-4.0, 4.0, 33)


def _check_reachable(asked: Mapping[str, Any], plan: SessionPlan, version: LoadedVersion) -> None:
    """Refuse an SE that was asked for in so many words and that no test on this bank can reach.

    A preset's target is not checked: there the limit on items is the other half of the design.
    """
    target = plan.design.stopping.se
    if target is None or (asked.get("stopping") or {}).get("se") is None:
        return
    active = np.flatnonzero(version.active)
    information = version.bank.information(_THETA_GRID, active).sum(axis=-1)
    estimator = plan.design.estimator
    has_prior = estimator.method in (Method.EAP, Method.MAP)
    prior = estimator.prior_sd**-2 if has_prior else 0.0
    best = int(np.argmax(information))
    reachable = (
        1 / math.sqrt(information[best] + prior) if information[best] + prior > 0 else math.inf
    )
    if target < reachable:
        raise InvalidInputError(
            f"SE {target:g} is out of reach: all {active.size} active items of bank "
            f"{version.bank_name!r} together reach {reachable:.3f} at best (at theta = "
            f"{_THETA_GRID[best]:g}). Ask for a larger SE, or stop by max_items.",
            problems=[FieldProblem("/stopping/se", f"expected at least {reachable:.3f}")],
        )


def _provenance(
    version: LoadedVersion, endpoint: ReadyEndpoint | None, seed: int
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
        "scorer": version.default_scorer.name,
        "unparsed_policy": version.unparsed_policy,
        "prompt_template_hash": version.prompt_style.template_hash,
        "endpoint": _public(endpoint.endpoint) if endpoint else None,
        "seed": seed,
    }


def _public(endpoint: Endpoint) -> dict[str, Any]:
    """What identifies the examinee, no secrets."""
    settings = endpoint.settings
    return {
        "id": endpoint.id,
        "kind": settings.kind,
        "base_url": settings.base_url,
        "model": settings.model,
        "sampling": asdict(settings.sampling),
        "revision": endpoint.revision,
    }


def _renumbered(administrations: Sequence[Administration]) -> list[Administration]:
    """Steps and arrivals counted from 1 without gaps, their order kept."""
    arrivals = {
        item.step: nth
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.arrival or 0), 1)
    }
    return [
        replace(item, step=nth, arrival=arrivals[item.step])
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.step), 1)
    ]


def _moved(
    administrations: Sequence[Administration], source: LoadedVersion, target: LoadedVersion
) -> list[Administration]:
    """The same answers at the positions that their items have in another version."""
    moved = [
        replace(item, position=position)
        for item in administrations
        if (position := target.position_of(source.keys[item.position])) is not None
    ]
    if not moved:
        raise InvalidInputError(
            f"None of the {len(administrations)} answered items is in version {target.number} of "
            f"bank {target.bank_name!r}."
        )
    return moved
