"""Makes reports of sessions, and exports ended sessions as files for other tools."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.errors import InvalidStateError
from app.exchange.every_eval_ever import (
    EvaluatedItem,
    EvaluatedTest,
    Measured,
    aggregate,
    instance_lines,
)
from app.exchange.files import FileFormat
from app.items import ItemContent, Outcome
from app.records.banks import BankVersion
from app.records.fields import convert, ends
from app.records.figures import EstimateFigures, ScoreFigures
from app.records.sessions import SessionRecord
from app.reports.figures import unscored, whole_bank
from app.reports.headline import headline_of
from app.reports.session.build import Asked, Known, session_report
from app.reports.session.facts import Ended, SessionIdentity, SessionReport
from app.services.banks.joins import JoinChecks
from app.services.banks.loaded import BankItem, LoadedVersion
from app.services.banks.versions import VersionService
from app.services.sessions.plan import SessionPlan
from app.services.sessions.result import cautions_of, score_in
from app.services.sessions.service import AskedAnswer, SessionService
from app.services.visibility import View
from app.storage.database import Database


class SessionFormat(FileFormat):
    """Export formats of a session: the object of Every Eval Ever, and its lines of items."""

    EEE = "eee", "application/json", "eee.json"
    EEE_ITEMS = "eee-items", "application/x-ndjson", "eee.jsonl"


@dataclass(frozen=True, eq=False)
class SessionReports:
    """Reports of sessions in any state, and exports of ended ones."""

    database: Database
    versions: VersionService
    sessions: SessionService
    joins: JoinChecks

    async def report(self, session_id: str, *, reveal: bool) -> SessionReport:
        """The report of a session as of now.

        Raises:
            NotFoundError: There is no such session.
        """
        view = View(is_whole=reveal)
        record = view.session(await self.sessions.get(session_id))
        version = await self.versions.load(record.bank_version_id)
        answers, items = await self._answers(record, version, view)
        async with self.database.reading() as uow:
            stored = await uow.versions.get(record.bank_version_id)
        known = await self._known(record, version, stored)
        record = replace(record, join=None if known.join is None else known.join.verdict)
        return await asyncio.to_thread(
            lambda: session_report(
                _identity(record, stored, version.n_reference),
                record.summary,
                [_asked(asked, version, items) for asked in answers],
                convert(Ended, record),
                known,
                headline_of(record),
            )
        )

    async def export(self, session_id: str, file_format: SessionFormat, *, reveal: bool) -> bytes:
        """An ended session as a file. Items without a score are counted, but not listed.

        Raises:
            NotFoundError: There is no such session.
            InvalidStateError: The session has not ended.
        """
        record = await self.sessions.get(session_id)
        if (ended_at := record.finished_at) is None:
            raise InvalidStateError(
                f"Session {record.id} is {record.status}; only one that has ended can be exported."
            )
        version = await self.versions.load(record.bank_version_id)
        answers, items = await self._answers(record, version, View(is_whole=reveal))
        test = _test(record, ended_at)
        # With thousands of answers this takes a second: a thread keeps the event loop free.
        return await asyncio.to_thread(_content, test, answers, items, file_format)

    async def _answers(
        self, record: SessionRecord, version: LoadedVersion, view: View
    ) -> tuple[list[AskedAnswer], dict[int, BankItem]]:
        """The answers of a session, and their items by position where the caller may see them."""
        answers = [view.answer(asked) for asked in await self.sessions.responses(record.id)]
        if not view.shows(withheld=record.withheld):
            return answers, {}
        positions = sorted({asked.position for asked in answers})
        return answers, await self.versions.items_at(version, positions)

    async def _known(
        self, record: SessionRecord, version: LoadedVersion, stored: BankVersion
    ) -> Known:
        design = SessionPlan.from_dict(record.design).design
        # No item is chosen here, so settings for selection only would just cost time or tokens.
        selection = design.selection.model_copy(update={"exposure": None, "cost_weight": 0.0})
        return Known(
            bank=version.bank,
            tags=version.tags,
            targets=version.targets,
            reference=version.reference,
            join=(await self.joins.of_sessions(stored)).check,
            test=await self.versions.adaptive_test(
                version, design.model_copy(update={"selection": selection})
            ),
        )


def _identity(
    record: SessionRecord, version: BankVersion, n_reference: int | None
) -> SessionIdentity:
    provenance = record.provenance
    examinee = record.endpoint_name or record.endpoint_model or record.metadata.get("model")
    return convert(
        SessionIdentity,
        record,
        examinee=examinee or "A model answered for by hand",
        bank=record.bank_name,
        response_model=version.response_model,
        scale=version.scale,
        provisional=version.provisional,
        uncertainty=provenance.get("uncertainty"),
        n_items=provenance["n_items"],
        n_never_asked=provenance.get("n_never_asked", 0),
        n_uncalibrated=provenance.get("n_uncalibrated", 0),
        n_calibrated_on=n_reference,
        parameters_hash=version.parameters_hash,
        code_version=provenance.get("code_version"),
        unparsed_policy=provenance["asking"]["unparsed_policy"],
        unparsed_when_calibrated=provenance.get("unparsed_when_calibrated"),
        asked=provenance.get("asked", {}),
        asked_when_calibrated=provenance.get("asked_when_calibrated", {}),
        created_at=record.created_at.isoformat(timespec="seconds"),
        finished_at=None
        if record.finished_at is None
        else record.finished_at.isoformat(timespec="seconds"),
    )


def _asked(asked: AskedAnswer, version: LoadedVersion, items: Mapping[int, BankItem]) -> Asked:
    item, question = items.get(asked.position), None
    content = None if item is None else item.content
    if content is not None:
        question = content.prompt or (content.messages[-1].content if content.messages else None)
    said = {
        **{name: getattr(asked, name) for name in ("step", "position", "arrival", "probability")},
        "item_id": asked.item_key,
        "tags": () if asked.is_pretest else version.tags[asked.position],
        "pretest": asked.is_pretest,
        "question": question,
    }
    if (closing := asked.closing) is None:
        return Asked(**said)
    answer = closing.extracted or closing.answer_text
    # Examinees who answer by hand read reports, too: no target of an item that may be asked again.
    target = ""
    if content is not None and closing.outcome != Outcome.ERROR:
        target = " or ".join(map(content.lettered, content.target))
    return convert(Asked, closing, answer=answer, target=target or None, **said)


def _content(
    test: EvaluatedTest,
    answers: Sequence[AskedAnswer],
    items: Mapping[int, BankItem],
    file_format: SessionFormat,
) -> bytes:
    evaluated = []
    for asked in answers:
        closing, item = asked.closing, items.get(asked.position)
        if asked.is_pretest or closing is None or closing.score is None:
            continue
        content = None if item is None or item.content == ItemContent() else item.content
        evaluated.append(EvaluatedItem(asked.item_key, asked.step, content, closing))
    lines = instance_lines(test, evaluated)
    return aggregate(test, lines) if file_format is SessionFormat.EEE else lines


def _test(record: SessionRecord, ended_at: datetime) -> EvaluatedTest:
    summary, provenance = record.summary, record.provenance
    estimate, score = summary["estimate"], score_in(summary)
    return EvaluatedTest(
        session=record,
        ended_at=ended_at,
        model=record.endpoint_model
        or record.metadata.get("model")
        or record.endpoint_name
        or record.mode,
        theta=_measured(
            estimate["theta"], estimate["se"], estimate, cautions_of(record, is_score=False)
        ),
        score=score and _measured(score["value"], None, score, cautions_of(record, is_score=True)),
        scored_on=whole_bank(
            provenance["n_items"] + provenance.get("n_never_asked", 0),
            provenance.get("n_uncalibrated", 0),
        ),
        not_scored=unscored(summary).left_out,
    )


def _measured(
    value: float | None,
    se: float | None,
    figures: EstimateFigures | ScoreFigures,
    caution: str | None,
) -> Measured | None:
    if value is None:
        return None
    lo, hi = ends(figures["interval"])
    return Measured(value=value, se=se, lo=lo, hi=hi, method=figures["method"], caution=caution)
