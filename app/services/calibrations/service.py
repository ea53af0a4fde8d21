"""Calibrations: start them from a response set, watch them, and publish them as bank versions."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np

from app.calibration.filters import Filtered
from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.pipeline.fit import prepared
from app.calibration.pipeline.logistic import parts_for
from app.calibration.pipeline.plan import SEVERAL_ABILITIES, CalibrationPlan
from app.engine.bank import ItemBank
from app.errors import FieldProblem, InvalidInputError, InvalidStateError
from app.records.banks import PROVISIONAL, BankSpec, BankVersion
from app.records.calibrations import CalibrationRecord, FittedItems
from app.records.fields import finite
from app.records.response_sets import ResponseSet
from app.services.banks.service import BankService
from app.services.banks.versions import VersionService
from app.services.calibrations.drift import require_family
from app.services.calibrations.publication import (
    Output,
    Publication,
    carried_over,
    continued,
    import_of,
    require_publishable,
    revised,
)
from app.services.leased import Queue
from app.services.responses.service import ResponseSetService
from app.services.responses.sheets import table_of
from app.shapes import Described
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.unit_of_work import UnitOfWork

#: Lease of a calibration that is stored together with its result.
_LEASE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Answers filtered and prepared as a calibration plan requires."""

    response_set: ResponseSet
    filtered: Filtered[Any]
    plan: CalibrationPlan


@dataclass(frozen=True, slots=True)
class ExamineeAbility(Described):
    """Ability of one examinee from the whole record on the calibrated bank."""

    position: int
    examinee: str
    theta: float
    """Weighted likelihood estimate."""
    se: float | None
    score: float
    """Mean score of the given answers."""


@dataclass(eq=False, kw_only=True)
class CalibrationService:
    """Use cases of calibrations; `CalibrationRunner` runs them.

    Raises:
        NotFoundError: From every method that takes a name or an id: there is no such thing.
    """

    database: Database
    response_sets: ResponseSetService
    banks: BankService
    versions: VersionService
    queue: Queue
    # Answers take memory, so only one request at a time reads them.
    _looking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def create(
        self, response_set: str, plan: CalibrationPlan, publication: Publication | None = None
    ) -> CalibrationRecord:
        """Check the answers of a response set, and queue their calibration.

        With a publication, the calibration is published on completion.

        Raises:
            NotFoundError: No such set, no such version to link to, or no bank with such an id.
            InvalidInputError: No answers, too many of them, scores other than 0 and 1, or a result
                that could not be published.
            UnknownNameError: An anchor is not in both banks.
            CalibrationError: Nothing can be estimated from the answers, or too few anchors.
        """
        if publication is not None:
            async with self.database.reading() as uow:
                await require_publishable(uow, publication, plan)
        given = await self.prepared(response_set, plan)
        plan = given.plan
        n_parts = len(await asyncio.to_thread(parts_for, given.filtered.matrix, plan))
        if n_parts == 1:  # a single part would be the whole calibration
            n_parts = 0
        part_ids = [new_id("cal") for _ in range(n_parts)]
        async with self.database.unit_of_work() as uow:
            made = await uow.calibrations.add(
                new_id("cal"),
                response_set_id=given.response_set.id,
                settings=plan.to_dict(),
                part_ids=part_ids,
                publication=None if publication is None else publication.to_dict(),
            )
            for calibration_id in part_ids or [made.id]:
                await self.queue.enqueue(uow, calibration_id, is_new=True)
        return made

    async def prepared(self, response_set: str, plan: CalibrationPlan) -> Prepared:
        """The answers to calibrate, and the plan with the items that define the target scale.

        Raises:
            NotFoundError: No such set, or no such version to link to.
            InvalidInputError: No answers, too many of them, or scores that do not fit the model.
            UnknownNameError: An anchor is not in both banks.
            CalibrationError: Nothing can be estimated from the answers, or too few anchors.
        """
        async with self._looking:
            onto = await with_target(plan, self.versions)
            of, items, sheets = await self.response_sets.trials(response_set)
            # The table takes eight times the memory of the matrix, so it is released at once.
            filtered = await asyncio.to_thread(lambda: prepared(table_of(items, sheets), onto))
        return Prepared(of, filtered, onto)

    async def get(self, calibration_id: str) -> CalibrationRecord:
        """One calibration."""
        async with self.database.reading() as uow:
            return await uow.calibrations.get(calibration_id)

    async def items(
        self, calibration_id: str, *, after: int = -1, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """Calibrated items after position `after`, in order of position; None where unknown.

        Raises:
            InvalidStateError: It is not completed.
        """
        async with self.database.unit_of_work() as uow:
            record = await uow.calibrations.get(calibration_id)
            fitted = _completed(record, await uow.calibrations.fitted(calibration_id))
        stop = None if limit is None else after + 1 + limit
        return [
            {
                "position": position,
                "key": fitted.keys[position],
                **{name: finite(values[position]) for name, values in fitted.columns.items()},
            }
            for position in range(len(fitted.keys))[after + 1 : stop]
        ]

    async def abilities(
        self, calibration_id: str, *, after: int = -1, limit: int | None = None
    ) -> list[ExamineeAbility]:
        """Examinees after position `after`, in order, with their whole-bank abilities.

        Raises:
            InvalidStateError: It is not completed, or made no report card.
        """
        async with self.database.unit_of_work() as uow:
            record = await uow.calibrations.get(calibration_id)
            found = await uow.calibrations.examinees(calibration_id)
        if found is None:
            raise InvalidStateError(
                f"Calibration {record.id} ({record.status}) has no reference abilities: only a "
                "completed one with a report card has them."
            )
        numbers = (values.tolist() for values in (found.theta, found.se, found.score))
        rows = zip(range(len(found.names)), found.names, *numbers, strict=True)
        stop = None if limit is None else after + 1 + limit
        return [
            ExamineeAbility(position, name, theta, finite(se), score)
            for position, name, theta, se, score in islice(rows, after + 1, stop)
        ]

    async def cancel(self, calibration_id: str) -> CalibrationRecord:
        """Cancel a calibration; its worker discards its work."""
        async with self.database.unit_of_work() as uow:
            return await uow.calibrations.cancel(calibration_id)

    async def publish(self, calibration_id: str, publication: Publication) -> BankVersion:
        """Make a bank version from a calibration, completely or not at all.

        A calibration can be published repeatedly and in several banks; all versions share one
        scale. If the bank's latest version has the same contents, it is returned instead. Items of
        the bank without parameters go to pretest.

        Raises:
            InvalidStateError: It is not completed, or did not converge.
            InvalidInputError: As for an import: none of the items is in the bank, an override
                names nothing, or no item is left that may be asked.
        """
        async with self.database.unit_of_work() as uow:
            # Banks are locked before calibrations.
            await uow.banks.known(publication.bank, for_update=True)
            record = await uow.calibrations.get(calibration_id, for_update=True)
            fitted = _completed(record, await uow.calibrations.fitted(calibration_id))
            source = await uow.response_sets.find(record.response_set_id)
            output = Output(record.result or {}, fitted, source)
            return await self.publish_within(uow, record, output, publication)

    async def publish_done(
        self, uow: UnitOfWork, plan: CalibrationPlan, output: Output, publication: Publication
    ) -> BankVersion:
        """Store a finished calibration and its version in the caller's transaction.

        The transaction has locked the bank and imported the answers.

        Raises:
            InvalidStateError: It did not converge.
            InvalidInputError: As for `publish`.
        """
        calibrations, set_id = uow.calibrations, output.source.id
        made = await calibrations.add(
            new_id("cal"), response_set_id=set_id, settings=plan.to_dict()
        )
        claimed = await calibrations.claim(made.id, worker_id="here", lease=_LEASE)
        if claimed is None:
            raise InvalidStateError(f"Calibration {made.id} was started by another process.")
        await calibrations.complete(claimed, output.result, output.items, output.examinees)
        return await self.publish_within(uow, claimed, output, publication)

    async def publish_within(
        self, uow: UnitOfWork, record: CalibrationRecord, output: Output, publication: Publication
    ) -> BankVersion:
        """Publish a completed calibration in a transaction that has locked the bank and it."""
        result = output.result
        if not result["converged"] and not publication.allow_unconverged:
            raise InvalidStateError(
                f"Calibration {record.id} did not converge within {result['iterations']} "
                "cycles. Calibrate again with a larger max_cycles, or publish it all the same "
                "with allow_unconverged."
            )
        parameters = await self._parameters(record, output, publication)
        request = import_of(record, output, parameters, publication)
        if request.scale is None and record.bank_version_id is not None:
            # Both versions have the same parameters, so abilities on them are comparable.
            earlier = await uow.versions.get(record.bank_version_id)
            request = replace(request, scale=earlier.scale)
        link = result.get("link") or {}
        if link.get("check_drift"):
            before = await uow.versions.get(link["bank_version_id"])
            findings = await uow.versions.findings(before.id)
            request = continued(request, before, findings, record.settings["model"])
        if (started_from := record.settings.get("prior_version_id")) is not None:
            request = revised(request, await uow.versions.get(started_from))
        version = await self.banks.publish(uow, BankSpec(name=publication.bank), request)
        if version.id != record.bank_version_id:
            await uow.calibrations.note_published(
                record.id, bank_id=version.bank_id, bank_version_id=version.id
            )
        return version

    async def _parameters(
        self, record: CalibrationRecord, output: Output, publication: Publication
    ) -> ItemBank:
        fitted, link = output.items, output.result.get("link")
        if link is None:
            if publication.carry_over:
                raise InvalidInputError(
                    f"Calibration {record.id} is on a scale of its own: only a linked "
                    "calibration can carry items over."
                )
            return ItemBank.from_columns(fitted.keys, fitted.columns)
        bank = ItemBank.from_columns(fitted.keys, fitted.columns, scale=link["scale"])
        checks_drift = link.get("check_drift", False)
        if not (publication.carry_over or checks_drift):
            return bank
        target = (await self.versions.load(link["bank_version_id"])).bank
        dropped = frozenset(item["name"] for item in output.result["dropped"]["items"])
        if checks_drift:  # all earlier items stay, whether or not they had new answers
            dropped -= frozenset(target.item_ids)
        return carried_over(bank, target, dropped)


def _completed(record: CalibrationRecord, fitted: FittedItems | None) -> FittedItems:
    if fitted is None:
        raise InvalidStateError(
            f"Calibration {record.id} is {record.status}; this needs a completed one."
        )
    return fitted


async def with_target(plan: CalibrationPlan, versions: VersionService) -> CalibrationPlan:
    """The plan with the active items of the linked version, which define the target scale.

    A plan that starts from a provisional version gets its prior beliefs about items instead.

    Raises:
        NotFoundError: No such version.
        InvalidInputError: A linked version has several abilities, a version checked for drift is
            not 1PL to 4PL, or a version to start from is not provisional.
    """
    if plan.prior_version_id is not None:
        return await _with_beliefs(plan, plan.prior_version_id, versions)
    if plan.link is None or plan.link.bank_version_id is None:
        return plan
    version = await versions.load(plan.link.bank_version_id)
    if version.response_model in SEVERAL_ABILITIES:
        # Its curves hold at average values of the other abilities. Curves of a single ability are
        # averages over the other abilities, and less steep.
        detail = (
            f"version {version.number} of bank {version.bank_name!r} measures several abilities "
            f"({version.response_model}), and a calibration of one cannot be put on its scale"
        )
        raise InvalidInputError(
            f"{detail[0].upper()}{detail[1:]}.",
            problems=[FieldProblem("/link/bank_version_id", detail)],
        )
    active = np.flatnonzero(version.active)
    plan = replace(plan, target=version.bank.take(active))
    if not plan.checks_drift:
        return plan
    require_family(version)
    errors = await versions.curve_errors(version)
    aside = frozenset(version.keys[i] for i in np.flatnonzero(~version.active))
    return replace(plan, target_se=errors[active], aside=aside)


async def _with_beliefs(
    plan: CalibrationPlan, version_id: str, versions: VersionService
) -> CalibrationPlan:
    version = await versions.by_id(version_id)
    known = version.knowledge.get(PROVISIONAL)
    if known is None:
        detail = (
            f"version {version.number} holds no beliefs about its items: expected one that "
            "`banks import --provisional` made, or one that continues such a version"
        )
        raise InvalidInputError(
            f"{detail[0].upper()}{detail[1:]}.",
            problems=[FieldProblem("/prior_version_id", detail)],
        )
    beliefs = ItemBeliefs.from_dict(known["beliefs"])
    return replace(plan, model=beliefs.family.value, beliefs=beliefs)
