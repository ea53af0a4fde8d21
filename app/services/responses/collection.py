"""Collect the answers of ended sessions into a response set, each session once."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from pydantic import Strict, StringConstraints

from app.exchange.results.recorded import FIRST_TRIAL, Choices, Recorded
from app.items import Outcome
from app.records.response_sets import GivenAnswer, ResponseSet, Source, in_common
from app.records.sessions import AskedJson
from app.services.responses.imports import MAX_NAME_LENGTH, Draft
from app.services.responses.service import AnswerImportReport, import_draft
from app.shapes import Moment, Name, Text, Value, examples
from app.storage.database import Database

#: Number of sessions collected in one transaction.
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Value):
    """The sessions whose answers to collect."""

    __pydantic_config__ = Value.__pydantic_config__ | examples({"bank": "demo"})

    bank: Name
    """Id or name of the bank of the sessions."""
    version: Annotated[Text, StringConstraints(min_length=1, max_length=40)] | None = None
    """Number or id of a version. Default: all versions."""
    since: Moment | None = None
    """Only sessions that ended at this time or later."""
    simulated: Annotated[bool, Strict()] = False
    """Also collect sessions of simulated examinees (kind `scripted`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionReport:
    """Which sessions were collected."""

    response_set: ResponseSet
    sessions: int
    left_out: dict[str, int]
    accepted: int
    pretest_answers: int
    outcomes: dict[str, int]
    new_examinees: int
    new_items: int


@dataclass(frozen=True, eq=False)
class Collector:
    """Collects answers of sessions into response sets.

    All sessions with the same address, model, settings and prompt form one examinee,
    `<model>/<digest>`: a model asked twice is no second model, and its first answer to an item
    counts. A session answered by hand forms an examinee of its own, together with the sessions
    that extend it.
    """

    database: Database

    async def collect(self, response_set: str, wanted: Collection) -> CollectionReport:
        """Collect all ended sessions of a bank that the set has not collected before.

        After an interruption, another call continues where this one stopped.

        Raises:
            NotFoundError: No such set, bank or version.
        """
        async with self.database.unit_of_work() as uow:
            bank = await uow.banks.find(wanted.bank)
            version_id = None
            if wanted.version is not None:
                version_id = (await uow.versions.find(bank, wanted.version)).id
        source = Source(
            bank_id=bank.id, version_id=version_id, since=wanted.since, simulated=wanted.simulated
        )
        async with self.database.unit_of_work() as uow:
            found = await uow.response_sets.find(response_set)
            left_out = await uow.collected.left_out(found.id, source)
        reports: list[AnswerImportReport] = []
        sessions = pretest_answers = 0
        outcomes = Counter[str]()
        while done := await self._collect_some(found.id, f"sessions on bank {bank.name}", source):
            report, n_sessions, n_pretest = done
            reports.append(report)
            sessions += n_sessions
            pretest_answers += n_pretest
            outcomes.update(report.outcomes)
        return CollectionReport(
            response_set=reports[-1].response_set if reports else found,
            sessions=sessions,
            left_out=left_out,
            accepted=sum(report.accepted for report in reports),
            pretest_answers=pretest_answers,
            outcomes=dict(outcomes),
            new_examinees=sum(report.new_examinees for report in reports),
            new_items=sum(report.new_items for report in reports),
        )

    async def _collect_some(
        self, set_id: str, origin: str, source: Source
    ) -> tuple[AnswerImportReport, int, int] | None:
        """Collect some sessions: the report, the number of sessions and of pretest answers."""
        async with self.database.unit_of_work() as uow:
            found = await uow.response_sets.find(set_id, for_update=True)
            sessions = await uow.collected.waiting(found.id, source, _BATCH)
            if not sessions:
                return None
            names = {
                session.id: (session.examinee or f"manual/{session.root_id}")[-MAX_NAME_LENGTH:]
                for session in sessions
            }
            answers = await uow.collected.answers(list(names))
            asked = in_common([session.asked for session in sessions])
            draft = await asyncio.to_thread(_draft_of, answers, names, origin, asked)
            done = await import_draft(uow, found, draft)
            await uow.collected.mark(found.id, list(names))
        return done, len(sessions), sum(answer.is_pretest for answer in answers)


def _draft_of(
    answers: list[GivenAnswer], names: dict[str, str], origin: str, asked: AskedJson
) -> Draft:
    draft = Draft(Choices(asked=asked or None))
    for answer in answers:
        record = Recorded(
            names[answer.session_id],
            answer.item_key,
            FIRST_TRIAL,
            answer.score,
            Outcome(answer.outcome),
            answer.step,
        )
        draft.rows_read += 1
        draft.add(record, answer.session_id)
    draft.note_file(origin, "sextant", draft.rows_read)
    return draft
