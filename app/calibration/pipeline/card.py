"""The report card of a calibration, and the abilities of its examinees. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from cachetools import LRUCache

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.filters import filter_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.filters import FilterSettings, apply_filters
from app.calibration.fit.held_out import Blind, held_out
from app.calibration.fit.report_card import report_card
from app.calibration.fit.shifts import Records, Shift, ShiftPlan, by_family, by_strength, tried
from app.calibration.linking.linked import LinkMethod, calibrate_linked, linked
from app.calibration.linking.partition import calibrate_in_parts
from app.calibration.logistic.calibrate import calibrate
from app.calibration.matrix import MISSING, ScoreMatrix
from app.calibration.multidimensional.curve_errors import RANDOM, hold_outs, learn_curves
from app.calibration.multidimensional.learned import learn_abilities
from app.calibration.multidimensional.score_curves import strongest_first
from app.calibration.multidimensional.score_intervals import LEAST_ANSWERED, LEAST_EXAMINEES
from app.calibration.multidimensional.settings import FitMethod
from app.calibration.pipeline.abilities import task_targets
from app.calibration.pipeline.fit import ExamineeAbilities, Fitted, Report, bank_from_columns
from app.calibration.pipeline.plan import (
    SEVERAL_ABILITIES,
    CalibrationPlan,
    anchors_for,
    decided,
)
from app.engine.bank import ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray, ItemParameters
from app.engine.multidimensional.curve_knowledge import CURVES, curves_to_dict
from app.engine.multidimensional.knowledge import with_abilities
from app.engine.prediction.combined_score import LearnedCurves
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, InvalidInputError

#: Records estimated at a time: a block of 5,600 items takes 23 MB.
_BLOCK_ROWS = 512
#: Banks calibrated without some examinees that are kept: the strongest are held out twice.
_REMEMBERED = 4
#: So many quantiles tell a distribution well enough.
_QUANTILES = 101


def with_card(
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
    fitted: Fitted,
    report: Report,
    *,
    clock: Callable[[], float],
) -> Fitted:
    """The same calibration with what predicts scores, and a report card if its plan asks for one.

    There is neither of answers in which drift is looked for, nor of those that revise beliefs: they
    are of adaptive tests, in which nobody's whole record is known.

    Args:
        matrix: What was calibrated.
        plan: How.
        fitted: What came out.
        report: Takes the progress.
        clock: Tells seconds: how long it took is a figure.
    """
    if plan.checks_drift or plan.beliefs is not None:
        return fitted
    # Decided by all the answers, as for the bank: what is held out must be tested on its kind.
    plan = decided(matrix, plan)
    if plan.model not in SEVERAL_ABILITIES:
        fitted = fitted._replace(knowledge={**fitted.knowledge, **_curves(matrix, plan)})
    if not plan.report_card:
        return fitted
    report({"phase": "testing"})
    started = clock()
    bank = with_abilities(bank_from_columns(matrix.items, fitted.columns), fitted.knowledge)
    abilities = _abilities(matrix, bank)
    figures = dict(fitted.figures)
    knowledge = {**fitted.knowledge, "reference_abilities": _distribution(abilities)}
    records = Records(
        scores_of=lambda rows: _scores(matrix, rows),
        without=_remembering(lambda rows: _without(matrix, rows, plan, fitted, bank)),
        curves_without=lambda rows: _learned_curves(
            np.delete(_scores(matrix, slice(None)), rows, axis=0), [WHOLE_BANK], matrix, plan
        ),
        n_examinees=matrix.n_examinees,
    )
    try:
        held = held_out(
            records.scores_of,
            records.without,
            records.n_examinees,
            curves_without=records.curves_without,
            shifted=_shifted(matrix, plan),
            seed=plan.seed,
        )
        # Fewer than a card takes still teach intervals: the model's own are too sure of itself.
        knowledge["interval_correction"] = held.correction().to_dict()
        card = report_card(held, plan.seed)
    except (CalibrationError, InvalidInputError) as error:
        # What was estimated is no worse for it.
        figures["warnings"] = [*figures["warnings"], f"There is no report card: {error.detail}"]
    else:
        shifts = [_tried(shift, records, plan).to_dict() for shift in _shifts(matrix, plan)]
        seconds = clock() - started
        figures["report_card"] = {**card.to_dict(), "shifts": shifts, "seconds": seconds}
    return Fitted(figures, fitted.columns, knowledge, abilities)


def _curves(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan) -> dict[str, Any]:
    """What predicts scores, where enough examinees answered enough of the bank to learn it from.

    Models of several abilities bring it with them.
    """
    found = _learned_curves(_scores(matrix, slice(None)), None, matrix, plan)
    return {} if found is None else {CURVES: curves_to_dict(found, matrix.items)}


def _learned_curves(
    scores: FloatArray,
    names: Sequence[str] | None,
    matrix: ScoreMatrix | ResponseTable,
    plan: CalibrationPlan,
) -> LearnedCurves | None:
    """Of some examinees, and of the scores of these names; None is all that tests tell of."""
    whole = _whole_records(scores)
    if len(whole) < LEAST_EXAMINEES or np.isnan(whole).all(axis=0).any():
        return None
    targets = task_targets(matrix.items)
    wanted = {name: targets[name] for name in names or targets}
    return learn_curves(whole, wanted, np.random.default_rng(plan.seed))


def _shifted(
    matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan
) -> list[tuple[IntArray, IntArray]]:
    """The strongest and the weakest, to be tested on banks that do not know them.

    Of several abilities score curves are tested so, and theta is not.
    """
    if plan.model in SEVERAL_ABILITIES or matrix.n_examinees < LEAST_EXAMINEES:
        return []
    found = hold_outs(_scores(matrix, slice(None)), np.random.default_rng(plan.seed))
    return [(held.known, held.tested) for held in found if held.name != RANDOM]


def _shifts(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan) -> list[ShiftPlan]:
    """The ways in which examinees unlike those learned from are held out."""
    strongest = strongest_first(_scores(matrix, slice(None)))
    families = [plan.family_of(name) for name in matrix.examinees]
    return [*by_strength(strongest), by_family(families)]


def _tried(shift: ShiftPlan, records: Records, plan: CalibrationPlan) -> Shift:
    """What came of it; a row that cannot be had is no fault of the others."""
    try:
        return tried(shift, records, plan.seed)
    except (CalibrationError, InvalidInputError) as error:
        return Shift(name=shift.name, reason=error.detail)


def _remembering(without: Callable[[IntArray], Blind]) -> Callable[[IntArray], Blind]:
    """The same, calibrated once for the same examinees."""
    known: LRUCache[bytes, Blind] = LRUCache(_REMEMBERED)

    def remembered(rows: IntArray) -> Blind:
        key = np.sort(rows).tobytes()
        if key not in known:
            known[key] = without(rows)
        return known[key]

    return remembered


def _whole_records(scores: FloatArray) -> FloatArray:
    """Those with answers to most items."""
    whole: FloatArray = scores[np.mean(~np.isnan(scores), axis=1) >= LEAST_ANSWERED]
    return whole


def _scores(matrix: ScoreMatrix | ResponseTable, rows: IntArray | slice) -> FloatArray:
    if isinstance(matrix, ResponseTable):
        return matrix.scores[rows]
    codes = matrix.scores[rows]
    return np.where(codes == MISSING, np.nan, codes)


def _abilities(matrix: ScoreMatrix | ResponseTable, bank: ItemBank) -> ExamineeAbilities:
    n_examinees = len(matrix.examinees)
    found = []
    for start in range(0, n_examinees, _BLOCK_ROWS):
        scores = _scores(matrix, slice(start, start + _BLOCK_ROWS))
        found.append((*whole_bank_abilities(bank, scores), np.nanmean(scores, axis=1)))
    thetas, errors, means = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ExamineeAbilities(
        theta=thetas, se=np.where(np.isfinite(errors), errors, np.nan), score=means
    )


def _distribution(abilities: ExamineeAbilities) -> dict[str, Any]:
    """The examinees' thetas by their quantiles, from which others can be drawn."""
    quantiles = np.quantile(abilities.theta, np.linspace(0, 1, _QUANTILES))
    return {"n_examinees": len(abilities.theta), "quantiles": quantiles.tolist()}


def _without(
    matrix: ScoreMatrix | ResponseTable,
    rows: IntArray,
    plan: CalibrationPlan,
    fitted: Fitted,
    bank: ItemBank,
) -> Blind:
    """What all examinees but some teach."""
    others = np.ones(len(matrix.examinees), dtype=np.bool_)
    others[rows] = False
    if plan.model in SEVERAL_ABILITIES:
        return _abilities_without(matrix, others, plan, fitted)
    if isinstance(matrix, ResponseTable):
        found = _continuous_of(matrix, others, plan)
        return Blind(bank=_replaced(bank, found.item_ids, found.parameters))
    part = apply_filters(matrix.select(examinees=others), FilterSettings.none()).matrix
    return Blind(bank=_replaced(bank, part.items, _parameters(part, plan)))


def _replaced(bank: ItemBank, items: Sequence[str], found: ItemParameters) -> ItemBank:
    """The bank with new parameters; items that those left out alone tell about stay as they are."""
    at = [bank.index_of(item) for item in items]
    columns = {name: values.copy() for name, values in bank.columns.items()}
    for name, values in columns.items():
        values[at] = getattr(found, name)
    return bank_from_columns(bank.item_ids, columns)


def _abilities_without(
    matrix: ScoreMatrix | ResponseTable, others: BoolArray, plan: CalibrationPlan, fitted: Fitted
) -> Blind:
    """Of the same number of dimensions, by the method that was the better one for all."""
    chosen = fitted.figures["dimensionality"]
    learned = learn_abilities(
        _scores(matrix, np.flatnonzero(others)),
        matrix.items,
        replace(
            plan.abilities(), dimensions=chosen["dimensions"], method=FitMethod(chosen["method"])
        ),
        task_targets(matrix.items),
        np.random.default_rng(plan.seed),
    )
    return Blind(
        bank=learned.bank,
        targets={} if learned.scores is None else learned.scores.targets,
        curves=learned.curves,
    )


def _continuous_of(table: ResponseTable, rows: BoolArray, plan: CalibrationPlan) -> ItemBank:
    """The items that some examinees tell about."""
    names = tuple(np.array(table.examinees)[rows].tolist())
    part = ResponseTable(names, table.items, table.scores[rows])
    kept = filter_continuous(part, FilterSettings.none()).matrix
    if plan.moments:
        return calibrate_by_moments(kept).bank
    return calibrate_continuous(kept, max_cycles=plan.max_cycles).bank


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
