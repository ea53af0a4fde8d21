"""Linking of scales: by anchors, by parts that share examinees, and of a second calibration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.calibration.linking.linked import (
    Link,
    LinkMethod,
    anchors_of,
    calibrate_in_parts,
    calibrate_linked,
    calibrate_part,
    join_parts,
    link_parts,
    linked,
    parts_of,
)
from app.calibration.logistic.calibrate import Calibration, CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family, probabilities
from app.calibration.logistic.scale_linking import (
    Linking,
    link_mean_sigma,
    link_stocking_lord,
)
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import ItemParameters
from app.errors import CalibrationError, InvalidInputError, ScaleMismatchError, UnknownNameError
from tests.calibration.simulated import answer, draw_items, simulate

SLOPE, INTERCEPT = 1.5, 0.4  # the simulated change of scale


def _linking(slope: float = SLOPE, intercept: float = INTERCEPT) -> Linking:
    return Linking(source="new", target="old", slope=slope, intercept=intercept)


@given(
    slope=st.floats(0.2, 5),
    intercept=st.floats(-3, 3),
    theta=st.floats(-4, 4),
    seed=st.integers(0, 100),
)
def test_linking_moves_thetas_and_items_so_that_no_probability_changes(
    slope: float, intercept: float, theta: float, seed: int
) -> None:
    items = draw_items(np.random.default_rng(seed), Family.FOUR_PL, 5)
    linking = _linking(slope, intercept)
    before, _ = probabilities(items, np.array([theta]))
    moved = np.array([linking.theta(theta, scale="new")])
    after, _ = probabilities(linking.items(items), moved)
    assert after == pytest.approx(before, abs=1e-9)


def test_thetas_of_another_scale_are_refused() -> None:
    with pytest.raises(ScaleMismatchError, match="got a theta on scale 'other'"):
        _linking().theta(0.5, scale="other")


@pytest.mark.parametrize("slope", [0.0, -1.0, float("nan"), float("inf")])
def test_a_slope_that_is_not_positive_is_refused(slope: float) -> None:
    with pytest.raises(InvalidInputError, match="slope > 0"):
        _linking(slope)


def test_mean_sigma_recovers_a_shift_from_anchor_difficulties() -> None:
    b = np.random.default_rng(3).normal(size=40)
    moved = SLOPE * b + INTERCEPT
    found = link_mean_sigma(
        (b.mean(), b.std()), (moved.mean(), moved.std()), source="new", target="old"
    )
    assert (found.slope, found.intercept) == pytest.approx((SLOPE, INTERCEPT))


def test_mean_sigma_refuses_values_without_spread() -> None:
    for moments in (((1.0, 0.0), (0.5, 0.5)), ((0.5, 0.5), (1.0, 0.0))):
        with pytest.raises(CalibrationError, match="Mean-sigma linking needs"):
            link_mean_sigma(*moments, source="new", target="old")


@pytest.mark.parametrize(("slope", "intercept"), [(1.5, 0.4), (0.6, -1.2), (1.0, 0.0), (2.2, 1.8)])
def test_stocking_lord_recovers_a_shift_from_anchor_curves(slope: float, intercept: float) -> None:
    items = draw_items(np.random.default_rng(4), Family.THREE_PL, 15)
    shifted = _linking(slope, intercept).items(items)
    found = link_stocking_lord(items, shifted, source="new", target="old")
    assert found.slope == pytest.approx(slope, abs=1e-4)
    assert found.intercept == pytest.approx(intercept, abs=1e-4)


def test_parts_are_disjoint_cover_all_items_and_are_alike_in_difficulty() -> None:
    matrix = simulate(6, Family.TWO_PL, 200, 330).matrix
    parts = parts_of(matrix, 100, np.random.default_rng(0))
    assert sorted(j for part in parts for j in part) == list(range(330))
    assert min(len(part) for part in parts) >= 100
    means = [matrix.item_means()[part].mean() for part in parts]
    assert np.ptp(means) < 0.02


@pytest.mark.slow
def test_a_bank_in_parts_matches_the_whole_bank() -> None:
    data = simulate(8, Family.TWO_PL, 600, 200)
    settings = CalibrationSettings()
    whole = calibrate(data.matrix, settings)
    joined = calibrate_in_parts(data.matrix, settings, 100, np.random.default_rng(0))
    assert joined.converged
    assert np.corrcoef(joined.items.a, whole.items.a)[0, 1] > 0.98
    assert np.corrcoef(joined.b, whole.b)[0, 1] > 0.98
    gap = joined.thetas(data.matrix) - whole.thetas(data.matrix)
    assert np.sqrt(np.mean(gap**2)) < 0.05
    assert joined.log_likelihood == pytest.approx(whole.log_likelihood, abs=200)
    assert np.median(joined.known_errors.b / whole.known_errors.b) == pytest.approx(1, abs=0.05)
    assert np.corrcoef(np.log(joined.known_errors.b), np.log(whole.known_errors.b))[0, 1] > 0.95


@pytest.mark.slow
def test_linking_undoes_a_shift_of_one_parts_scale() -> None:
    data = simulate(9, Family.TWO_PL, 800, 200)
    settings = CalibrationSettings(with_errors=False)
    parts = parts_of(data.matrix, 100, np.random.default_rng(0))
    results = [
        calibrate_part(data.matrix.select(items=part), settings, k) for k, part in enumerate(parts)
    ]
    plain = join_parts(data.matrix, settings, parts, results)
    shifted = [results[0], _shifted(results[1])]
    linking = link_parts(data.matrix, parts, shifted)[1]
    straight = link_parts(data.matrix, parts, results)[1]
    # theta_shifted = A theta + B, so the inverse has slope 1 / A and intercept -B / A.
    assert linking.slope == pytest.approx(straight.slope / SLOPE, rel=0.01)
    assert linking.intercept == pytest.approx(
        straight.intercept - straight.slope * INTERCEPT / SLOPE, abs=0.01
    )
    again = join_parts(data.matrix, settings, parts, shifted)
    assert again.items.a == pytest.approx(plain.items.a, rel=0.01)
    assert again.b == pytest.approx(plain.b, abs=0.03)


@pytest.mark.parametrize("negative_slopes", [False, True])
def test_standard_errors_move_with_the_scale(negative_slopes: bool) -> None:
    data = simulate(11, Family.TWO_PL, 400, 6)
    errors = calibrate(
        data.matrix, CalibrationSettings(negative_slopes=negative_slopes)
    ).known_errors
    moved = errors.moved(_linking())
    assert moved.a == pytest.approx(errors.a / SLOPE)
    assert moved.b == pytest.approx(errors.b * SLOPE)
    back = moved.moved(_linking(1 / SLOPE, -INTERCEPT / SLOPE))
    assert back.intercept == pytest.approx(errors.intercept)
    assert back.covariance == pytest.approx(errors.covariance)


def test_parts_without_common_examinees_cannot_be_linked() -> None:
    data = simulate(10, Family.TWO_PL, 60, 200)
    scores = data.matrix.scores.astype(float)
    settings = CalibrationSettings(with_errors=False)
    parts = parts_of(data.matrix, 100, np.random.default_rng(0))
    scores[np.ix_(np.arange(30), parts[1])] = np.nan
    scores[np.ix_(np.arange(30, 60), parts[0])] = np.nan
    results = [calibrate(data.matrix.select(items=part), settings) for part in parts]
    apart = type(data.matrix).of(scores)
    with pytest.raises(CalibrationError, match="shares 0 examinees"):
        link_parts(apart, parts, results)


def _shifted(result: Calibration) -> Calibration:
    """Return the same part, as if calibrated on the scale A theta + B."""
    away = Linking(source=result.scale, target="away", slope=SLOPE, intercept=INTERCEPT)
    fields = {name: getattr(result, name) for name in Calibration.__dataclass_fields__}
    return Calibration(**{**fields, "items": away.items(result.items)})


SETTINGS = CalibrationSettings(family=Family.TWO_PL, with_errors=False)


def _abler(
    n_examinees: int = 2000, n_items: int = 30
) -> tuple[ItemParameters, ItemBank, ScoreMatrix]:
    """Return items, the bank of the first half on scale `old`, and answers of abler examinees."""
    rng = np.random.default_rng(21)
    items = draw_items(rng, Family.TWO_PL, n_items)
    known = items.take(np.arange(n_items // 2))
    bank = ItemBank.from_intercepts(a=known.a, intercept=known.intercept, scale="old")
    return items, bank, answer(rng, items, rng.normal(0.4, 1.5, n_examinees))


@pytest.mark.parametrize("method", LinkMethod)
def test_every_method_recovers_the_scale_of_the_first_calibration(method: LinkMethod) -> None:
    items, bank, matrix = _abler()
    found = calibrate_linked(matrix, Link(bank, method), SETTINGS)
    assert found.linking is not None
    assert found.anchors == bank.item_ids
    assert found.linking.slope == pytest.approx(1.5, abs=0.1)
    assert found.linking.intercept == pytest.approx(0.4, abs=0.1)
    assert found.calibration.scale == found.linking.target == "old"
    b = -items.intercept / items.a
    assert found.calibration.b[15:] == pytest.approx(b[15:], abs=0.35)
    assert found.calibration.items.a[15:] == pytest.approx(items.a[15:], rel=0.3)
    theta = found.calibration.thetas(matrix)
    assert (theta.mean(), theta.std()) == (pytest.approx(0.4, abs=0.1), pytest.approx(1.4, abs=0.1))


def test_a_linked_calibration_is_the_same_model_on_another_scale() -> None:
    _, bank, matrix = _abler(500)
    own = calibrate(matrix, CalibrationSettings(scale="own"))
    moved = linked(own, Link(bank, LinkMethod.STOCKING_LORD))
    assert moved.linking is not None
    A, B = moved.linking.slope, moved.linking.intercept  # noqa: N806 (the constants' usual names)
    assert moved.calibration.thetas(matrix) == pytest.approx(A * own.thetas(matrix) + B)
    assert moved.calibration.b == pytest.approx(A * own.b + B)
    assert moved.calibration.known_errors.b == pytest.approx(A * own.known_errors.b)
    assert moved.calibration.known_errors.a == pytest.approx(own.known_errors.a / A)
    assert moved.calibration.log_likelihood == own.log_likelihood


def test_falling_items_and_items_of_one_bank_do_not_link() -> None:
    bank = ItemBank.from_difficulties(
        a=[1.0, -1.0, 1.2, 0.8], b=[0.0, 0.0, 1.0, 2.0], item_ids=["a", "falls", "c", "d"]
    )
    assert anchors_of(bank, ["a", "c", "falls", "new"]).item_ids == ("a", "c")
    assert anchors_of(bank, bank.item_ids, only=["c", "d"]).item_ids == ("c", "d")
    with pytest.raises(UnknownNameError, match="anchor 'new'"):
        anchors_of(bank, ["a", "c", "new"], only=["a", "new"])
    with pytest.raises(
        CalibrationError, match="at least 2 common items with a positive slope, got 1"
    ):
        anchors_of(bank, ["a", "falls", "new"])


def test_an_item_beyond_the_examinees_does_not_bend_mean_sigma() -> None:
    _, bank, matrix = _abler()
    far = ItemBank.from_intercepts(
        a=np.append(bank.a[:-1], 0.02),
        intercept=np.append(bank.intercept[:-1], 1.0),
        item_ids=bank.item_ids,
        scale="old",
    )
    found = calibrate_linked(matrix, Link(far, LinkMethod.MEAN_SIGMA), SETTINGS)
    assert found.linking is not None
    assert found.anchors == bank.item_ids[:-1]
    assert found.linking.slope == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("family", [Family.TWO_PL, Family.THREE_PL, Family.FOUR_PL])
def test_with_all_items_fixed_only_the_population_is_estimated(family: Family) -> None:
    _, bank, matrix = _abler(600)
    settings = CalibrationSettings(family=family, with_errors=False)
    known = matrix.select(items=np.arange(bank.n_items))
    found = calibrate_linked(known, Link(bank, LinkMethod.FIXED_ANCHOR), settings)
    assert found.linking is not None
    assert found.calibration.items.a == pytest.approx(bank.a)
    assert found.calibration.b == pytest.approx(bank.b)
    assert found.calibration.n_parameters == 2  # mean and sd of the examinees
    assert found.linking.slope == pytest.approx(1.5, abs=0.15)
    assert found.linking.intercept == pytest.approx(0.4, abs=0.15)


def test_one_anchor_and_fixed_anchors_cannot_be_used_afterwards() -> None:
    _, bank, matrix = _abler(200)
    found = calibrate(matrix, SETTINGS)
    with pytest.raises(CalibrationError, match="at least 2 anchors with a positive slope, got 1"):
        linked(found, Link(bank.take(np.array([3])), LinkMethod.STOCKING_LORD))
    with pytest.raises(InvalidInputError, match="only during a calibration"):
        linked(found, Link(bank, LinkMethod.FIXED_ANCHOR))
