"""A whole calibration, from answers to the figures and the report card that are stored. Pure.

Each response model has a row in `CALIBRATORS`, which the command line and the workers use.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from cachetools import LRUCache

from app.calibration.filters import Filtered
from app.calibration.fit.held_out import Blind, Records, held_out
from app.calibration.fit.report_card import report_card
from app.calibration.fit.shifts import by_family, by_strength, tried
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.score_curves import strongest_first
from app.calibration.multidimensional.score_model import LEAST_ANSWERED, LEAST_EXAMINEES
from app.calibration.pipeline.abilities import AbilitiesCalibrator
from app.calibration.pipeline.calibrator import Calibrator, ExamineeAbilities, Fitted, Report
from app.calibration.pipeline.continuous import ContinuousCalibrator
from app.calibration.pipeline.logistic import LogisticCalibrator
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, MIRT, NESTED, CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.knowledge import with_abilities
from app.engine.models.base import FloatArray, IntArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, InvalidInputError

CALIBRATORS: Mapping[str, Calibrator[Any]] = {
    **dict.fromkeys((family.value for family in Family), LogisticCalibrator()),
    CONTINUOUS_SCORES: ContinuousCalibrator(),
    NESTED: AbilitiesCalibrator(nested=True),
    MIRT: AbilitiesCalibrator(nested=False),
}
"""How each response model is calibrated."""
#: Examinees whose theta is estimated at a time: a block of 5,600 items takes 23 MB.
_BLOCK_ROWS = 512
#: Number of banks without some examinees that are kept, as the strongest are held out twice.
_REMEMBERED = 4
T = TypeVar("T")
#: Least share of the score's variance that theta explains; below, theta measures something else.
_LEAST_COMMON = 0.5
#: Number of stored quantiles of theta, enough to describe a distribution.
_QUANTILES = 101


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


def with_card(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    fitted: Fitted,
    report: Report,
    *,
    clock: Callable[[], float],
) -> Fitted:
    """Add to a calibration what predicts scores, and a report card if its plan asks for one.

    Calibrations that check for drift or revise beliefs get neither: their answers come from
    adaptive tests, in which no examinee answered the whole bank. `clock` returns seconds.
    """
    if plan.checks_drift or plan.beliefs is not None:
        return fitted
    # All answers decide the plan, so that banks without some examinees resemble the bank itself.
    plan, calibrator = decided(matrix, plan), CALIBRATORS[plan.model]
    fitted = fitted._replace(knowledge={**fitted.knowledge, **calibrator.curves(matrix, plan)})
    if not plan.report_card:
        return fitted
    report({"phase": "testing"})
    started = clock()
    bank = with_abilities(ItemBank.from_columns(matrix.items, fitted.columns), fitted.knowledge)
    abilities = _abilities(matrix, bank)
    figures = dict(fitted.figures)
    figures["warnings"] = [*figures["warnings"], *not_the_score(abilities, matrix.answers())]
    # Quantiles of the examinees' thetas, from which thetas can be sampled.
    quantiles = np.quantile(abilities.theta, np.linspace(0, 1, _QUANTILES)).tolist()
    reference = {"n_examinees": len(abilities.theta), "quantiles": quantiles}
    knowledge = {**fitted.knowledge, "reference_abilities": reference}
    records = records_of(matrix, plan, fitted, bank)
    try:
        held = held_out(records, seed=plan.seed)
        # Intervals, which are too narrow without correction, need fewer examinees than a card.
        knowledge["interval_correction"] = held.correction().to_dict()
        card = report_card(held, plan.seed)
    except (CalibrationError, InvalidInputError) as error:
        # The estimates are as good without a report card.
        figures["warnings"] = [*figures["warnings"], f"There is no report card: {error.detail}"]
    else:
        shifts = [
            tried(shift, records, plan.seed)
            for shift in (
                *by_strength(strongest_first(matrix.answers())),
                by_family([plan.family_of(name) for name in matrix.examinees]),
            )
        ]
        seconds = clock() - started
        figures["report_card"] = {**card.to_dict(), "shifts": shifts, "seconds": seconds}
    return Fitted(figures, fitted.columns, knowledge, abilities)


def records_of(
    matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan, fitted: Fitted, bank: ItemBank
) -> Records:
    """The examinees of a calibration, with functions that calibrate from some of them."""
    calibrator = CALIBRATORS[plan.model]

    def taught_by(known: IntArray) -> Blind:
        mask = np.isin(np.arange(matrix.n_examinees), known)
        return calibrator.taught_by(matrix, mask, plan, fitted, bank)

    return Records(
        scores_of=matrix.answers,
        taught_by=_remembering(taught_by),
        curves_by=_remembering(
            lambda known: calibrator.learned_curves(matrix.answers(np.sort(known)), plan)
        ),
        n_examinees=matrix.n_examinees,
    )


def _remembering(learn: Callable[[IntArray], T]) -> Callable[[IntArray], T]:
    """Cache the results of `learn`, by the set of examinees."""
    known: LRUCache[bytes, T] = LRUCache(_REMEMBERED)

    def remembered(rows: IntArray) -> T:
        key = np.sort(rows).tobytes()
        if key not in known:
            known[key] = learn(rows)
        return known[key]

    return remembered


def _abilities(matrix: ScoreMatrix | ResponseTable, bank: ItemBank) -> ExamineeAbilities:
    n_examinees = len(matrix.examinees)
    found = []
    for start in range(0, n_examinees, _BLOCK_ROWS):
        scores = matrix.answers(slice(start, start + _BLOCK_ROWS))
        found.append((*whole_bank_abilities(bank, scores), np.nanmean(scores, axis=1)))
    thetas, errors, means = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ExamineeAbilities(
        theta=thetas, se=np.where(np.isfinite(errors), errors, np.nan), score=means
    )


def not_the_score(abilities: ExamineeAbilities, answers: FloatArray) -> list[str]:
    """A warning if theta explains less than half of the score's variance.

    Args:
        abilities: Thetas and scores of the examinees.
        answers: Their answers, shape (n_examinees, n_items), NaN for none. Only examinees who
            answered most items count, as scores on different items are not comparable.
    """
    whole = np.mean(~np.isnan(answers), axis=1) >= LEAST_ANSWERED
    theta, score = abilities.theta[whole], abilities.score[whole]
    if theta.size < LEAST_EXAMINEES or not (theta.std() > 0.0 and score.std() > 0.0):
        return []
    together = float(np.corrcoef(theta, score)[0, 1])
    if together > 0.0 and together**2 >= _LEAST_COMMON:
        return []
    return [
        "The ability that these items measure is not the score: among the examinees the two "
        f"correlate by {together:.2f}. Something other than the score sets some of them apart "
        "on many items, such as a way of answering, so rankings by theta and by score will "
        "differ. Measure the score (preset: score), not theta."
    ]
