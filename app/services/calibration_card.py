"""The report card of a calibration, and the abilities of its examinees. Pure."""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from app.calibration.calibrate import calibrate
from app.calibration.filters import FilterSettings, apply_filters
from app.calibration.matrix import MISSING, ScoreMatrix
from app.calibration.onto import LinkMethod, calibrate_linked, linked
from app.calibration.partition import calibrate_in_parts
from app.calibration.report_card import report_card
from app.engine.bank import ItemBank
from app.engine.batch import whole_bank_abilities
from app.engine.models.base import FloatArray, IntArray, ItemParameters
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, InvalidInputError
from app.services.calibration_fit import Abilities, Fitted, Report, bank_of
from app.services.calibration_plan import SEVERAL_ABILITIES, CalibrationPlan, anchors_for

#: Records estimated at a time: a block of 5,600 items takes 23 MB.
_BLOCK_ROWS = 512
#: So many quantiles tell a distribution well enough.
_QUANTILES = 101


def with_card(
    matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan, fitted: Fitted, report: Report
) -> Fitted:
    """The same calibration with its report card, if its plan asks for one.

    There is none of answers in which drift is looked for: they are of adaptive tests, in which
    nobody's whole record is known. Nor is there one of other models than the families of right
    and wrong answers.

    Args:
        matrix: What was calibrated.
        plan: How.
        fitted: What came out.
        report: Takes the progress.
    """
    if not plan.report_card or plan.checks_drift or not isinstance(matrix, ScoreMatrix):
        return fitted
    if plan.model in SEVERAL_ABILITIES:  # their cross-validated errors come with the fit
        return fitted
    report({"phase": "testing"})
    started = time.perf_counter()
    bank = bank_of(matrix.items, fitted.columns)
    abilities = _abilities(matrix, bank)
    figures = dict(fitted.figures)
    knowledge = {**fitted.knowledge, "reference_abilities": _distribution(abilities)}
    try:
        card = report_card(
            lambda rows: _scores(matrix, rows),
            lambda rows: _bank_without(matrix, rows, plan, bank),
            matrix.n_examinees,
            seed=plan.seed,
        )
    except (CalibrationError, InvalidInputError) as error:
        # What was estimated is no worse for it.
        figures["warnings"] = [*figures["warnings"], f"There is no report card: {error.detail}"]
    else:
        seconds = time.perf_counter() - started
        figures["report_card"] = {**card.to_dict(), "seconds": seconds}
        knowledge["interval_correction"] = card.correction.to_dict()
    return Fitted(figures, fitted.columns, knowledge, abilities)


def _scores(matrix: ScoreMatrix, rows: IntArray | slice) -> FloatArray:
    codes = matrix.scores[rows]
    return np.where(codes == MISSING, np.nan, codes)


def _abilities(matrix: ScoreMatrix, bank: ItemBank) -> Abilities:
    blocks = [slice(i, i + _BLOCK_ROWS) for i in range(0, matrix.n_examinees, _BLOCK_ROWS)]
    found = [whole_bank_abilities(bank, _scores(matrix, rows)) for rows in blocks]
    se = np.concatenate([errors for _, errors in found])
    return Abilities(
        theta=np.concatenate([thetas for thetas, _ in found]),
        se=np.where(np.isfinite(se), se, np.nan),
        score=matrix.examinee_means(),
    )


def _distribution(abilities: Abilities) -> dict[str, Any]:
    """The examinees' thetas by their quantiles, from which others can be drawn."""
    quantiles = np.quantile(abilities.theta, np.linspace(0, 1, _QUANTILES))
    return {"n_examinees": len(abilities.theta), "quantiles": quantiles.tolist()}


def _bank_without(
    matrix: ScoreMatrix, rows: IntArray, plan: CalibrationPlan, bank: ItemBank
) -> ItemBank:
    """The bank from all examinees but some; items that they alone tell about stay as they are."""
    others = np.ones(matrix.n_examinees, dtype=np.bool_)
    others[rows] = False
    part = apply_filters(matrix.select(examinees=others), FilterSettings.none()).matrix
    found = _parameters(part, plan)
    position = {item: j for j, item in enumerate(matrix.items)}
    at = [position[item] for item in part.items]
    columns = {name: getattr(bank, name).copy() for name in ("a", "intercept", "c", "d")}
    for name, values in columns.items():
        values[at] = getattr(found, name)
    return bank_of(matrix.items, columns)


def _parameters(matrix: ScoreMatrix, plan: CalibrationPlan) -> ItemParameters:
    """The plan's calibration once more, for its parameters alone."""
    settings = replace(plan.settings(), with_errors=False)
    anchors = anchors_for(matrix, plan)
    if plan.partition_size is None and plan.link is not None and anchors is not None:
        method = LinkMethod(plan.link.method)
        return calibrate_linked(matrix, anchors, method, settings).calibration.items
    if plan.partition_size is None:
        return calibrate(matrix, settings).items
    rng = np.random.default_rng(plan.seed)
    joined = calibrate_in_parts(matrix, settings, plan.partition_size, rng)
    if plan.link is None or anchors is None:
        return joined.items
    return linked(joined, anchors, LinkMethod(plan.link.method)).calibration.items
