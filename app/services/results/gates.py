"""Gates: may this model go out, judged by one session?"""

from dataclasses import dataclass, replace
from typing import Any

from app.engine.design.design import Preset
from app.engine.inference.gate import UNKNOWN, GateOutcome, GateResult, gate
from app.engine.prediction.correction import correction_in
from app.engine.prediction.model_error import DEGREES
from app.engine.prediction.p_irt import ALL_ITEMS, COMBINED, DESIGN
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import FieldProblem, InvalidInputError, faults_within
from app.records.gates import GateRecord, GateSpec
from app.records.sessions import ENDED, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.sessions.cautions import cautions_of
from app.services.sessions.derived import EXTEND
from app.services.sessions.drafts import SessionSpec
from app.services.sessions.plan import SessionPlan
from app.services.sessions.result import Result, result_of, score_in
from app.services.sessions.service import SessionService
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate with what its session says by now.

    Attributes:
        value: The metric; `None` where there is none, or not yet.
        result: The decision; `None` while the session goes on.
        detail: Why the outcome is what it is, in one sentence, and what speaks against it.
        extrapolation: Where the examinee stands among those calibrated; None where unknown.
    """

    record: GateRecord
    session: SessionRecord
    value: float | None
    result: GateResult | None
    detail: str
    extrapolation: dict[str, Any] | None = None


class GateService:
    """Use cases of gates.

    Args:
        database: Where they are stored.
        sessions: Starts those that a gate asks for.
        versions: What they ask from.
    """

    def __init__(
        self, database: Database, sessions: SessionService, versions: VersionService
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._versions = versions

    async def create(self, spec: GateSpec, session: str | SessionSpec) -> Gate:
        """Hold a session against a threshold, or start one for the purpose.

        A session that is started for a threshold on theta stops as soon as the gate is decided; one
        for a threshold on a score asks what tells most of it, unless it names a criterion or
        another preset itself.

        Raises:
            NotFoundError: No such session.
            InvalidInputError: A session that cannot be made, or a tag whose score its bank version
                does not predict.
        """
        if isinstance(session, SessionSpec):
            version = await self._versions.load(session.bank_version_id, bank=session.bank)
            _check_tag(version, spec.tag)
            with faults_within("/session"):
                started = await self._sessions.create(_decisive(session, spec))
            session_id = started.id
        else:
            found = await self._sessions.get(session)
            if spec.tag is not None:
                _check_tag(await self._versions.load(found.bank_version_id), spec.tag)
            session_id = found.id
        async with self._database.unit_of_work() as uow:
            record = await uow.gates.add(new_id("gat"), spec, session_id=session_id)
            return await _decided(record, uow)

    async def get(self, gate_id: str) -> Gate:
        """A gate, decided if its session has ended.

        Raises:
            NotFoundError: No such gate.
        """
        async with self._database.reading() as uow:
            return await _decided(await uow.gates.get(gate_id), uow)

    async def list_page(
        self, request: PageRequest, *, session_id: str | None = None, bank_id: str | None = None
    ) -> Page[Gate]:
        """One page of gates that pass every filter given, each decided if its session has ended.

        Raises:
            NotFoundError: `request.after` is no gate.
        """
        async with self._database.reading() as uow:
            found = await uow.gates.list_page(request, session_id=session_id, bank_id=bank_id)
            gates = [await _decided(record, uow) for record in found.items]
        return Page(tuple(gates), found.has_more)


def _check_tag(version: LoadedVersion, tag: str | None) -> None:
    """Refuse a tag whose score the version does not predict."""
    if tag is None:
        return
    if version.bank.abilities is None:
        detail = (
            f"version {version.number} of {version.bank_name!r} measures one ability and "
            "predicts the score of the whole bank alone; scores of tags need the model nested "
            "or mirt"
        )
    elif not version.tag_counts[tag]:
        known = ", ".join(sorted(version.tag_counts)[:20])
        detail = f"no item has the tag {tag!r}; known are {known}"
    else:
        return
    raise InvalidInputError(f"tag: {detail}.", problems=[FieldProblem("/tag", detail)])


def _decisive(session: SessionSpec, spec: GateSpec) -> SessionSpec:
    """The same session, made to decide this gate as far as it leaves that open."""
    plan = dict(session.plan)
    if spec.metric == "theta":
        stopping: dict[str, Any] = dict(plan.get("stopping") or {})
        if stopping.get("cut_score") is not None:
            return session
        stopping["cut_score"] = {"theta": spec.threshold, "confidence": spec.confidence}
        return replace(session, plan={**plan, "stopping": stopping})
    selection: dict[str, Any] = dict(plan.get("selection") or {})
    if "criterion" in selection or plan.get("preset") not in (None, Preset.SCORE):
        return session
    if spec.tag is not None:
        selection.setdefault("target", {spec.tag: 1.0})
    return replace(session, plan={**plan, "preset": Preset.SCORE.value, "selection": selection})


async def _decided(record: GateRecord, uow: UnitOfWork) -> Gate:
    """What the gate's session says by now."""
    session = await uow.sessions.get(record.session_id)
    if session.status not in ENDED:
        return Gate(
            record=record,
            session=session,
            value=None,
            result=None,
            detail=f"The session is {session.status}; the gate is decided when it ends.",
        )
    if session.status == "failed":
        return Gate(
            record=record,
            session=session,
            value=None,
            result=UNKNOWN,
            detail=f"The session failed: {session.stop_detail}",
        )
    result = result_of(session)
    if record.metric == "theta":
        value, (lo, hi), heavy = result.theta, await _to_decide(result, session, uow), False
        looks = SessionPlan.from_dict(session.design).design.stopping.looks
    else:
        score = score_in(session.summary, record.tag or WHOLE_BANK)
        found = score or {"value": None, "lo": None, "hi": None, "method": None}
        value, lo, hi = found["value"], found["lo"], found["hi"]
        heavy, looks = found["method"] == COMBINED, 1.0
    extensions = await _extensions(session, uow)
    decision = gate(
        value,
        lo,
        hi,
        threshold=record.threshold,
        above=record.direction == "above",
        confidence=record.confidence,
        looks=looks,
        degrees=DEGREES if heavy else None,
        earlier=extensions,
    )
    said = _describe(record, value, decision, result.reason, 1 + extensions)
    if decision.outcome is not GateOutcome.INCONCLUSIVE and _is_a_guess(record, session, result):
        decision = replace(decision, outcome=GateOutcome.INCONCLUSIVE, p_beyond=None)
        said = (
            f"{said} That is a guess: intervals of this method of prediction do not hold for such "
            "an examinee, so nothing is decided."
        )
    cautions = cautions_of(session, is_score=record.metric == "score")
    return Gate(
        record=record,
        session=session,
        value=value,
        result=decision,
        detail=said if cautions is None else f"{said} {cautions}",
        extrapolation=result.extrapolation,
    )


async def _to_decide(
    result: Result, session: SessionRecord, uow: UnitOfWork
) -> tuple[float | None, float | None]:
    """The interval of theta; a wider one of whom nobody knows to be like those calibrated."""
    if result.place is None or not result.place.is_open:
        return result.ci
    taught = await uow.versions.learned({session.bank_version_id})
    return result.to_decide(correction_in(taught[session.bank_version_id]))


def _is_a_guess(record: GateRecord, session: SessionRecord, result: Result) -> bool:
    """Whether a score's interval is not made for an examinee unlike those calibrated."""
    if record.metric != "score" or not (result.extrapolation or {}).get("caution"):
        return False
    score = score_in(session.summary, record.tag or WHOLE_BANK)
    return score is not None and score["method"] not in (COMBINED, DESIGN, ALL_ITEMS)


async def _extensions(session: SessionRecord, uow: UnitOfWork) -> int:
    """How often a session went on after it had ended: so often its result was looked at before."""
    found, at = 0, session
    while at.parent_id is not None:
        found += at.relation == EXTEND
        at = await uow.sessions.get(at.parent_id)
    return found


def _describe(
    record: GateRecord, value: float | None, decision: GateResult, reason: str | None, looks: int
) -> str:
    lo, hi = decision.ci
    name = record.metric if record.tag is None else f"{record.metric} of {record.tag}"
    if value is None or lo is None or hi is None:
        return f"Nothing is known of the {name}." if reason is None else f"No {name}: {reason}"
    over = f" over {looks} looks, as the session went on" if looks > 1 else ""
    interval = f"{lo:.3f} to {hi:.3f} ({record.confidence:.0%} interval{over})"
    where = {
        GateOutcome.INCONCLUSIVE: "holds",
        GateOutcome.GO: f"lies wholly {record.direction}",
        GateOutcome.NO_GO: "lies on the wrong side of",
    }[decision.outcome]
    said = f"{name} {value:.3f}, {interval}, {where} the threshold {record.threshold:g}."
    if decision.outcome is GateOutcome.INCONCLUSIVE:
        said += " Extend the session to decide."
    return said
