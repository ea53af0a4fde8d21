"""Makes sessions from an ended one: extended, replayed (estimated again) or rescored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.engine import StopReason
from app.engine.design.design import stops_when
from app.errors import FieldProblem, InvalidInputError, InvalidStateError, MissingScopeError
from app.items import ItemContent, Outcome, ScorerSpec
from app.records.banks import OPEN
from app.records.endpoints import Endpoint
from app.records.fields import convert
from app.records.sessions import (
    REPLAY,
    RESCORE,
    Administration,
    Asking,
    Ending,
    NewSession,
    Origin,
    Plan,
    Provenance,
    SessionRecord,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.spec import require_usable
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import as_begun
from app.services.leased import Queue
from app.services.sessions.drafts import SessionDraft, check_plan, check_reachable, provenance_of
from app.services.sessions.plan import PretestPlan, SessionPlan, nothing_to_ask
from app.services.sessions.rescoring import Change, changes, old_closings
from app.services.sessions.result import require_ended
from app.services.sessions.run import open_run
from app.services.sessions.service import SessionService
from app.services.visibility import View
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.repositories.banks import scorer_json

#: Relation of a session that continues where another ended.
EXTEND = "extend"
_GOALS = ("se", "score_margin")
#: Reason why a session ended to the rules of `stopping` that were reached.
_REACHED: Mapping[str | None, tuple[str, ...]] = {
    StopReason.SE_TARGET: _GOALS,
    StopReason.SCORE_MARGIN: _GOALS,
    StopReason.DECISION_REACHED: ("cut_score",),
    StopReason.PLATEAU: ("theta_change",),
    StopReason.LOW_INFORMATION: ("min_information",),
}


def _child(parent: SessionRecord, *, metadata: Mapping[str, str], **said: Any) -> NewSession:
    """A new session with the fields of its parent, except those given."""
    said = {"ranking_id": None, "ranking_member": None, **said, "metadata": dict(metadata)}
    return convert(NewSession, parent, id=new_id("ses"), parent_id=parent.id, **said)


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedSessions:
    """Use cases of sessions that start with the answers of an ended session.

    Raises:
        NotFoundError: There is no such session; true of all methods.
        InvalidStateError: The session has not ended; likewise.
    """

    database: Database
    versions: VersionService
    endpoints: EndpointService
    queue: Queue
    sessions: SessionService

    async def extend(
        self, session_id: str, changes: Plan, metadata: Mapping[str, str]
    ) -> SessionRecord:
        """Create a session that continues where an ended one stopped, under a changed design.

        It starts with the old answers; only items that ended in an error may be asked again.

        `changes` are sections of the design to replace, and rules of `stopping` that change.

        Raises:
            InvalidStateError: The session rescores another session, or nothing would be asked.
            InvalidInputError: The design does not allow more items.
            EndpointMovedError: The endpoint now has another address or kind.
        """
        parent, administrations = await self._ended(session_id)
        if parent.relation == RESCORE:
            raise InvalidStateError(f"{_asks_nothing(parent)} {nothing_to_ask(parent)}")
        version = await self.versions.load(parent.bank_version_id)
        version = version.asking_as(parent.provenance["asking"])
        endpoint: Endpoint | None = None
        if parent.endpoint_id is not None:
            endpoint = await self.endpoints.get(parent.endpoint_id, archived=True)
            if endpoint.settings.is_called:
                endpoint = as_begun(endpoint, parent.provenance["endpoint"])
        design: Plan = {**parent.design, **changes}
        if (told := changes.get("stopping")) is not None:
            design["stopping"] = _stopping_later(parent, told)
        plan = SessionPlan.of_new(design)
        price = endpoint.settings.price if endpoint and endpoint.settings.is_called else None
        check_plan(plan, price)
        reachable = await check_reachable(changes, plan, version)
        # Items without an answer are dropped: they may be asked again, as the endpoint may be back.
        closed = [(item, item.closing) for item in administrations if item.closing is not None]
        kept = renumbered([item for item, end in closed if end.outcome != Outcome.ERROR])
        failed = [end.effort() for _, end in closed if end.outcome == Outcome.ERROR]
        provenance = self._provenance(parent, version, endpoint=endpoint, reachable_se=reachable)
        provenance["dropped"] = [*provenance.get("dropped", ()), *failed]
        new = _child(
            parent,
            relation=EXTEND,
            status="queued" if parent.mode == "live" else "awaiting_response",
            design=plan.to_dict(),
            stops_when=stops_when(plan, reachable, version.n_active),
            metadata=metadata,
            provenance=provenance,
        )
        test = await self.versions.adaptive_test(version, plan.design, price)
        draft = SessionDraft(new=new, version=version, plan=plan, test=test)
        # Its advice is on the parent, as the new session may never be stored.
        run = replace(draft, new=replace(new, id=parent.id)).run(kept)
        asked, stop = run.choose(elapsed_s=parent.active_s)
        if stop is not None and not asked:
            n, most = run.state.n_asked, plan.stopping.max_items
            if stop.reason == StopReason.MAX_ITEMS and n < version.n_active:
                place = "/stopping/max_items"
                detail = f"expected more than the {n} questions asked already, got {most}"
                if "max_items" not in changes.get("stopping", {}):
                    detail += ", the limit of the old session, which stays if none is given"
                fault = [FieldProblem(place, detail)]
                raise InvalidInputError(f"{place}: {detail}.", problems=fault)
            raise InvalidStateError(f"{_asks_nothing(parent)} {stop.detail}")
        return await self.sessions.start(draft, kept)

    async def replay(
        self,
        session_id: str,
        changes: Plan,
        *,
        bank_version_id: str | None,
        metadata: Mapping[str, str],
        view: View,
    ) -> SessionRecord:
        """Estimate again from an ended session's answers under other settings, without asking.

        Items that the other bank version does not have are left out and counted in the
        provenance. Another bank has an item if the key and the question are the same.

        Raises:
            MissingScopeError: One of two banks is withheld, and the caller may not write banks.
            InvalidInputError: None of its items is in the other bank version.
        """
        parent, administrations = await self._ended(session_id)
        source = await self.versions.load(parent.bank_version_id)
        source = source.asking_as(parent.provenance["asking"])
        version = source
        closed = [item for item in administrations if item.closing is not None]
        if bank_version_id is not None and bank_version_id != source.id:
            version = await self.versions.load(bank_version_id)
            version = version.asking_as(parent.provenance["asking"])
            if version.bank_id != source.bank_id:
                if not view.shows(withheld=parent.withheld or version.visibility != OPEN):
                    raise MissingScopeError(
                        "The questions that two banks share confirm a guess at a withheld one: a "
                        "replay on another bank needs a key with the scope 'banks:write'."
                    )
                closed = await self._of_the_same_questions(closed, source, version)
            closed = moved(closed, source, version)
        closed = renumbered(closed)
        plan = SessionPlan.of_new({**parent.design, **changes})
        # No item is asked; old pretest items count if the other version has their parameters.
        plan = plan.model_copy(update={"pretest": PretestPlan(items_per_session=0)})
        provenance = self._provenance(parent, version)
        if "rescored_with" in parent.provenance:
            provenance["rescored_with"] = parent.provenance["rescored_with"]
        n_closed = sum(item.closing is not None for item in administrations)
        provenance["left_out"] = n_closed - len(closed)
        new = _child(
            parent,
            relation=REPLAY,
            status="awaiting_response",
            bank_version_id=version.id,
            design=plan.to_dict(),
            stops_when=stops_when(plan, None, version.n_active),
            metadata=metadata,
            provenance=provenance,
        )
        run = await open_run(self.versions, new, as_asked(closed), version=version, plan=plan)
        refitted = {
            item.step: replace(item, closing=run.close(item.step, item.closing))
            for item in sorted(closed, key=lambda item: item.arrival or 0)
            if item.closing is not None
        }
        ending = Ending(
            status="completed",
            stop_reason=parent.stop_reason or "custom",
            stop_detail=f"Replay of {parent.id}: its {len(closed)} answers, estimated again.",
            precision_reached=run.precision_reached,
        )
        step = run.step_forward(closed={}, asked=(), elapsed_s=parent.active_s, ending=ending)
        async with self.database.unit_of_work() as uow:
            await uow.sessions.add(
                new, summary=step.summary, administrations=list(refitted.values())
            )
            await uow.sessions.advance({new.id: step}, 0)
            return await uow.sessions.get(new.id)

    async def rescore(
        self, session_id: str, scorer: ScorerSpec | None, metadata: Mapping[str, str]
    ) -> SessionRecord:
        """Score the stored answers of an ended session again; no model is asked.

        A worker fills a new linked session; the old one stays as it is. Scorers that call out
        keep to their budgets.

        Raises:
            InvalidStateError: The session has no answers.
            InvalidInputError: The scorer cannot be built, or its endpoint cannot serve it.
        """
        if scorer is not None:
            await require_usable(scorer)
        parent, administrations = await self._ended(session_id)
        closed = renumbered([item for item in administrations if item.closing is not None])
        if not closed:
            raise InvalidStateError(f"Session {session_id} holds no answers to score again.")
        present = await self.versions.load(parent.bank_version_id)
        asking: Asking = {
            **parent.provenance["asking"],
            "bank_revision": present.bank_revision,
            "default_scorer": scorer_json(scorer or present.default_scorer),
        }
        version = present.asking_as(asking)
        markers = await self.sessions.markers_of(version, scorer)
        new = _child(
            parent,
            relation=RESCORE,
            status="queued",
            active_s=0.0,
            metadata=metadata,
            provenance={
                **self._provenance(parent, version, markers),
                # The scorers of this session have spent nothing yet.
                "dropped": [
                    {**effort, "marking": None} for effort in parent.provenance.get("dropped", ())
                ],
                "rescored_with": scorer and scorer_json(scorer),
            },
        )
        run = await open_run(self.versions, new, version=version)
        async with self.database.unit_of_work() as uow:
            summary = run.summary(elapsed_s=new.active_s)
            await uow.sessions.add(new, summary=summary, administrations=as_asked(closed))
            await self.queue.enqueue(uow, new.id, is_new=True)
            return await uow.sessions.get(new.id)

    async def changes(self, session_id: str) -> list[Change]:
        """The changes that a rescoring made, by answer.

        Raises:
            InvalidStateError: The session does not rescore another one.
        """
        async with self.database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            if record.relation != RESCORE or record.parent_id is None:
                raise InvalidStateError(
                    f"Session {session_id} is not a rescoring of another session."
                )
            theirs = await uow.sessions.administrations(record.parent_id)
            ours = await uow.sessions.administrations(session_id)
        version = await self.versions.load(record.bank_version_id)
        return changes(version, old_closings(theirs, ours), ours, withheld=record.withheld)

    async def _of_the_same_questions(
        self, asked: Sequence[Administration], source: LoadedVersion, target: LoadedVersion
    ) -> list[Administration]:
        """Those of the items to which no other question has the same key in the other bank."""
        shared = [
            (item, at)
            for item in asked
            if (at := target.position_of(source.key_at(item.position))) is not None
        ]
        ours = await self.versions.items_at(source, [item.position for item, _ in shared])
        theirs = await self.versions.items_at(target, [at for _, at in shared])

        def is_same(item: Administration, at: int) -> bool:
            mine, other = ours[item.position].content, theirs[at].content
            # Parameters without a text belong to any question of their key.
            return mine == other or ItemContent() in (mine, other)

        return [item for item, at in shared if is_same(item, at)]

    async def _ended(self, session_id: str) -> tuple[SessionRecord, list[Administration]]:
        async with self.database.unit_of_work() as uow:
            record = await uow.sessions.get(session_id)
            administrations = await uow.sessions.administrations(session_id)
        require_ended(record)
        return record, administrations

    def _provenance(
        self,
        parent: SessionRecord,
        version: LoadedVersion,
        markers: Mapping[str, Origin] | None = None,
        endpoint: Endpoint | None = None,
        reachable_se: float | None = None,
    ) -> Provenance:
        """Provenance of a derived session, with its parent's random seed.

        Without `markers`, scorers call the parent's endpoints. Without an `endpoint`, nobody is
        asked, and the parent's endpoint is named.
        """
        if markers is None:
            markers = parent.provenance.get("scorer_endpoints", {})
        made = provenance_of(
            version,
            endpoint,
            seed=parent.seed,
            markers=markers,
            private_endpoints=self.sessions.private_endpoints,
            reachable_se=reachable_se,
        )
        if dropped := parent.provenance.get("dropped"):
            made["dropped"] = dropped
        if endpoint is None:
            made["endpoint"] = parent.provenance.get("endpoint")
            made["asked"] = parent.provenance.get("asked", {})
        return made


def _stopping_later(parent: SessionRecord, told: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that end an extended session: those of its parent, with what is told of them.

    A goal that was reached would end it at once, and a goal that is told takes its place.
    """
    if over := _REACHED.get(parent.stop_reason, ()):
        over = (*over, "any_of", "all_of")  # the rule may have been in a list
    if any(told.get(goal) is not None for goal in _GOALS):
        over = (*over, *_GOALS)
    before = {**(parent.design.get("stopping") or {}), **dict.fromkeys(over)}
    least, most = before.get("min_items"), told.get("max_items")
    if least is not None and type(most) is int and most < least:
        before = {**before, "min_items": most}
    return {**before, **told}


def _asks_nothing(parent: SessionRecord) -> str:
    return f"A session that extends {parent.id} would ask nothing."


def renumbered(administrations: Sequence[Administration]) -> list[Administration]:
    """The items with steps and arrivals renumbered from 1 without gaps, in the same order."""
    arrivals = {
        item.step: nth
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.arrival or 0), 1)
    }
    return [
        replace(item, step=nth, arrival=arrivals[item.step])
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.step), 1)
    ]


def as_asked(administrations: Sequence[Administration]) -> list[Administration]:
    """The same items without their answers, as pending."""
    return [replace(item, arrival=None, answered_at=None, closing=None) for item in administrations]


def moved(
    administrations: Sequence[Administration], source: LoadedVersion, target: LoadedVersion
) -> list[Administration]:
    """The same answers at the positions of their items in another version.

    Sampling probabilities depend on the set of askable items. Where the two versions differ in this
    set, the probabilities are unknown and are dropped.

    Raises:
        InvalidInputError: None of the items is in the other version.
    """
    same = _askable(source) == _askable(target)
    moved = [
        replace(item, position=position, probability=item.probability if same else None)
        for item in administrations
        if (position := target.position_of(source.key_at(item.position))) is not None
    ]
    if not moved:
        raise InvalidInputError.at(
            "/bank_version_id",
            f"None of the questions answered is in version {target.number} of bank "
            f"{target.bank_name!r}.",
        )
    return moved


def _askable(version: LoadedVersion) -> frozenset[str]:
    return frozenset(version.keys[at] for at in np.flatnonzero(version.active))
