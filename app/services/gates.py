"""Gates: may this model go out, judged by one session?"""

from dataclasses import dataclass, replace
from typing import Any

from app.engine.gate import UNKNOWN, GateOutcome, GateResult, gate
from app.errors import FieldProblem, InvalidInputError
from app.services.results import result_of
from app.services.sessions import SessionService, SessionSpec
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.repositories.gates import GateRecord
from app.storage.repositories.session_values import ENDED, SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """What a session's result is held against.

    Attributes:
        metric: `theta`, or `score`: the predicted score on the whole bank.
        threshold: In the metric's unit.
        direction: `above` or `below`: where a go lies.
        confidence: Of the interval that must lie wholly on one side.
    """

    metric: str = "theta"
    threshold: float
    direction: str = "above"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.metric == "score" and not 0 <= self.threshold <= 1:
            detail = f"expected a share from 0 to 1, got {self.threshold:g}"
            raise InvalidInputError(
                f"threshold: {detail}.", problems=[FieldProblem("/threshold", detail)]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate with what its session says by now.

    Attributes:
        value: The metric; `None` where there is none, or not yet.
        result: The decision; `None` while the session goes on.
        detail: Why the outcome is what it is, in one sentence.
    """

    record: GateRecord
    session: SessionRecord
    value: float | None
    result: GateResult | None
    detail: str


class GateService:
    """Use cases of gates.

    Args:
        database: Where they are stored.
        sessions: Starts those that a gate asks for.
    """

    def __init__(self, database: Database, sessions: SessionService) -> None:
        self._database = database
        self._sessions = sessions

    async def create(self, spec: GateSpec, session: str | SessionSpec) -> Gate:
        """Hold a session against a threshold, or start one for the purpose.

        A session that is started for a threshold on theta stops as soon as the gate is decided.

        Raises:
            NotFoundError: No such session.
            InvalidInputError: A session that cannot be made.
        """
        if isinstance(session, SessionSpec):
            session_id = (await self._sessions.create(_decisive(session, spec))).id
        else:
            session_id = (await self._sessions.get(session)).id
        async with self._database.unit_of_work() as uow:
            record = await uow.gates.add(
                new_id("gat"),
                session_id=session_id,
                metric=spec.metric,
                threshold=spec.threshold,
                direction=spec.direction,
                confidence=spec.confidence,
            )
            return _decided(record, await uow.sessions.get(session_id))

    async def get(self, gate_id: str) -> Gate:
        """A gate, decided if its session has ended.

        Raises:
            NotFoundError: No such gate.
        """
        async with self._database.reading() as uow:
            record = await uow.gates.get(gate_id)
            return _decided(record, await uow.sessions.get(record.session_id))


def _decisive(session: SessionSpec, spec: GateSpec) -> SessionSpec:
    """The same session, with the gate's own rule as a goal unless it names a cut score itself."""
    stopping: dict[str, Any] = dict(session.plan.get("stopping") or {})
    if spec.metric != "theta" or stopping.get("cut_score") is not None:
        return session
    stopping["cut_score"] = {"theta": spec.threshold, "confidence": spec.confidence}
    return replace(session, plan={**session.plan, "stopping": stopping})


def _decided(record: GateRecord, session: SessionRecord) -> Gate:
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
        value, (lo, hi) = result.theta, result.ci
    else:
        found = result.accuracy or {"value": None, "lo": None, "hi": None}
        value, lo, hi = found["value"], found["lo"], found["hi"]
    decision = gate(
        value,
        lo,
        hi,
        threshold=record.threshold,
        above=record.direction == "above",
        confidence=record.confidence,
    )
    return Gate(
        record=record,
        session=session,
        value=value,
        result=decision,
        detail=_said(record, value, decision),
    )


def _said(record: GateRecord, value: float | None, decision: GateResult) -> str:
    lo, hi = decision.ci
    if value is None or lo is None or hi is None:
        return f"Nothing is known of the {record.metric}."
    interval = f"{lo:.3f} to {hi:.3f} ({record.confidence:.0%} interval)"
    where = {
        GateOutcome.INCONCLUSIVE: "holds",
        GateOutcome.GO: f"lies wholly {record.direction}",
        GateOutcome.NO_GO: "lies on the wrong side of",
    }[decision.outcome]
    said = f"{record.metric} {value:.3f}, {interval}, {where} the threshold {record.threshold:g}."
    if decision.outcome is GateOutcome.INCONCLUSIVE:
        said += " Extend the session to decide."
    return said
