from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import EPSILON, calibrate_by_moments
from app.calibration.continuous.scores import ScoreScale, conformance
from app.calibration.filters import FilterSettings, apply_filters, rest_correlations
from app.calibration.pipeline.fit import fit, prepared
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, CalibrationPlan
from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import GridEstimator
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import draw_scores
from app.errors import CalibrationError, InvalidInputError
from tests.values import not_none


def table(scores: Any) -> ResponseTable:
    values = np.array(scores, dtype=np.float64)
    return ResponseTable(
        tuple(f"m{i}" for i in range(values.shape[0])),
        tuple(f"q{j}" for j in range(values.shape[1])),
        values,
    )


def simulated(
    n_examinees: int, n_items: int, seed: int, *, slope: float = 1.0, slope_sd: float = 0.3
) -> tuple[ItemBank, FloatArray, ResponseTable]:
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_difficulties(
        a=slope * rng.lognormal(0.0, slope_sd, n_items),
        b=rng.normal(-0.3, 1.0, n_items),
        k=rng.uniform(0.05, 0.3, n_items),
    )
    thetas = rng.normal(size=n_examinees)
    return bank, thetas, table(list(draw_scores(bank, thetas, rng)))


def test_known_items_are_recovered_and_their_errors_are_true() -> None:
    held: dict[str, list[float]] = {"a": [], "b": [], "k": []}
    for seed in range(8):
        bank, _, answers = simulated(250, 120, seed)
        found = calibrate_continuous(answers)
        assert found.converged
        for name, errors in (("a", found.se_a), ("b", found.se_b), ("k", found.se_k)):
            z = (getattr(found.bank, name) - getattr(bank, name)) / errors
            held[name].append(float(np.mean(np.abs(z) < 1.96)))
            assert np.corrcoef(getattr(found.bank, name), getattr(bank, name))[0, 1] > 0.95
        assert not_none(found.conformance) > 0.95
    for shares in held.values():
        assert np.mean(shares) == pytest.approx(0.95, abs=0.035)


def test_intervals_of_theta_on_a_calibrated_bank_have_their_coverage() -> None:
    _, sample, answers = simulated(400, 60, 20)
    found = calibrate_continuous(answers).bank
    rng = np.random.default_rng(21)
    thetas = rng.normal(size=600)
    scores = np.array(list(draw_scores(simulated(400, 60, 20)[0], thetas, rng)))
    held = 0
    for block in estimate_many(found, scores, GridEstimator()):
        for row, belief in zip(block.rows, block.beliefs, strict=True):
            estimate = belief.estimate()
            # The 400 examinees define the scale: their mean is 0 and their sd 1.
            theta = (thetas[row] - sample.mean()) / sample.std()
            held += estimate.lo <= theta <= estimate.hi
    assert 0.93 <= held / 600 <= 0.97


def test_a_few_examinees_give_nearly_common_slopes_and_dispersions() -> None:
    bank, _, answers = simulated(8, 600, 1, slope_sd=0.0)
    found = calibrate_continuous(answers)
    assert np.ptp(found.bank.a) < 0.1
    assert np.log(found.bank.k).std() < 0.8 * np.log(bank.k).std()
    assert np.corrcoef(found.bank.k, bank.k)[0, 1] > 0.4
    assert found.n_parameters < 2.2 * 600
    (warning,) = found.warnings
    assert "dispersion rests to" in warning


def test_many_examinees_give_each_item_its_own_slope_and_dispersion() -> None:
    bank, _, answers = simulated(300, 80, 2)
    found = calibrate_continuous(answers)
    assert found.bank.a.std() == pytest.approx(bank.a.std(), rel=0.15)
    assert found.warnings == ()


def test_item_by_item_parameters_predict_new_examinees_better_than_the_published_ones() -> None:
    bank, _, answers = simulated(40, 150, 3)
    rng = np.random.default_rng(4)
    new = np.array(list(draw_scores(bank, rng.normal(size=60), rng)))
    asked = new.copy()
    asked[:, 30:] = np.nan
    misses = {}
    for name, found in (
        ("likelihood", calibrate_continuous(answers)),
        ("published", calibrate_by_moments(answers)),
    ):
        errors = []
        for block in estimate_many(found.bank, asked, GridEstimator()):
            expected = found.bank.expected_score([belief.theta for belief in block.beliefs])
            errors.append((new[block.rows, 30:] - expected[:, 30:]) ** 2)
        misses[name] = float(np.concatenate(errors).mean())
    assert misses["likelihood"] < misses["published"]


def test_missing_scores_take_no_part() -> None:
    bank, _, answers = simulated(300, 60, 5)
    holes = answers.scores.copy()
    holes[np.random.default_rng(6).random(holes.shape) < 0.4] = np.nan
    found = calibrate_continuous(table(holes))
    assert np.corrcoef(found.bank.b, bank.b)[0, 1] > 0.98
    assert np.corrcoef(found.bank.k, bank.k)[0, 1] > 0.9
    assert found.n_answers == int((~np.isnan(holes)).sum())


def test_the_published_procedure_follows_its_formulas() -> None:
    _, _, answers = simulated(60, 40, 7)
    found = calibrate_by_moments(answers).bank
    scores = answers.scores
    lo, hi = scores.min(axis=0), scores.max(axis=0)
    share = EPSILON + (1 - 2 * EPSILON) * (scores - lo) / (hi - lo)
    mean = share.mean(axis=0)
    np.testing.assert_allclose(found.b, -np.log(mean / (1 - mean)))
    np.testing.assert_array_equal(found.c, lo)
    np.testing.assert_array_equal(found.d, hi)
    assert np.ptp(found.k) == 0
    assert (found.a == 1).all()


def test_conformance_detects_another_distribution_of_scores() -> None:
    bank, thetas, answers = simulated(200, 100, 8)
    good = conformance(bank, answers.scores, thetas)
    rng = np.random.default_rng(9)
    even = bank.expected_score(thetas) + rng.normal(0, 0.05, answers.scores.shape)
    bad = conformance(bank, np.clip(even, 0, 1), thetas)
    assert not_none(good) > 0.97
    assert not_none(bad) < 0


def test_falling_items_are_dropped_and_good_items_kept_despite_chance() -> None:
    _, _, answers = simulated(300, 40, 10)
    scores = answers.scores.copy()
    scores[:, 7] = 1 - scores[:, 7]
    published = FilterSettings(keep_for_score=False)
    kept = apply_filters(table(scores))
    assert kept.items == ()
    assert [item.name for item in kept.score_only] == ["q7"]
    filtered = apply_filters(table(scores), published)
    assert [(item.name, item.reason.value) for item in filtered.items] == [
        ("q7", "low_point_biserial")
    ]
    _, _, few = simulated(8, 300, 11, slope=0.4)
    unlucky = int((rest_correlations(few) < 0).sum())
    assert unlucky > 20
    assert len(apply_filters(few, published).items) < unlucky / 3


def test_falling_and_constant_items_count_only_in_the_score() -> None:
    _, _, answers = simulated(300, 40, 10)
    scores = answers.scores.copy()
    scores[:, 7] = 1 - scores[:, 7]
    scores[:, 3] = 0.4
    plan = CalibrationPlan(model=CONTINUOUS_SCORES)
    filtered = prepared(table(scores), plan)
    assert {item.name for item in filtered.score_only} == {"q3", "q7"}
    fitted = fit(filtered.matrix, plan, lambda _: None)
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns)
    assert bank.information(np.linspace(-3.0, 3.0, 7))[:, [3, 7]].max() == 0.0
    at_zero = bank.expected_score(np.zeros(1))[0]
    assert at_zero[[3, 7]] == pytest.approx(scores[:, [3, 7]].mean(axis=0), abs=0.01)
    # The other items are calibrated as if these were absent.
    dropping = replace(plan, filters=FilterSettings(keep_for_score=False))
    alone = prepared(table(scores), dropping)
    rest = fit(alone.matrix, dropping, lambda _: None).columns
    inside = np.isin(filtered.matrix.items, alone.matrix.items)
    for name in ("a", "intercept", "k"):
        np.testing.assert_allclose(fitted.columns[name][inside], rest[name])


def test_items_that_cannot_be_calibrated_are_dropped_with_a_reason() -> None:
    _, _, answers = simulated(50, 6, 12)
    scores = answers.scores.copy()
    scores[:, 1], scores[:, 2], scores[3, :] = 0.4, np.nan, np.nan
    nothing = replace(FilterSettings.none(), keep_for_score=False)
    filtered = apply_filters(table(scores), nothing)
    assert [(item.name, item.reason.value) for item in filtered.items] == [
        ("q2", "no_answers"),
        ("q1", "constant"),
    ]
    assert filtered.constants == {"q1": pytest.approx(0.4)}
    assert [examinee.name for examinee in filtered.examinees] == ["m3"]
    assert calibrate_continuous(filtered.matrix).bank.n_items == 4


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([[0.1, 0.2]], "at least 2 examinees"),
        ([[0.1], [0.2]], "2 items"),
        ([[0.5, 0.2], [0.5, 0.3]], "same score from everybody .* first 'q0'"),
        ([[0.5, np.nan], [0.4, np.nan]], "1 items have no scores, first 'q1'"),
    ],
)
def test_a_table_without_information_is_refused(scores: list[list[float]], words: str) -> None:
    with pytest.raises(CalibrationError, match=words):
        calibrate_continuous(table(scores))


def test_two_examinees_give_a_bank_and_a_warning() -> None:
    _, _, answers = simulated(2, 30, 13)
    found = calibrate_continuous(answers)
    assert np.isfinite([found.bank.a, found.bank.b, found.bank.k]).all()
    assert found.warnings


def test_scores_are_brought_onto_the_unit_scale_by_range_and_direction() -> None:
    names = ("m0", "m1")
    up = ScoreScale(lo=1, hi=10).unit(np.array([[1.0, 5.5], [10.0, np.nan]]), names, ("a", "b"))
    np.testing.assert_allclose(up, [[0.0, 0.5], [1.0, np.nan]])
    down = ScoreScale(lo=0, hi=4, lower_is_better=True)
    np.testing.assert_allclose(down.unit(np.array([[1.0]]), ("m0",), ("a",)), [[0.75]])


def test_a_score_off_its_scale_is_refused_with_row_and_column() -> None:
    with pytest.raises(InvalidInputError) as refused:
        ScoreScale(lo=1, hi=10).unit(np.array([[1.0, 10.0], [11.0, 0.0]]), ("m0", "m1"), ("a", "b"))
    assert refused.value.detail == (
        "Expected scores from 1 to 10, got 11 for examinee 'm1' (row 2), item 'a' (column 1) "
        "(2 such scores)."
    )
    assert [problem.pointer for problem in refused.value.problems] == ["/m1/a", "/m1/b"]
    with pytest.raises(InvalidInputError, match="lo < hi"):
        ScoreScale(lo=1, hi=1)


def test_items_with_the_same_split_of_examinees_have_infinite_slopes() -> None:
    alike = np.repeat([[1.0], [0.0], [0.0]], 10, axis=0).repeat(4, axis=1)
    with pytest.raises(CalibrationError, match="slopes grow without limit"):
        calibrate_continuous(table(alike))
