"""A bank for a ranking of recorded scores, from other examinees' scores. Pure."""

from dataclasses import replace

import numpy as np

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.filters import FilterSettings
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.fit import prepared
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, CalibrationPlan
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import IntervalCorrection
from app.engine.responses import ResponseTable
from app.engine.simulation.learning import LEAST_EXAMINEES, glimpses, learn_correction

#: Examinees from which on items get slopes of their own; below, one slope fits all about as well.
SLOPES_FROM = 30
#: Examinees on whom tests are simulated, to learn how far standard errors hold.
LEARNED_FROM = 100

#: Every item that tells something of ability, and no other.
_MEASURING = replace(FilterSettings.none(), keep_for_score=False)
#: The published filter: every item that does not fall with ability, however few say so.
_RISING = replace(_MEASURING, least_point_biserial=0.0, point_biserial_confidence=0.5)


def bank_from(table: ResponseTable) -> ItemBank:
    """Calibrate every item that can be.

    Scores of 0 and 1 alone: a 2PL, or from fewer than `SLOPES_FROM` examinees a 1PL, without the
    items that all got right or all got wrong. Other scores in [0, 1]: the continuous model.

    Raises:
        CalibrationError: Scores from which nothing can be estimated.
    """
    if not np.isin(table.scores[~np.isnan(table.scores)], (0.0, 1.0)).all():
        plan = CalibrationPlan(model=CONTINUOUS_SCORES, filters=_MEASURING)
        return calibrate_continuous(prepared(table, plan).matrix).bank
    few = len(table.examinees) < SLOPES_FROM
    family = Family.RASCH if few else Family.TWO_PL
    plan = CalibrationPlan(model=family.value, filters=_MEASURING)
    settings = CalibrationSettings(family=family, with_errors=False)
    return calibrate(prepared(table, plan).matrix, settings).bank()


def bank_by_moments(table: ResponseTable) -> ItemBank:
    """Calibrate as arXiv 2601.13885 does, eq. 8 and 9, without items that fall with ability.

    Raises:
        CalibrationError: Scores from which nothing can be estimated.
    """
    plan = CalibrationPlan(model=CONTINUOUS_SCORES, filters=_RISING, moments=True)
    return calibrate_by_moments(prepared(table, plan).matrix).bank


def learned_from(
    scores: FloatArray, bank: ItemBank, design: Design, *, max_items: int, seed: int
) -> IntervalCorrection | None:
    """How far standard errors of short tests hold, from those whom the bank was calibrated from.

    Fewer than 20 examinees teach nothing.

    Args:
        scores: Theirs on the bank's items, shape (n_examinees, n_items), NaN where there is none.
        bank: The bank.
        design: Of the tests.
        max_items: Most items of a test.
        seed: Of all chance.
    """
    if len(scores) < LEAST_EXAMINEES:
        return None
    rows = np.linspace(0, len(scores) - 1, min(len(scores), LEARNED_FROM)).astype(int).tolist()
    references, _ = whole_bank_abilities(bank, scores)
    test = design.open_ended(max_items).build(bank)
    seen = glimpses(test, scores, references, rows, seed=seed)
    return learn_correction(seen, known=references)
