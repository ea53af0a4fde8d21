"""One calibration from filtered answers to the figures that are stored. Pure."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from app.calibration.calibrate import Calibration, calibrate
from app.calibration.em import Progress
from app.calibration.goodness import Goodness, goodness_of_fit
from app.calibration.item_fit import ItemFit, item_fit, local_dependence
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray
from app.services.calibration_plan import CalibrationPlan

Report = Callable[[dict[str, Any]], None]


def fit(
    matrix: ScoreMatrix, plan: CalibrationPlan, report: Report
) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """Calibrate, and judge how well the model fits.

    Args:
        matrix: Answers, filtered.
        plan: How.
        report: Takes the progress: the phase, and what it has reached.

    Returns:
        The figures as JSON without NaN, and the items' columns, NaN where unknown.

    Raises:
        CalibrationError: A matrix without information.
    """
    report({"phase": "calibrating"})
    calibration = calibrate(matrix, plan.settings(), watch=lambda at: report(_progress(at)))
    report({"phase": "checking_fit", "cycle": calibration.cycles})
    goodness = goodness_of_fit(matrix, calibration)
    items = item_fit(matrix, calibration)
    figures = {
        "scored_answers": calibration.n_answers,
        "log_likelihood": calibration.log_likelihood,
        "n_parameters": calibration.n_parameters,
        "aic": calibration.aic,
        "bic": calibration.bic,
        "iterations": calibration.cycles,
        "converged": calibration.converged,
        "fit": _fit(goodness),
        "local_dependence": asdict(local_dependence(matrix, calibration)),
        "warnings": list(calibration.warnings),
    }
    return figures, _columns(calibration, items)


def _progress(at: Progress) -> dict[str, Any]:
    return {
        "phase": "calibrating",
        "cycle": at.cycle,
        "log_posterior": _finite(at.log_posterior),
        "gain": _finite(at.gain),
        "distance": _finite(at.distance),
    }


def _fit(goodness: Goodness) -> dict[str, Any]:
    m2 = goodness.m2
    return {
        "m2": m2 and m2.statistic,
        "df": m2 and m2.df,
        "p_value": m2 and m2.p_value,
        "rmsea": m2 and m2.rmsea,
        "rmsea_lo": m2 and m2.rmsea_lo,
        "rmsea_hi": m2 and m2.rmsea_hi,
        "m2_items": m2 and m2.n_items,
        "m2_examinees": m2 and m2.n_examinees,
        "m2_missing": goodness.m2_missing or None,
        "srmsr": _finite(goodness.srmsr),
        "srmsr_items": goodness.srmsr_items,
        "verdict": goodness.verdict,
    }


def _columns(calibration: Calibration, items: ItemFit) -> dict[str, FloatArray]:
    errors = calibration.errors
    if errors is None:  # a plan always asks for them
        raise RuntimeError("a calibration without standard errors")
    return {
        **calibration.items._asdict(),
        "se_a": errors.a,
        "se_intercept": errors.intercept,
        "se_b": errors.b,
        "se_c": errors.c,
        "se_d": errors.d,
        "s_x2": items.statistic,
        "s_x2_df": items.df.astype(np.float64),
        "s_x2_p": items.p_value,
        "s_x2_rmsea": _rmsea(items),
    }


def _rmsea(items: ItemFit) -> FloatArray:
    """Misfit per degree of freedom, which does not grow with the number of examinees."""
    excess = np.maximum(items.statistic - items.df, 0.0)  # NaN stays NaN
    rmsea: FloatArray = np.sqrt(excess / (np.maximum(items.df, 1) * (items.n_examinees - 1)))
    return rmsea


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
