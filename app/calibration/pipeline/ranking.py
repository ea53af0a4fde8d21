"""Banks for ranking recorded scores, calibrated from other examinees' scores. Pure."""

from dataclasses import replace

import numpy as np

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.filters import MEASURING
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.blind_banks import banks_without, glimpses_on
from app.calibration.pipeline.fit import prepared
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, CalibrationPlan
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import IntervalCorrection
from app.engine.responses import ResponseTable
from app.engine.simulation.learning import LEAST_EXAMINEES, learn_correction

#: Least examinees for a slope per item; with fewer, a common slope fits about as well.
SLOPES_FROM = 30
#: Most examinees on whom tests are simulated, to learn the correction of standard errors.
LEARNED_FROM = 100

#: The published filter drops items that correlate negatively, however few answers show it.
_RISING = replace(MEASURING, least_point_biserial=0.0, point_biserial_confidence=0.5)


def bank_from(table: ResponseTable) -> ItemBank:
    """Calibrate every item that can be calibrated.

    Scores of 0 and 1 alone get a 2PL, or a 1PL with fewer than `SLOPES_FROM` examinees, without the
    items that all answered alike. Other scores in [0, 1] get the continuous model.

    Raises:
        CalibrationError: Scores from which nothing can be estimated.
    """
    if not np.isin(table.scores[~np.isnan(table.scores)], (0.0, 1.0)).all():
        plan = CalibrationPlan(model=CONTINUOUS_SCORES, filters=MEASURING)
        return calibrate_continuous(prepared(table, plan).matrix).bank
    few = len(table.examinees) < SLOPES_FROM
    family = Family.RASCH if few else Family.TWO_PL
    plan = CalibrationPlan(model=family.value, filters=MEASURING)
    settings = CalibrationSettings(family=family, with_errors=False)
    return calibrate(prepared(table, plan).matrix, settings).bank()


def bank_by_moments(table: ResponseTable) -> ItemBank:
    """Calibrate by arXiv 2601.13885, eq. 8 and 9, without negatively correlated items.

    Raises:
        CalibrationError: Scores from which nothing can be estimated.
    """
    plan = CalibrationPlan(model=CONTINUOUS_SCORES, filters=_RISING, moments=True)
    return calibrate_by_moments(prepared(table, plan).matrix).bank


def learned_from(
    scores: FloatArray,
    bank: ItemBank,
    design: Design,
    *,
    max_items: int,
    seed: int,
    moments: bool = False,
) -> IntervalCorrection | None:
    """Correction of short tests' intervals, learned from the reference models.

    It is None with fewer than 20 reference models.

    Args:
        scores: Scores on the bank's items in its order, shape (n_examinees, n_items), with NaN.
        bank: Bank that was calibrated from these scores.
        design: Design of the tests.
        max_items: Largest number of items of a test.
        seed: Random seed.
        moments: Whether `bank_by_moments` calibrated the bank, not `bank_from`.
    """
    if len(scores) < LEAST_EXAMINEES:
        return None
    rows = np.linspace(0, len(scores) - 1, min(len(scores), LEARNED_FROM)).astype(int).tolist()
    table = ResponseTable(tuple(map(str, range(len(scores)))), bank.item_ids, scores)
    banks = banks_without(bank, table, rows, seed, moments=moments)
    seen = glimpses_on(banks, scores, design.open_ended(max_items).build, seed=seed)
    return learn_correction(seen, known=whole_bank_abilities(bank, scores)[0])
