"""A whole calibration, from answers to the figures that are stored. Pure.

Each response model has a row in `CALIBRATORS`, which the command line and the workers use.
"""

from collections.abc import Mapping
from typing import Any

from app.calibration.filters import Filtered
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.abilities import AbilitiesCalibrator
from app.calibration.pipeline.calibrator import Calibrator, Fitted, Report
from app.calibration.pipeline.continuous import ContinuousCalibrator
from app.calibration.pipeline.logistic import LogisticCalibrator
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, MIRT, NESTED, CalibrationPlan
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError

CALIBRATORS: Mapping[str, Calibrator[Any]] = {
    **dict.fromkeys((family.value for family in Family), LogisticCalibrator()),
    CONTINUOUS_SCORES: ContinuousCalibrator(),
    NESTED: AbilitiesCalibrator(nested=True),
    MIRT: AbilitiesCalibrator(nested=False),
}
"""How each response model is calibrated."""


def prepared(table: ResponseTable, plan: CalibrationPlan) -> Filtered[Any]:
    """Filter the answers; the result also lists what was dropped.

    Returns:
        The filtered answers, as the type of matrix that the plan's model needs.

    Raises:
        InvalidInputError: No answers at all, or a score outside the model's values.
        CalibrationError: Answers from which nothing can be estimated.
    """
    if table.n_answers == 0:
        raise InvalidInputError(
            "The response set has no scored answers: import some first, or collect those of "
            "sessions."
        )
    return CALIBRATORS[plan.model].prepared(table, plan)


def decided(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan) -> CalibrationPlan:
    """Decide by the answers what the plan leaves open."""
    return CALIBRATORS[plan.model].decided(matrix, plan)


def fit(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate by the plan's model, and judge how well it fits.

    Raises:
        CalibrationError: A matrix without information.
    """
    return CALIBRATORS[plan.model].fit(matrix, decided(matrix, plan), report)
