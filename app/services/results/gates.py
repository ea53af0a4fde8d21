"""Gates: when a release is decided, what speaks against it, what is refused; and baselines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from app.acting import maker
from app.engine.design.design import Preset
from app.engine.inference.comparison import OF_RELEASES
from app.engine.inference.gate import UNKNOWN, GateOutcome, GateResult, gate
from app.engine.prediction.correction import correction_in
from app.engine.prediction.p_irt import BY_SAMPLE
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.state import Z_95
from app.errors import InvalidInputError, MissingScopeError, faults_within
from app.records.fields import ends
from app.records.figures import ExtrapolationFigures
from app.records.gates import BASELINE_LIMITS, Baseline, GateRecord, GateSpec, NamedBaseline
from app.records.leased import ENDED
from app.records.sessions import Plan, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.results.measured import (
    Measured,
    apart,
    between_abilities,
    between_scores,
    degrees_of,
    unasked_of,
)
from app.services.sessions.derived import EXTEND
from app.services.sessions.drafts import SessionSpec
from app.services.sessions.plan import SessionPlan
from app.services.sessions.result import Result, cautions_of, result_in, result_of, score_in
from app.services.sessions.service import SessionService
from app.storage.database import Database
from app.storage.identifiers import may_name, new_id
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork

#: Parts of a design that say which items are asked, and when the session stops.
_ASKING = ("preset", "selection", "stopping", "estimator", "prediction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A gate with the present result of its session.

    Attributes:
        value: Value compared with the threshold; `None` where there is none, or not yet.
        result: The decision; `None` while the session is running.
        detail: Reason for the outcome in one sentence, followed by cautions.
        extrapolation: Position of the examinee among the reference models; None where unknown.
    """

    record: GateRecord
    session: SessionRecord
    value: float | None = None
    result: GateResult | None = None
    detail: str
    extrapolation: ExtrapolationFigures | None = None


@dataclass(frozen=True, eq=False)
class GateService:
    """Creates, decides and lists gates.

    Raises:
        NotFoundError: There is no such gate or session; true of all methods.
    """

    database: Database
    sessions: SessionService
    versions: VersionService

    async def create(self, spec: GateSpec, session: str | SessionSpec) -> Gate:
        """Compare a session with a threshold, or start a session for the gate.

        A session started for a threshold on theta stops as soon as the gate is decided. One for a
        threshold on a score asks the items that tell most about that score, unless it names a
        criterion or another preset. One against a baseline is asked as the baseline was.

        Raises:
            InvalidInputError: The session cannot be created, its bank version does not predict the
                score of the tag, or it has other questions or another scale than the baseline.
        """
        if isinstance(session, SessionSpec):
            version = await self.versions.load(session.bank_version_id, bank=session.bank)
            if spec.baseline is not None:
                before = await self.versions.load(spec.baseline.bank_version_id)
                # A deleted bank's name may be another bank's by now.
                session = _as(spec.baseline, session, keep=before.bank_id == version.bank_id)
                version = await self.versions.load(session.bank_version_id, bank=session.bank)
            else:
                session = _decisive(session, spec)
            await self._check(version, spec)
            with faults_within("/session"):
                session_id = (await self.sessions.create(session)).id
        else:
            found = await self.sessions.get(session)
            if spec.tag is not None or spec.baseline is not None:
                await self._check(await self.versions.load(found.bank_version_id), spec)
            if spec.baseline is not None:
                async with self.database.reading() as uow:
                    lineage, _ = await lineage_of(found, uow)
                if not set(lineage).isdisjoint(spec.baseline.lineage):  # they prove nothing
                    raise _unfit(
                        f"session {found.id} shares answers with the baseline; gate a new session"
                    )
            session_id = found.id
        async with self.database.unit_of_work() as uow:
            record = await uow.gates.add(new_id("gat"), spec, session_id=session_id)
        return await self._decided(record)

    async def _check(self, version: LoadedVersion, spec: GateSpec) -> None:
        """Refuse a tag or baseline that sessions on this version cannot be judged by."""
        if spec.tag is not None:
            if version.bank.abilities is None:
                detail = (
                    f"version {version.number} of {version.bank_name!r} measures one ability and "
                    "predicts the score of the whole bank alone; scores of tags need the model "
                    "nested or mirt"
                )
                raise InvalidInputError.of_field("tag", detail)
            version.require_tags([spec.tag], "/tag")
        if spec.baseline is None:
            return
        kept = result_in(spec.baseline.summary)
        if (kept.theta if spec.metric == "theta" else kept.score) is None:
            raise _unfit(f"it has no {spec.metric}: {kept.reason or 'none was predicted'}")
        before = await self.versions.load(spec.baseline.bank_version_id)
        if spec.metric == "theta":
            is_alike, what = version.bank.scale == before.bank.scale, "on another scale"
        else:
            is_alike, what = version.has_questions_of(before), "of other questions"
        if not is_alike and before.bank_id != version.bank_id:
            raise _unfit(
                f"its bank {before.bank_name!r} is not the bank {version.bank_name!r} of today: a "
                "deleted bank's name may be taken again; set the baseline to a session on this one"
            )
        if not is_alike:
            raise _unfit(
                f"the {spec.metric} of version {before.number} of {before.bank_name!r} is {what} "
                f"than that of version {version.number} of {version.bank_name!r}"
            )

    async def get(self, gate_id: str) -> Gate:
        """A gate, decided if its session has ended."""
        async with self.database.reading() as uow:
            record = await uow.gates.get(gate_id)
        return await self._decided(record)

    async def list_page(
        self, request: PageRequest, *, session_id: str | None = None, bank_id: str | None = None
    ) -> Page[Gate]:
        """One page of gates that pass all given filters, each decided if its session has ended."""
        async with self.database.reading() as uow:
            found = await uow.gates.list_page(request, session_id=session_id, bank_id=bank_id)
        gates = [await self._decided(record) for record in found.items]
        return Page(tuple(gates), found.has_more)

    async def _decided(self, record: GateRecord) -> Gate:
        """The gate with its session's present result, decided if the session has ended."""
        async with self.database.reading() as uow:
            session = await uow.sessions.get(record.session_id)
            if session.status not in ENDED:
                going_on = f"The session is {session.status}; the gate is decided when it ends."
                return Gate(record=record, session=session, detail=going_on)
            if session.status == "failed":
                failed = f"The session failed: {session.stop_detail}"
                return Gate(record=record, session=session, result=UNKNOWN, detail=failed)
            _, looked_before = await lineage_of(session, uow)
            found = await _found(record, session, uow)
            asked = await uow.sessions.administrations(session.id) if record.baseline else []
        result, more = result_of(session), cautions_of(session, is_score=record.metric == "score")
        cautions, results = [more], [result]
        if (baseline := record.baseline) is not None:
            version = await self.versions.load(session.bank_version_id)
            before = Measured.of_baseline(
                baseline, await self.versions.load(baseline.bank_version_id)
            )
            found = _difference(record, Measured.of_session(session, version, asked), before, found)
            looked_before += baseline.extensions
            results.append(before.result)
            kept = baseline.cautions[record.metric]
            cautions.append(apart([session, baseline]))
            if kept is not None and kept != more:
                cautions.append(f"Of the baseline: {kept}")
        decide = partial(
            gate,
            found.value,
            threshold=record.threshold,
            above=record.direction == "above",
            confidence=record.confidence,
            looks=found.looks,
            degrees=found.degrees,
            earlier=looked_before,
        )
        decision = decide(found.lo, found.hi)
        if found.limit and decide(*found.limit).outcome is GateOutcome.INCONCLUSIVE:
            found = replace(found, advice=found.if_limited)
        said = _describe(record, found, decision, result.reason, 1 + looked_before)
        if decision.outcome is not GateOutcome.INCONCLUSIVE and _is_a_guess(record, results):
            decision = replace(decision, outcome=GateOutcome.INCONCLUSIVE, p_beyond=None)
            said = (
                f"{said} This method of prediction has no valid intervals for such an examinee, "
                "so nothing is decided."
            )
        return Gate(
            record=record,
            session=session,
            value=found.value,
            result=decision,
            detail=" ".join(filter(None, (said, *cautions))),
            extrapolation=result.extrapolation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Value that is compared with the threshold, and its 95 % interval; see `gate`.

    Against a baseline, `limit` is that interval without the session's own error. If it is too wide
    already, `if_limited` is the advice.
    """

    value: float | None
    lo: float | None
    hi: float | None
    looks: float = 1.0
    degrees: float | None = None
    advice: str = ""
    limit: tuple[float, float] | None = None
    if_limited: str = ""


_MORE = "Ask more questions to decide."
_OF_BASELINE = "Ask more questions of the baseline to decide."


async def _found(record: GateRecord, session: SessionRecord, uow: UnitOfWork) -> _Found:
    """The session's own metric, without any baseline."""
    result = result_of(session)
    advice = _MORE if unasked_of(session.summary, session.provenance["n_items"]) else ""
    if record.metric == "theta":
        lo, hi = result.interval
        if result.place is not None and result.place.is_open:
            # Wider where the examinee may be unlike the reference models.
            taught = await uow.versions.learned({session.bank_version_id})
            lo, hi = result.to_decide(correction_in(taught[session.bank_version_id]))
        looks = SessionPlan.from_dict(session.design).stopping.looks
        return _Found(value=result.theta, lo=lo, hi=hi, looks=looks, advice=advice)
    told = score_in(session.summary, record.tag or WHOLE_BANK)
    if told is None:
        return _Found(value=None, lo=None, hi=None)
    lo, hi = ends(told["interval"])
    return _Found(value=told["value"], lo=lo, hi=hi, degrees=degrees_of(told), advice=advice)


def _difference(record: GateRecord, one: Measured, before: Measured, alone: _Found) -> _Found:
    """The session's metric minus the baseline's; `alone` is the session's own metric."""
    if record.metric == "score":
        found = between_scores(one, before, 0.95)
    else:
        found = between_abilities(one, before, 0.95, OF_RELEASES)
    if found is None:
        return _Found(value=None, lo=None, hi=None)
    advice = alone.advice
    if before.n_unasked and (not advice or len(one.residuals) > len(before.residuals)):
        advice = "Ask more questions, of the baseline, too, to decide." if advice else _OF_BASELINE
    known = before.result.score if record.metric == "score" else None
    return replace(
        alone,
        value=found.delta,
        lo=found.lo,
        hi=found.hi,
        degrees=alone.degrees or (known and degrees_of(known)),
        advice=advice,
        limit=_limit(record, found.delta, before),
        if_limited=f"{BASELINE_LIMITS} {_OF_BASELINE if before.n_unasked else ''}".strip(),
    )


def _limit(record: GateRecord, delta: float, before: Measured) -> tuple[float, float] | None:
    """The 95 % interval of a difference by the baseline's error alone."""
    if record.metric == "score":
        known = before.score
        if known is None or known.lo == known.hi:  # known exactly: it limits nothing
            return None
        return delta + known.value - known.hi, delta + known.value - known.lo
    if before.ability is None:
        return None
    half = Z_95 * OF_RELEASES * before.ability.stated().sd
    return delta - half, delta + half


def _as(baseline: Baseline, session: SessionSpec, *, keep: bool) -> SessionSpec:
    """The session with the baseline's settings wherever it sets none of its own.

    With the same seed, two similar models are asked mostly the same questions, and the error that
    they share cancels from their difference. `keep` says whether to keep to its bank version.
    """
    plan = session.plan
    if plan.get("preset") is None:
        kept = cast(Plan, {name: part for name, part in baseline.design.items() if name in _ASKING})
        # The baseline's cut score was the threshold of another gate.
        kept["stopping"] = {**kept.get("stopping", {}), "cut_score": None}
        plan = {**kept, **plan}
    return replace(
        session,
        plan=plan,
        seed=baseline.seed if session.seed is None else session.seed,
        unparsed_policy=session.unparsed_policy
        or baseline.provenance["asking"].get("unparsed_policy"),
        bank_version_id=session.bank_version_id or (baseline.bank_version_id if keep else None),
    )


def _unfit(detail: str) -> InvalidInputError:
    """Error for a baseline that the session cannot be compared with."""
    return InvalidInputError.at("/baseline", f"baseline: {detail.removesuffix('.')}.")


def _decisive(session: SessionSpec, spec: GateSpec) -> SessionSpec:
    """The session, designed to decide this gate wherever it sets no design of its own."""
    plan = session.plan
    if spec.metric == "theta":
        stopping = dict(plan.get("stopping") or {})
        if stopping.get("cut_score") is not None:
            return session
        stopping["cut_score"] = {"theta": spec.threshold, "confidence": spec.confidence}
        return replace(session, plan={**plan, "stopping": stopping})
    selection = dict(plan.get("selection") or {})
    if "criterion" in selection or plan.get("preset") not in (None, Preset.SCORE):
        return session
    if spec.tag is not None:
        selection.setdefault("target", {spec.tag: 1.0})
    return replace(session, plan={**plan, "preset": Preset.SCORE.value, "selection": selection})


def _is_a_guess(record: GateRecord, results: Sequence[Result]) -> bool:
    """Whether a score's method makes no allowance for an examinee unlike the reference models."""
    return record.metric == "score" and any(
        result.extrapolation is not None
        and result.extrapolation["caution"]
        and result.score is not None
        and result.score["method"] not in BY_SAMPLE
        for result in results
    )


def _describe(
    record: GateRecord, found: _Found, decision: GateResult, reason: str | None, looks: int
) -> str:
    value, (lo, hi) = found.value, decision.interval
    name = record.metric if record.tag is None else f"{record.metric} of {record.tag}"
    if value is None or lo is None or hi is None:
        return f"Nothing is known of the {name}." if reason is None else f"No {name}: {reason}"
    is_open = decision.outcome is GateOutcome.INCONCLUSIVE
    ask = f" {found.advice}" if is_open and found.advice else ""
    over = f", adjusted for {looks} looks" if looks > 1 else ""
    of_interval = f"({100 * record.confidence:g} % interval{over})"
    is_score = record.metric == "score"
    times = 100 if is_score else 1
    value, lo, hi, mark = (times * one for one in (value, lo, hi, record.threshold))
    if record.baseline is not None:
        unit, digits = ("points", 1) if is_score else ("logits", 2)
        more = "less" if record.direction == "above" else "more"
        said = (
            f"{name} {value:+z.{digits}f} {unit} from that of {record.baseline_name}, "
            f"{lo:+z.{digits}f} to {hi:+z.{digits}f} {of_interval}: up to "
            f"{abs(mark):g} {unit} {more} may pass."
        )
        return said + ask
    digits, unit = (1, " %") if is_score else (2, "")
    interval = f"{lo:.{digits}f} to {hi:.{digits}f}{unit} {of_interval}"
    where = {
        GateOutcome.INCONCLUSIVE: "includes",
        GateOutcome.GO: f"lies {record.direction}",
        GateOutcome.NO_GO: f"lies {'below' if record.direction == 'above' else 'above'}",
    }[decision.outcome]
    said = f"{name} {value:.{digits}f}{unit}, {interval}, {where} the threshold {mark:g}{unit}."
    return said + ask


@dataclass(frozen=True, eq=False)
class BaselineService:
    """Creates, moves, reads and deletes baselines.

    Raises:
        NotFoundError: There is no such baseline or session; true of all methods.
        InvalidStateError: A session has not ended, or has failed; likewise.
    """

    database: Database
    versions: VersionService

    async def put(self, name: str, session_id: str, *, is_admin: bool) -> NamedBaseline:
        """Name the result of an ended session, or move an existing name to it.

        Raises:
            InvalidInputError: The name has the form of a session's id.
            MissingScopeError: Another key made the baseline.
            StorageFullError: The project, or this key of it, has reached its storage limit.
        """
        if may_name(name, "ses_"):
            detail = "expected a name of your own, got the id of a session"
            raise InvalidInputError.of_field("name", detail)
        baseline = await self.of_session(session_id)
        async with self.database.unit_of_work() as uow:
            moved = await uow.baselines.put(name, baseline, is_admin=is_admin)
        if moved is None:
            raise _another_keys(name)
        return moved

    async def get(self, name: str) -> NamedBaseline:
        """One baseline."""
        async with self.database.reading() as uow:
            return await uow.baselines.get(name)

    async def delete(self, name: str, *, is_admin: bool) -> None:
        """Delete a baseline. Gates made against it keep their copy of its result.

        Raises:
            MissingScopeError: Another key made the baseline.
        """
        async with self.database.unit_of_work() as uow:
            if (await uow.baselines.get(name)).created_by != maker() and not is_admin:
                raise _another_keys(name)
            await uow.baselines.delete(name)

    async def of(self, name: str) -> Baseline:
        """The baseline with a name, or the result of the session with an id."""
        if may_name(name, "ses_"):
            return await self.of_session(name)
        return (await self.get(name)).baseline

    async def of_session(self, session_id: str) -> Baseline:
        """The result of an ended session in the form that is kept apart from the session."""
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)
            asked = await uow.sessions.administrations(session_id)
            lineage, extensions = await lineage_of(record, uow)
        version = await self.versions.load(record.bank_version_id)
        measured = Measured.of_session(record, version, asked)
        return Baseline(
            session_id=record.id,
            label=measured.label,
            lineage=lineage,
            extensions=extensions,
            withheld=record.withheld,
            bank=record.bank_name,
            bank_version_id=record.bank_version_id,
            seed=record.seed,
            design=record.design,
            provenance={
                "asked": record.provenance.get("asked", {}),
                "asking": record.provenance["asking"],
            },
            summary={
                "estimate": record.summary["estimate"],
                "score": record.summary["score"],
                "progress": record.summary["progress"],
                "outcomes": record.summary["outcomes"],
                "profile": record.summary.get("profile"),
            },
            residuals=dict(measured.residuals),
            cautions={
                metric: cautions_of(record, is_score=metric == "score")
                for metric in ("score", "theta")
            },
        )


async def lineage_of(session: SessionRecord, uow: UnitOfWork) -> tuple[list[str], int]:
    """Ids of a session and its ancestors, and the number of extensions among them."""
    lineage, extensions, at = [session.id], 0, session
    while at.parent_id is not None:
        extensions += at.relation == EXTEND
        at = await uow.sessions.get(at.parent_id)
        lineage.append(at.id)
    return lineage, extensions


def _another_keys(name: str) -> MissingScopeError:
    return MissingScopeError(
        f"The baseline {name!r} was made by another key: changing it needs that key, or one with "
        "the scope 'admin'."
    )
