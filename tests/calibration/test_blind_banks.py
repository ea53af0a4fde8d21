from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from app.calibration.filters import FilterSettings
from app.calibration.pipeline.blind_banks import (
    banks_without,
    blind_banks,
    glimpses_on,
    is_calibrated_from,
)
from app.calibration.pipeline.fit import CALIBRATORS, prepared
from app.calibration.pipeline.plan import CalibrationPlan
from app.calibration.pipeline.ranking import bank_by_moments, learned_from
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.responses import ResponseTable
from app.engine.simulation.learning import Glimpse, learn_correction
from app.engine.simulation.simulate import draw_scores
from tests.engine.random_banks import clean_bank

N_EXAMINEES = 40


class World(NamedTuple):
    bank: ItemBank
    table: ResponseTable
    others: FloatArray


def world(
    model: str, n_items: int = 30, n_examinees: int = N_EXAMINEES, n_others: int = N_EXAMINEES
) -> World:
    """Return a bank calibrated from a table, and answers of others to its items."""
    true, rng = clean_bank(3, n_items), np.random.default_rng(4)
    scores = np.array(list(draw_scores(true, rng.normal(size=n_examinees + n_others), rng)))
    if model == "continuous":
        scores = (scores + scores[:, ::-1] + 0.5) / 3
    scores[0, 3] = np.nan
    own = scores[:n_examinees]
    items = np.flatnonzero(np.nanstd(own, axis=0) > 0.0)
    names = tuple(f"m{i}" for i in range(n_examinees))
    table = ResponseTable(names, tuple(f"i{j}" for j in items), own[:, items])
    plan = CalibrationPlan(model=model, filters=FilterSettings.none())
    matrix = prepared(table, plan).matrix
    fitted = CALIBRATORS[model].fit(matrix, plan, lambda _: None)
    return World(
        ItemBank.from_columns(matrix.items, fitted.columns), table, scores[n_examinees:, items]
    )


@pytest.fixture(scope="module", params=["1pl", "2pl", "3pl", "continuous"])
def one(request: pytest.FixtureRequest) -> World:
    return world(request.param)


def test_answers_show_whether_a_bank_was_calibrated_from_them(one: World) -> None:
    assert is_calibrated_from(one.bank, one.table.scores)
    assert is_calibrated_from(one.bank, one.table.scores[: 3 * N_EXAMINEES // 4])
    assert not is_calibrated_from(one.bank, one.others)
    if one.table.scores.max() == 1.0:
        assert not is_calibrated_from(one.bank, one.table.scores / 2)


def test_examinees_are_tested_on_banks_that_their_answers_did_not_touch(one: World) -> None:
    scores = one.table.scores.copy()
    scores[7] = scores[8]
    changed = ResponseTable(one.table.examinees, one.table.items, scores)
    rows = list(range(5, N_EXAMINEES))
    folds, others = (list(blind_banks(one.bank, table, rows, 1)) for table in (one.table, changed))
    assert sorted(row for tested, _ in folds for row in tested) == rows
    for (tested, blind), (_, again) in zip(folds, others, strict=True):
        same = [
            np.array_equal(values, again.columns[name]) for name, values in blind.columns.items()
        ]
        assert all(same) == (7 in tested)
        assert not np.allclose(blind.intercept, one.bank.intercept)


def test_a_bank_from_others_stays_as_it_is(one: World) -> None:
    table = ResponseTable(one.table.examinees, one.table.items, one.others)
    assert list(blind_banks(one.bank, table, [2, 5], 0)) == [([2, 5], one.bank)]


def test_banks_are_calibrated_again_on_their_scale_and_without_flat_items() -> None:
    own = world("2pl")
    a, intercept = own.bank.a / 3, own.bank.intercept - 5 / 3 * own.bank.a
    a[4] = intercept[4] = 0.0
    moved = ItemBank.from_intercepts(a=a, intercept=intercept, item_ids=own.bank.item_ids)
    scores = own.table.scores.copy()
    scores[2, np.arange(len(a)) != 4] = np.nan  # an examinee whose answers tell nothing of theta
    table = replace(own.table, scores=scores)
    for _, blind in blind_banks(moved, table, range(N_EXAMINEES), 0):
        assert (blind.a[4], blind.intercept[4]) == (0.0, 0.0)
        assert np.nanmedian(blind.b) == pytest.approx(np.nanmedian(moved.b), abs=1.5)
        assert np.median(blind.a) == pytest.approx(np.median(moved.a), rel=0.2)


def test_intervals_learned_on_blind_banks_hold_for_other_examinees() -> None:
    own = world("2pl", n_items=100, n_examinees=30, n_others=150)
    design = Design.from_dict({"preset": "ability", "stopping": {"se": None, "max_items": 20}})

    banks = blind_banks(own.bank, own.table, range(30), 0)
    blind = glimpses_on(banks, own.table.scores, design.build, seed=0)
    informed = glimpses_on([(range(30), own.bank)], own.table.scores, design.build, seed=0)
    new = glimpses_on([(range(150), own.bank)], own.others, design.build, seed=0)

    def held(seen: list[Glimpse]) -> float:
        learned = learn_correction(seen)
        told = [(learned.of_estimate(one.estimate, one.answers), one.theta) for one in new]
        return float(np.mean([one.lo <= theta <= one.hi for one, theta in told]))

    assert held(informed) < 0.85 < 0.91 < held(blind) < 0.98


def test_a_bank_by_moments_is_calibrated_again_by_moments() -> None:
    table = world("continuous", n_items=60, n_examinees=100).table
    bank = bank_by_moments(table)
    table = table.select(items=np.isin(table.items, bank.item_ids))
    assert not is_calibrated_from(bank, table.scores)  # which answers alone would tell
    design = Design.from_dict({"preset": "ability", "stopping": {"se": None, "max_items": 15}})

    learned = learned_from(table.scores, bank, design, max_items=15, seed=0, moments=True)

    held_out = {}
    for tested, blind in banks_without(bank, table, range(100), 0, moments=True):
        others = table.select(examinees=~np.isin(range(100), tested))
        own = bank_by_moments(others)
        assert blind.b[[bank.index_of(item) for item in own.item_ids]] == pytest.approx(own.b)
        held_out[tuple(tested)] = blind
    seen = glimpses_on(held_out.items(), table.scores, design.build, seed=0)
    assert learned == learn_correction(seen, known=whole_bank_abilities(bank, table.scores)[0])


def test_a_bank_of_flat_items_is_from_nobody() -> None:
    flat = ItemBank.from_intercepts(a=[0.0, 0.0], intercept=[1.0, 0.0])
    assert not is_calibrated_from(flat, np.array([[1.0, 0.0], [0.0, 1.0]]))
