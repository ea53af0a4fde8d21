from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

import app.calibration.logistic.uncertainty as uncertainty
from app.calibration.filters import FilterSettings, apply_filters
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Curves, Family, bounds
from app.calibration.logistic.expectation import LatentDensity, posteriors
from app.calibration.logistic.maximization import Problem
from app.calibration.logistic.priors import Normal, Priors
from app.calibration.logistic.scale_linking import Linking
from app.calibration.logistic.uncertainty import ParameterErrors, parameter_errors
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray
from app.exchange.responses import read_responses
from tests.calibration.simulated import simulate


@pytest.mark.parametrize("log_slope", [True, False])
def test_errors_are_those_of_each_examinees_likelihood(
    log_slope: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with scores and curvatures by finite differences, and moves of the scale."""
    data = simulate(1, Family.TWO_PL, 400, 4, missing=0.1)
    curves, density = Curves.from_natural(data.items, log_slope=log_slope), LatentDensity.normal()
    problem = Problem(family=Family.TWO_PL, log_slope=log_slope, priors=Priors.none())
    places, step = [(j, k) for j in range(4) for k in range(2)], 1e-3

    def of_rows(*moves: tuple[tuple[int, int], float]) -> FloatArray:
        x = curves.x.copy()
        for place, move in moves:
            x[place] += move
        blocks = posteriors(data.matrix, Curves(x, log_slope).natural(), density)
        return np.concatenate([block.log_likelihood for block in blocks])

    scores = [(of_rows((at, step)) - of_rows((at, -step))) / (2 * step) for at in places]
    within, between = np.zeros((8, 8)), np.zeros((8, 8))
    for (i, one), (k, other) in product(enumerate(places), repeat=2):
        if one[0] == other[0]:
            within[i, k] = scores[i] @ scores[k]
        elif k < i:
            corners = [
                s * t * of_rows((one, s * step), (other, t * step)).sum()
                for s, t in product((1, -1), repeat=2)
            ]
            between[i, k] = between[k, i] = -sum(corners) / (4 * step**2)

    def of_items(matrix: FloatArray) -> FloatArray:
        return np.array([matrix[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] for j in range(4)])

    def inverse(information: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.inv(information), dtype=np.float64)

    found = parameter_errors(data.matrix, problem, curves, density)
    assert found.method == "observed"
    expected = of_items(inverse(within + between))
    assert found.covariance[:, :2, :2] == pytest.approx(expected, rel=1e-4)

    monkeypatch.setattr(uncertainty, "MAX_FULL_COORDINATES", 0)
    corrected = parameter_errors(data.matrix, problem, curves, density)
    assert corrected.method == "scale-corrected"
    expected = inverse(of_items(within))
    # The mean of 400 examinees is known to 1 / 400, the logarithm of their sd to 1 / 800.
    for variance, slope, intercept in ((1 / 400, 1.0, step), (1 / 800, np.exp(step), 0.0)):
        move = Linking(source="a", target="b", slope=slope, intercept=intercept)
        moved = Curves.from_natural(move.items(data.items), log_slope=log_slope).x
        by = (moved - curves.x)[:, :2] / step
        expected = expected + variance * by[:, :, None] * by[:, None, :]
    assert corrected.covariance[:, :2, :2] == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(("shared", "is_covariance"), [(0.5, True), (1.5, False)])
def test_one_direction_without_information_is_no_covariance(
    shared: float, is_covariance: bool
) -> None:
    """Two items that share so much of their first coordinates: eigenvalues 1 - shared to 1 + it."""
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none())
    between = np.zeros((4, 4))
    between[0, 2] = between[2, 0] = shared
    within = np.tile(np.eye(2), (2, 1, 1))
    found = uncertainty._invert_full(problem, within, between, np.ones((2, 2), np.bool_))
    assert (found is not None) is is_covariance
    if found is not None:
        assert found == pytest.approx(np.tile(np.diag([1 / (1 - shared**2), 1.0]), (2, 1, 1)))


@pytest.mark.parametrize("most", [600, 0], ids=["observed", "scale-corrected"])
@pytest.mark.parametrize("log_slope", [True, False])
def test_parameters_that_are_not_estimated_have_no_error(
    log_slope: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncertainty, "MAX_FULL_COORDINATES", most)
    data, density = simulate(3, Family.FOUR_PL, 300, 6), LatentDensity.normal()
    curves = Curves.from_natural(data.items, log_slope=log_slope)
    low, high = bounds(log_slope=log_slope)
    curves.x[1, 0], curves.x[2, 2], curves.x[3, 3] = high[0], low[2], high[3]
    curves.x[4, 0] = low[0]
    problem = Problem(
        family=Family.FOUR_PL, log_slope=log_slope, priors=Priors(guessing=Normal(-1.4, 0.5))
    )
    errors = parameter_errors(data.matrix, problem, curves, density)
    at_bound = np.zeros((6, 4), dtype=bool)
    at_bound[[1, 2, 3, 4], [0, 2, 3, 0]] = True
    told = np.stack([errors.a, errors.intercept, errors.c, errors.d], axis=1)
    assert (np.isnan(told) == at_bound).all()
    assert (np.isnan(errors.b) == at_bound[:, 0]).all()
    assert (errors.covariance[at_bound] == 0).all()
    anchored = parameter_errors(data.matrix, replace(problem, fixed=(0, 5)), curves, density)
    assert np.isnan(anchored.intercept).tolist() == [True, *[False] * 4, True]
    if most == 0:  # anchors know the scale: without its error each item has its own block alone
        gone = errors.covariance - anchored.covariance
        a = curves.a
        assert gone[[2, 3], 1, 1] == pytest.approx(a[[2, 3]] ** 2 / 300)
    two = replace(problem, family=Family.TWO_PL, priors=Priors.none())
    of_two = parameter_errors(data.matrix, two, curves, density)
    assert np.isnan(of_two.c).all()
    assert np.isnan(of_two.d).all()


def test_errors_of_parts_are_joined_in_the_order_of_the_items() -> None:
    data, density = simulate(3, Family.TWO_PL, 300, 6), LatentDensity.normal()
    curves = Curves.from_natural(data.items, log_slope=True)
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none())
    whole = parameter_errors(data.matrix, problem, curves, density)
    places = [np.array([4, 1]), np.array([0, 5, 2, 3])]
    parts = [
        replace(
            whole,
            curves=Curves(curves.x[of], log_slope=True),
            covariance=whole.covariance[of],
            estimated=whole.estimated[of],
        )
        for of in places
    ]
    joined = ParameterErrors.joined(places, parts)
    assert (joined.curves.x == curves.x).all()
    assert (joined.covariance == whole.covariance).all()
    assert (joined.b == whole.b).all()


def test_the_common_slope_of_the_1pl_has_a_smaller_error() -> None:
    data = simulate(4, Family.RASCH, 500, 10)
    common = calibrate(data.matrix, CalibrationSettings(family=Family.RASCH)).known_errors
    single = calibrate(data.matrix, CalibrationSettings(family=Family.TWO_PL)).known_errors
    assert np.ptp(common.a) == pytest.approx(0, abs=1e-12)
    assert common.a[0] < 0.6 * np.median(single.a)


@pytest.mark.parametrize("negative_slopes", [False, True])
def test_parameter_errors_follow_the_delta_method(negative_slopes: bool) -> None:
    data = simulate(5, Family.FOUR_PL, 3000, 10)
    settings = CalibrationSettings(family=Family.FOUR_PL, negative_slopes=negative_slopes)
    errors = calibrate(data.matrix, settings).known_errors
    x, off = errors.curves.x, ~errors.estimated.all(axis=1)

    def natural(moved: FloatArray) -> FloatArray:
        slope, intercept, guessing, ceiling = moved.T
        a = slope if negative_slopes else np.exp(slope)
        c, u = expit(guessing), expit(ceiling)
        return np.stack([a, -intercept / a, c, c + (1 - c) * u])

    steps = 1e-5 * np.eye(4)
    slopes = np.stack([(natural(x + h) - natural(x - h)) / 2e-5 for h in steps], axis=2)
    expected = np.sqrt(np.einsum("pja,jab,pjb->pj", slopes, errors.covariance, slopes))
    for told, wanted in zip((errors.a, errors.b, errors.c, errors.d), expected, strict=True):
        assert told[~off] == pytest.approx(wanted[~off], rel=1e-6)
    assert (~off).sum() >= 5


def test_answers_off_the_model_give_errors_of_ordinary_size(shared_data: Path) -> None:
    # On real answers the blocks of the full matrix may be no covariance, though they agree where
    # the model holds: one direction with negative information gave every item errors of 50.
    table = read_responses((shared_data / "tiny" / "arc.csv.gz").read_bytes())
    matrix = ScoreMatrix.of(table.scores, examinees=table.examinees, items=table.items)
    some = matrix.select(examinees=np.arange(matrix.n_examinees) < 500)
    kept = apply_filters(some, FilterSettings(keep_for_score=False)).matrix
    errors = calibrate(kept, CalibrationSettings(family=Family.THREE_PL)).known_errors
    assert errors.method == "scale-corrected"
    assert np.median(errors.b) < 0.3
    assert np.nanmedian(errors.c) < 0.1
