"""Reports of bank versions, stored or in files."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.acting import seeing
from app.calibration.fit.item_fit import misfits
from app.engine.bank import FloatArray, ItemBank
from app.engine.lint import lint, quarantine
from app.engine.prediction.correction import IntervalCorrection, correction_in
from app.errors import InvalidInputError
from app.exchange.calibration_file import CalibrationFile, Figures
from app.records.calibrations import CalibrationRecord, FittedItems, SimulatedTests
from app.records.fields import convert
from app.reports.version.build import judged_items, version_report
from app.reports.version.facts import (
    CalibrationFacts,
    Identity,
    VersionReport,
)
from app.services.banks.draft import response_model_of
from app.services.banks.joins import JoinChecks
from app.services.banks.provisional import RecalibrationAdvice
from app.services.banks.versions import VersionService, calibration_of
from app.storage.database import Database

#: Part of an imported version's knowledge: the calibration behind its parameters, as the source
#: database described it.
ORIGIN = "origin"
_COLUMNS = ("a", "intercept", "se_a", "se_b", "s_x2_p", "s_x2_rmsea")


@dataclass(frozen=True, eq=False)
class VersionReports:
    """Reports what is known about a stored version."""

    database: Database
    versions: VersionService
    joins: JoinChecks
    advice: RecalibrationAdvice
    # One report at a time: tables of a large bank take 100 MB, and threads slow each other down.
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def report(self, bank: str, version: str | None = None) -> VersionReport:
        """The report of a version."""
        found = await self.versions.get(bank, version)
        loaded = await self.versions.load(found.id)
        fitted: FittedItems | None = None
        async with self.database.unit_of_work() as uow:
            findings = await uow.versions.findings(found.id)
            if (record := await calibration_of(uow, found)) is not None:
                with seeing(record.project_id):
                    fitted = await uow.calibrations.fitted(record.id)
        join = (await self.joins.of_sessions(found)).check
        advice = await self.advice.of_version(found, loaded.bank_name)
        states = found.lint["items"]
        identity = convert(
            Identity,
            found,
            bank=loaded.bank_name,
            version=found.number,
            model=found.response_model,
            created_at=found.created_at.isoformat(timespec="seconds"),
            n_active=states["active"],
            n_quarantined=states["quarantined"],
            n_pretest=states["pretest"],
            uncertainty=advice.explanation if advice.provisional else None,
            theta_withheld=loaded.theta_withheld,
        )
        async with self._turn:
            return await asyncio.to_thread(
                version_report,
                identity,
                loaded.bank,
                loaded.active,
                findings,
                calibration=made_elsewhere(found.knowledge, loaded.keys)
                if record is None or fitted is None
                else _stored(record, fitted),
                abilities=_abilities(found.knowledge),
                simulated=card_of(found.knowledge)
                if record is None
                else _simulated(Figures.model_validate(record.result)),
                correction=correction_in(found.knowledge),
                join=join,
            )


def made_elsewhere(knowledge: Mapping[str, Any], keys: Sequence[str]) -> CalibrationFacts | None:
    """The calibration behind a version that came in a bundle, as far as the bundle describes it.

    Raises:
        ValueError: The description cannot be read (also KeyError, TypeError).
    """
    if (origin := knowledge.get(ORIGIN)) is None:
        return None
    result, unknown = origin["result"], np.full(len(keys), np.nan)
    columns = dict.fromkeys(_COLUMNS, unknown)
    n_examinees = int(result["kept"]["examinees"])
    figures = Figures.model_validate(result)
    return _facts(figures, str(origin["model"]), n_examinees, keys, columns)


def card_of(knowledge: Mapping[str, Any]) -> SimulatedTests | None:
    """The report card of a version that came in a bundle; raises as `made_elsewhere`."""
    origin = knowledge.get(ORIGIN)
    return None if origin is None else _simulated(Figures.model_validate(origin["result"]))


def file_report(
    name: str, bank: ItemBank, calibration: CalibrationFile | None = None
) -> VersionReport:
    """The report of a bank file.

    Raises:
        InvalidInputError: The file has no item that a test could ask, an invalid interval
            correction, or the calibration of another bank.
    """
    findings = list(lint(bank))
    known: dict[str, Any] = {}
    if calibration is not None:
        _require_same_items(bank, calibration)
        columns = {name: calibration.column(name) for name in _COLUMNS}
        findings += misfits(calibration.keys, columns)
        known = {
            "calibration": _facts(
                calibration,
                calibration.model,
                calibration.n_examinees_kept,
                calibration.keys,
                columns,
                items=[entry.reason for entry in calibration.dropped],
                examinees=[entry.reason for entry in calibration.dropped_examinees],
                score_only=[entry.reason for entry in calibration.score_only],
            ),
            "abilities": _abilities(calibration.knowledge),
            "simulated": _simulated(calibration),
            "correction": _correction(calibration),
        }
    left_out = quarantine(findings)
    active = np.array([item_id not in left_out for item_id in bank.item_ids])
    n_active = int(active.sum())
    identity = Identity(
        bank=name,
        model=calibration.model if calibration else response_model_of(bank, None),
        scale=bank.scale,
        n_items=bank.n_items,
        n_active=n_active,
        n_quarantined=bank.n_items - n_active,
        n_pretest=0,
    )
    return version_report(identity, bank, active, findings, **known)


def _require_same_items(bank: ItemBank, calibration: CalibrationFile) -> None:
    theirs = dict(zip(calibration.keys, calibration.column("b").tolist(), strict=True))
    if theirs.keys() != set(bank.item_ids):
        raise InvalidInputError(
            f"The calibration is of another bank: it has {len(theirs)} items, the bank "
            f"{bank.n_items}, and {len(theirs.keys() & set(bank.item_ids))} names are in both."
        )
    if bank.b.ndim != 1:
        return
    for item_id, b in zip(bank.item_ids, bank.b.tolist(), strict=True):
        if math.isfinite(theirs[item_id]) and not math.isclose(
            b, theirs[item_id], rel_tol=1e-6, abs_tol=1e-6
        ):
            raise InvalidInputError(
                f"The calibration is of another bank: item {item_id!r} has difficulty "
                f"{theirs[item_id]:.4g} there, and {b:.4g} in the bank."
            )


def _abilities(knowledge: Mapping[str, Any]) -> tuple[float, ...] | None:
    known = knowledge.get("reference_abilities")
    quantiles = known.get("quantiles") if isinstance(known, Mapping) else None
    if not isinstance(quantiles, Sequence) or len(quantiles) < 2:
        return None
    if not all(isinstance(value, int | float) for value in quantiles):
        return None
    return tuple(map(float, quantiles))


def _simulated(figures: Figures) -> SimulatedTests | None:
    card = figures.report_card
    return card if card is not None and card.rows else None


def _correction(calibration: CalibrationFile) -> IntervalCorrection | None:
    try:
        return correction_in(calibration.knowledge)
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidInputError(
            f"The interval correction of the calibration cannot be read: {exc!r:.200}."
        ) from exc


def _stored(record: CalibrationRecord, fitted: FittedItems) -> CalibrationFacts:
    result: Mapping[str, Any] = record.result or {}
    dropped = result["dropped"]
    return _facts(
        Figures.model_validate(result),
        record.settings["model"],
        result["kept"]["examinees"],
        fitted.keys,
        fitted.columns,
        items=[entry["reason"] for entry in dropped["items"]],
        examinees=[entry["reason"] for entry in dropped["examinees"]],
        score_only=[entry["reason"] for entry in result.get("score_only", ())],
    )


def _facts(
    figures: Figures,
    model: str,
    n_examinees: int,
    keys: Sequence[str],
    columns: Mapping[str, FloatArray],
    *,
    items: Iterable[str] = (),
    examinees: Iterable[str] = (),
    score_only: Iterable[str] = (),
) -> CalibrationFacts:
    """The facts of a calibration; the last three are the reasons why some were left out."""
    verdicts, worst = judged_items(keys, columns)
    dependence = figures.local_dependence
    return convert(
        CalibrationFacts,
        figures,
        model=model,
        n_examinees=n_examinees,
        n_items=len(keys),
        fit=figures.fit.model_dump(),
        dropped_items=dict(Counter(items)),
        dropped_examinees=dict(Counter(examinees)),
        score_only_items=dict(Counter(score_only)),
        n_dependent_pairs=None if dependence is None else dependence.n_flagged,
        dependent_pairs=tuple(
            (pair.first, pair.second, pair.q3) for pair in (dependence.pairs if dependence else ())
        ),
        item_verdicts=verdicts,
        worst_items=worst,
        comparison=tuple(other.model_dump() for other in figures.comparison),
    )
