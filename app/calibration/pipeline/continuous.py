"""Calibrates items of continuous scores."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.continuous.scores import ContinuousCalibration, require_calibratable
from app.calibration.filters import MEASURING, Filtered, apply_filters
from app.calibration.fit.held_out import Blind
from app.calibration.pipeline.calibrator import (
    Calibrator,
    Fitted,
    Report,
    examined,
    flat_curves,
    measured,
    measuring,
    replaced,
    unexamined,
    with_others,
)
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray
from app.engine.responses import ResponseTable


class ContinuousCalibrator(Calibrator[ResponseTable]):
    """Calibrates the continuous model, by maximum likelihood or by moments."""

    dtype = np.float64

    @override
    def matrix(
        self, scores: ArrayLike, *, examinees: Sequence[str], items: Sequence[str]
    ) -> ResponseTable:
        return ResponseTable(tuple(examinees), tuple(items), np.asarray(scores, np.float64))

    @override
    def prepared(self, table: ResponseTable, plan: CalibrationPlan) -> Filtered[ResponseTable]:
        kept = apply_filters(table, plan.filters)
        own = measured(kept.matrix, plan)
        kept.require_two(own.n_items)
        require_calibratable(own)
        return kept

    @override
    def fit(self, matrix: ResponseTable, plan: CalibrationPlan, report: Report) -> Fitted:
        report({"phase": "calibrating"})
        inside = measuring(matrix, plan)
        found = _calibrated(
            measured(matrix, plan),
            plan,
            lambda cycle, distance: report(
                {"phase": "calibrating", "cycle": cycle, "distance": distance}
            ),
        )
        conformance = found.conformance
        figures = {
            **found.figures(),
            **unexamined(
                "M2 is computed only for right and wrong answers.",
                variance_r2=conformance,
                verdict=_conforms(conformance),
            ),
            "dispersion": found.k_common,
            "warnings": list(found.warnings),
        }
        errors = {name: getattr(found, name) for name in ("se_a", "se_intercept", "se_b", "se_k")}
        columns = examined({**found.bank.columns, **errors}, found.bank.n_items)
        if not inside.all():
            curves = flat_curves(matrix.select(items=~inside), found.k_common)
            columns = with_others(columns, inside, curves)
        return Fitted(figures, columns, {})

    @override
    def taught_by(
        self,
        matrix: ResponseTable,
        known: BoolArray,
        plan: CalibrationPlan,
        fitted: Fitted,
        bank: ItemBank,
    ) -> Blind:
        """Replace the parameters of the items that `known` answered; the rest are kept."""
        part, inside = matrix.select(examinees=known), measuring(matrix, plan)
        found = _calibrated(apply_filters(part.select(items=inside), MEASURING).matrix, plan)
        blind = replaced(bank, found.bank.item_ids, found.bank.parameters)
        if not inside.all():
            beside = part.select(items=~inside & (part.answers_per_item() > 0))
            blind = replaced(blind, beside.items, flat_curves(beside, found.k_common))
        return Blind(bank=blind)


def _calibrated(
    table: ResponseTable, plan: CalibrationPlan, watch: Callable[[int, float], None] | None = None
) -> ContinuousCalibration:
    if plan.moments:
        return calibrate_by_moments(table)
    return calibrate_continuous(table, max_cycles=plan.max_cycles, watch=watch)


def _conforms(variance_r2: float | None) -> str:
    """A word for how well the model's form of the variance fits the scores."""
    if variance_r2 is None:
        return "unknown"
    words = ((0.9, "good"), (0.7, "acceptable"), (0.4, "marginal"))
    return next((word for least, word in words if variance_r2 >= least), "poor")
