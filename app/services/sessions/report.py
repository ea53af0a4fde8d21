"""Reports of sessions: what is stored of a test, with what its bank version knows."""

import asyncio
from dataclasses import dataclass

from app.items import ItemContent
from app.records.banks import BankVersion
from app.records.fields import convert
from app.records.sessions import SessionRecord
from app.reports.headline import headline_of
from app.reports.session.build import Asked, Ended, Known, session_report
from app.reports.session.facts import SessionIdentity, SessionReport
from app.services.banks.joins import JoinChecks
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.sessions.plan import SessionPlan
from app.services.sessions.service import AskedAnswer, SessionService
from app.services.visibility import View
from app.storage.database import Database


@dataclass(frozen=True, eq=False)
class SessionReports:
    """Tells the result of a test, whatever its state."""

    database: Database
    versions: VersionService
    sessions: SessionService
    joins: JoinChecks

    async def report(self, session_id: str, *, reveal: bool) -> SessionReport:
        """The report of a session as far as it has come.

        Args:
            session_id: Its id.
            reveal: Whether questions and answers of a withheld bank may be shown.

        Raises:
            NotFoundError: No such session.
        """
        view = View(is_whole=reveal)
        record = view.session(await self.sessions.get(session_id))
        version = await self.versions.load(record.bank_version_id)
        answers = [view.answer(asked) for asked in await self.sessions.responses(session_id)]
        async with self.database.reading() as uow:
            stored = await uow.versions.get(record.bank_version_id)
        texts: dict[int, ItemContent] = {}
        if view.shows(withheld=record.withheld):
            positions = sorted({asked.position for asked in answers})
            items = await self.versions.items_at(version, positions)
            texts = {position: item.content for position, item in items.items()}
        known = await self._known(record, version, stored)
        ended = Ended(
            reason=record.stop_reason,
            detail=record.stop_detail,
            precision_reached=record.precision_reached,
            failure=record.failure,
        )
        return await asyncio.to_thread(
            lambda: session_report(
                _identity(record, stored, version.n_reference),
                record.summary,
                [_asked(asked, version, texts) for asked in answers],
                ended,
                known,
                headline_of(record),
            )
        )

    async def _known(
        self, record: SessionRecord, version: LoadedVersion, stored: BankVersion
    ) -> Known:
        design = SessionPlan.from_dict(record.design).design
        # Nothing is chosen any more: what choosing alone needs would cost time, or tokens counts.
        selection = design.selection.model_copy(update={"exposure": None, "cost_weight": 0.0})
        calibration = stored.calibration
        return Known(
            bank=version.bank,
            tags=version.tags,
            targets=version.targets,
            quantiles=version.reference_abilities,
            population=() if version.curves is None else version.curves.population,
            standard=calibration is not None and not calibration.get("link"),
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


def _asked(asked: AskedAnswer, version: LoadedVersion, texts: dict[int, ItemContent]) -> Asked:
    content = texts.get(asked.position)
    question = None
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
    return convert(Asked, closing, answer=answer, **said)
