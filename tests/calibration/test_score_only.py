"""Items that measure ability too poorly, and still count in scores."""

import time
from dataclasses import replace

import numpy as np
import pytest

from app.calibration.filters import Filtered, FilterSettings
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import Fitted, measuring
from app.calibration.pipeline.fit import CALIBRATORS, fit, prepared, with_card
from app.calibration.pipeline.logistic import FittedPart, fit_joined, fit_part, parts_for
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.knowledge import curves_of
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import take
from app.engine.state import Response
from tests.calibration.simulated import Simulated, simulate

DROPPING = CalibrationPlan(
    filters=FilterSettings(point_biserial_confidence=0.95, keep_for_score=False)
)
PLAN = replace(DROPPING, filters=replace(DROPPING.filters, keep_for_score=True))
Calibrated = tuple[Filtered[ScoreMatrix], Fitted]
#: Items with wrong keys, of 40.
WRONG = {"q0", "q1", "q2", "q3"}
SHORT = {"preset": "ability", "stopping": {"se": None, "min_items": 20, "max_items": 20}}


def _answers() -> ResponseTable:
    scores = simulate(3, Family.TWO_PL, 100, 40).matrix.scores.astype(float)
    scores[:, :4] = 1 - scores[:, :4]
    items = tuple(f"q{j}" for j in range(40))
    return ResponseTable(tuple(f"m{i}" for i in range(100)), items, scores)


def _floats(data: Simulated) -> FloatArray:
    scores: FloatArray = data.matrix.scores.astype(np.float64)
    return scores


@pytest.fixture(scope="module")
def calibrated() -> Calibrated:
    filtered = prepared(_answers(), PLAN)
    fitted = fit(filtered.matrix, PLAN, lambda _: None)
    found = with_card(filtered.matrix, PLAN, fitted, lambda _: None, clock=time.perf_counter)
    return filtered, found


def test_items_with_wrong_keys_are_kept_for_the_score_only(calibrated: Calibrated) -> None:
    filtered, fitted = calibrated
    assert {item.name for item in filtered.score_only} == WRONG
    assert len(filtered.matrix.items) == 40
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns)
    most = bank.information(np.linspace(-3.0, 3.0, 31)).max(axis=0)
    assert most[:4].max() == 0.0 < most[4:].min()
    assert np.isnan(bank.b[:4]).all()


def test_only_tests_for_the_score_ask_such_items_and_all_count_them(calibrated: Calibrated) -> None:
    filtered, fitted = calibrated
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns)
    curves = curves_of(bank, fitted.knowledge)
    ability = Design.from_dict(SHORT).build(bank, curves=curves)
    for_score = {**SHORT, "selection": {"criterion": "v_optimal"}}
    score = Design.from_dict(for_score).build(bank, curves=curves)
    for row in (0, 50):
        answers = filtered.matrix.answers(slice(row, row + 1))[0]
        measured, _ = take(ability, answers, seed=[row])
        assert not measured.asked & {0, 1, 2, 3}
        scored, _ = take(score, answers, seed=[row])
        assert scored.asked & {0, 1, 2, 3}
        for test, state in ((ability, measured), (score, scored)):
            told = test.predict(state)
            assert told.lo <= answers.mean() <= told.hi


def test_such_items_change_no_other_item(calibrated: Calibrated) -> None:
    matrix = prepared(_answers(), DROPPING).matrix
    without = fit(matrix, DROPPING, lambda _: None)
    filtered, fitted = calibrated
    others = [filtered.matrix.items.index(item) for item in matrix.items]
    for name, values in without.columns.items():
        np.testing.assert_array_equal(values, fitted.columns[name][others])
    assert without.figures["fit"] == fitted.figures["fit"]


def test_answers_to_such_items_do_not_move_theta(calibrated: Calibrated) -> None:
    filtered, fitted = calibrated
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns)
    rows = filtered.matrix.answers(slice(0, 2))
    others = rows.copy()
    others[:, :4] = 1 - others[:, :4]
    thetas, moved = (whole_bank_abilities(bank, each)[0] for each in (rows, others))
    assert moved == pytest.approx(thetas, abs=1e-9)
    test = Design.from_dict(SHORT).build(bank)
    told = [
        test.replay(Response(ItemIndex(j), float(score)) for j, score in enumerate(row))
        for row in (rows[0], others[0])
    ]
    assert told[0].belief.theta == pytest.approx(told[1].belief.theta, abs=1e-9)


def test_expected_scores_are_the_reference_models_mean() -> None:
    data = simulate(8, Family.TWO_PL, 400, 60)
    easy = np.argsort(-data.matrix.item_means())[:6]
    plan = replace(PLAN, filters=replace(PLAN.filters, greatest_mean=0.7))
    filtered = prepared(
        ResponseTable(data.matrix.examinees, data.matrix.items, _floats(data)), plan
    )
    matrix = filtered.matrix
    fitted = fit(matrix, plan, lambda _: None)
    bank = ItemBank.from_columns(matrix.items, fitted.columns)
    assert bank.expected_score([1.0])[0, easy] == pytest.approx(
        data.matrix.item_means()[easy], abs=0.01
    )
    weakest = data.theta < 0.0
    blind = CALIBRATORS[plan.model].taught_by(matrix, weakest, plan, fitted, bank).bank
    share = matrix.scores[weakest][:, easy].mean(axis=0)
    assert blind.expected_score([1.0])[0, easy] == pytest.approx(share, abs=0.01)
    assert (bank.expected_score([0.0])[0, easy] - share).mean() > 0.1


def test_parts_hold_measuring_items_and_the_joined_bank_holds_all() -> None:
    scores = simulate(6, Family.TWO_PL, 150, 210).matrix.scores.astype(float)
    scores[:, :4] = 1 - scores[:, :4]
    matrix = ScoreMatrix.of(scores)
    plan = replace(PLAN, partition_size=100)
    weak = np.flatnonzero(~measuring(matrix, plan))
    assert set(weak) >= {0, 1, 2, 3}
    parts = []
    for number, items in enumerate(parts_for(matrix, plan)):
        assert not set(items) & set(weak)
        own = matrix.select(items=items)
        fitted = fit_part(own, plan, number, lambda _: None)
        parts.append(FittedPart(own.items, fitted.figures, fitted.columns))
    joined = fit_joined(matrix, plan, parts, lambda _: None)
    at_once = fit(matrix, plan, lambda _: None)
    assert joined.figures == at_once.figures
    for name, values in at_once.columns.items():
        np.testing.assert_array_equal(joined.columns[name], values)
    assert np.isfinite(joined.columns["a"]).all()
    assert np.isnan(joined.columns["se_a"][weak]).all()


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
def test_constant_items_stay_in_the_score(model: str) -> None:
    table = _answers()
    scores = table.scores.copy()
    scores[:, 5], scores[:, 6] = 1.0, 0.0
    answers = replace(table, scores=scores)
    plan = replace(PLAN, model=model)
    filtered = prepared(answers, plan)
    assert {item.name for item in filtered.score_only} == WRONG | {"q5", "q6"}
    fitted = fit(filtered.matrix, plan, lambda _: None)
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns)
    at_zero = bank.expected_score(np.zeros(1))[0]
    assert at_zero[5] > 0.98
    assert at_zero[6] < 0.02
    assert bank.information(np.zeros(1))[0][[5, 6]].max() == 0.0
