"""Make a bank from recorded results: store questions and answers, calibrate, make a version."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from app import scorers
from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle
from app.calibration.pipeline.plan import CalibrationPlan
from app.errors import CalibrationError, InvalidInputError, NotFoundError
from app.exchange.item_record import ItemRecord, parse_item
from app.exchange.results.found import Agreement, Choice, Found, agreement
from app.items import BY_KIND, Answer, ScorerSpec
from app.printable import percent
from app.records.banks import OPEN, Bank, BankSpec
from app.records.calibrations import CalibrationRecord
from app.records.fields import not_none
from app.records.leased import UNDERWAY
from app.records.response_sets import ImportedFile, ResponseSet
from app.records.sessions import AskedJson
from app.services.banks.imports import BankImport, Tally
from app.services.banks.origins import Asked
from app.services.banks.service import BankService, ImportReport
from app.services.banks.spec import calls_out, require_usable
from app.services.calibrations.publication import Publication
from app.services.calibrations.service import CalibrationService
from app.services.responses.confined_reading import Reader
from app.services.responses.imports import Draft, ResultsImport, SkippedRows
from app.services.responses.service import AnswerImportReport, import_draft, new_set
from app.services.waiting import again_if_taken
from app.storage.database import Database
from app.storage.paging import PageRequest

#: Smallest number of models for a calibration; results of fewer do not generalise.
LEAST_MODELS = 3
#: Smallest share of recorded right answers, and of wrong ones, that the scorer must reproduce:
#: with less agreement, live tests would measure something else.
_LEAST_AGREEMENT = 0.9
#: Agreement at which no further scorer is tried.
_GOOD_AGREEMENT = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFromResults:
    """Recorded results, and how to make a bank from them."""

    name: str
    results: ResultsImport
    scorer: ScorerSpec | None = None
    plan: CalibrationPlan = field(default_factory=lambda: CalibrationPlan(report_card=True))
    publish: bool = True
    questions_only: bool = False
    least_models: int = LEAST_MODELS
    licence: str | None = None
    visibility: str = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """The scorer of live answers, and how it scores the recorded ones.

    Attributes:
        agreement: Agreement with the recorded scores; None where options are compared, or the
            scorer calls an endpoint and was not tried.
        differing: Items of answers that it scores differently. These keep their recorded scores.
    """

    scorer: ScorerSpec
    agreement: Agreement | None = None
    differing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BankBegun:
    """What was read and stored, and the calibration that was started.

    Attributes:
        response_set: Response set with the answers; None if no answers were stored.
        calibration: Calibration that makes the version; None if it was not started (`stopped`).
        stopped: Why no calibration was started, and what it needs; imported data stays.
        n_incomplete: Number of models without answers to some questions.
    """

    bank: Bank
    items: Tally
    response_set: ResponseSet | None
    files: Sequence[ImportedFile]
    asked: AskedJson
    marking: Marking
    calibration: CalibrationRecord | None
    stopped: str | None
    n_models: int
    n_incomplete: int
    choices: Sequence[Choice]
    left_out: Mapping[str, Sequence[str]]
    skipped: Sequence[SkippedRows]


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultBanks:
    """Makes banks from recorded results."""

    database: Database
    reader: Reader
    banks: BankService
    calibrations: CalibrationService

    async def begin(self, wanted: BankFromResults) -> BankBegun:
        """Store questions and answers, all or nothing, and start their calibration.

        A repeated call with more files keeps what is stored, and makes the next version. Without
        anything new it returns the calibration of the latest version.

        Raises:
            InvalidInputError: Files cannot be read, do not contain the questions, or contain
                scores that no scorer here reproduces.
            ConflictError: The bank of that name asks in another way, or has other items under the
                same keys.
            BusyError: Too many imports are waiting.
        """
        async with self.database.unit_of_work() as uow:
            # Only the project's own bank counts: another project may share one of that name.
            own = await uow.banks.known(wanted.name, for_update=True)
        is_withheld = (wanted if own is None else own).visibility != OPEN
        results = replace(wanted.results, numbered=is_withheld)
        async with self.reader.results(results) as (draft, found):
            records = await asyncio.to_thread(lambda: [parse_item(item) for item in found.items])
            marking = await _marking(wanted.scorer, found, records)
            begun = await self._stored(wanted, draft, found, records, marking)
        if begun.response_set is None:
            return replace(begun, stopped=_NO_ANSWERS.format(name=begun.bank.name))
        stopped = _too_few(begun, wanted) or (None if wanted.publish else _UNPUBLISHED)
        if stopped is not None:
            return replace(begun, stopped=stopped.format(name=begun.bank.name))
        publication = Publication(bank=begun.bank.id, asked=begun.asked)
        if not begun.items.accepted:
            known = await self._known(begun.response_set, wanted.plan, publication)
            if known is not None:
                return replace(begun, calibration=known)
        try:
            record = await self.calibrations.create(begun.response_set.id, wanted.plan, publication)
        except (CalibrationError, InvalidInputError) as error:
            kept = f"{error.detail} {_KEPT}"
            return replace(begun, stopped=kept.format(name=begun.bank.name))
        return replace(begun, calibration=record)

    async def _known(
        self, answers: ResponseSet, plan: CalibrationPlan, publication: Publication
    ) -> CalibrationRecord | None:
        """The calibration that would be repeated: underway, or that of the latest version."""
        async with self.database.reading() as uow:
            page = await uow.calibrations.list_page(PageRequest(), response_set_id=answers.id)
            _, latest = await uow.banks.with_newest(publication.bank)
        wanted = json.loads(json.dumps([plan.to_dict(), publication.to_dict()]))
        for made in page.items:
            is_current = made.status in UNDERWAY or made.bank_version_id == (latest or "")
            is_newer = made.created_at > answers.updated_at
            if is_current and is_newer and [made.settings, made.publication] == wanted:
                return made
        return None

    async def _stored(
        self,
        wanted: BankFromResults,
        draft: Draft,
        found: Found,
        records: Sequence[ItemRecord],
        marking: Marking,
    ) -> BankBegun:
        asked = _asked(found, marking)
        # The scorers of a withheld bank are visible to few, but the source of answers to all.
        told = {name: known for name, known in asked.items() if name != "scorer"}
        draft.choices = replace(draft.choices, asked=told)
        n_incomplete = 0 if wanted.questions_only else _n_incomplete(draft)
        spec = BankSpec(
            name=wanted.name,
            description=f"Made of {found.asked['source']}.",
            licence=wanted.licence,
            visibility=wanted.visibility,
            default_scorer=marking.scorer,
            prompt=found.style,
            unparsed_policy="wrong",
            metadata={"from": "results"},
        )
        made = new_set(wanted.name)

        async def written() -> tuple[ImportReport, AnswerImportReport | None]:
            async with self.database.unit_of_work() as uow:
                report = await self.banks.bring_in(
                    uow, spec, BankImport(items=records, as_they_are=True, counted_tokens=True)
                )
                if wanted.questions_only:
                    return report, None
                try:
                    answers = await uow.response_sets.find(made.name, for_update=True)
                except NotFoundError:
                    await uow.response_sets.add(made)
                    answers = await uow.response_sets.find(made.id, for_update=True)
                return report, await import_draft(uow, answers, draft)

        report, imported = await again_if_taken(written)
        kept = None if imported is None else imported.response_set
        n_models = 0 if kept is None else kept.n_examinees
        if kept is not None:
            asked["source"] = f"{asked['source']}; {n_models} models"
        return BankBegun(
            bank=report.bank,
            items=report.items,
            response_set=kept,
            files=draft.files,
            asked=asked,
            marking=marking,
            calibration=None,
            stopped=None,
            n_models=n_models,
            n_incomplete=n_incomplete,
            choices=found.choices,
            left_out=found.left_out,
            skipped=draft.skipped() if imported is None else imported.skipped,
        )


_KEPT = (
    "The questions are kept in bank {name!r} and the answers in the response set of that name: the "
    "same call with more results goes on from there."
)
_NO_ANSWERS = (
    "The questions are kept in bank {name!r}, and no answers. Give them a guess of their "
    "difficulties: `sextant banks import {name} --provisional` makes a version that can be asked."
)
_UNPUBLISHED = f"No version was asked for. {_KEPT}"


def _too_few(begun: BankBegun, wanted: BankFromResults) -> str | None:
    if begun.n_models >= wanted.least_models:
        return None
    answered = "1 model is" if begun.n_models == 1 else f"{begun.n_models} models are"
    return (
        f"{answered} too few to calibrate: {wanted.least_models} are needed, "
        f"{wanted.least_models - begun.n_models} more. {_KEPT} To ask the questions before that, "
        "give them a guess of their difficulties: `sextant banks import --provisional` makes such "
        "a bank, and live sessions calibrate it."
    )


def _asked(found: Found, marking: Marking) -> AskedJson:
    """How the answers were obtained, by the files and by the prompt that is made from them."""
    style = not_none(Asked.of(PromptStyle.from_dict(found.style), marking.scorer))
    if "shots" not in found.asked:  # the number of examples in the texts is unknown
        style.pop("shots")
    return {**style, **cast(AskedJson, found.asked)}


def _n_incomplete(draft: Draft) -> int:
    """Number of models without answers to some questions."""
    answered: dict[str, int] = {}
    for (examinee, _), sheet in draft.sheets.items():
        n_answered = sum(sheet.counts().values())
        answered[examinee] = max(answered.get(examinee, 0), n_answered)
    return sum(n < len(draft.columns) for n in answered.values())


async def _marking(
    wanted: ScorerSpec | None, found: Found, records: Sequence[ItemRecord]
) -> Marking:
    """The scorer that reproduces the recorded scores, or the requested one."""
    if found.style["mode"] == LOGLIKELIHOOD:
        return Marking(scorer=ScorerSpec(BY_KIND))
    if wanted is not None:
        await require_usable(wanted)
        if calls_out(wanted):
            return Marking(scorer=wanted)
    contents = {record.key: record.content for record in records}
    tried: list[tuple[float, Marking]] = []
    for spec in [wanted] if wanted is not None else found.scorers:
        await require_usable(spec)
        scorer = scorers.build(spec)
        marks = [
            await scorers.mark(scorer, contents[key], Answer(text=text))
            for key, text, _ in found.answers
        ]
        shares = agreement(
            [mark.score if isinstance(mark, scorers.Scored) else None for mark in marks],
            [score for _, _, score in found.answers],
        )
        differing = tuple(found.answers[place][0] for place in shares.differing)
        least = shares.least or 0.0
        tried.append((least, Marking(scorer=spec, agreement=shares, differing=differing)))
        if least >= _GOOD_AGREEMENT:
            break
    least, best = max(tried, key=lambda each: each[0])
    if wanted is None and least < _LEAST_AGREEMENT:
        raise InvalidInputError(_no_scorer([marking for _, marking in tried]))
    return best


def _no_scorer(tried: Sequence[Marking]) -> str:
    advice = (
        "Name one with --default-scorer, give the results_*.json along, or choose another --filter "
        "or --metric."
    )
    told = [
        f"{marking.scorer.name} {marking.agreement.words}"
        for marking in tried
        if marking.agreement is not None and marking.agreement.least is not None
    ]
    if not told:
        return (
            "The results hold no answers in words with their scores, so that no scorer can be seen "
            f"to reproduce them. {advice}"
        )
    return (
        f"No scorer reproduces at least {percent(_LEAST_AGREEMENT)} of the recorded scores, right "
        f"and wrong ({'; '.join(told)}): live tests would measure something else. {advice}"
    )
