from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

import app.calibration.logistic.uncertainty as uncertainty
from app.calibration.filters import FilterSettings, apply_filters
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Curves, Family
from app.calibration.logistic.expectation import LatentDensity, expect
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray
from app.exchange.responses import read_responses
from tests.calibration.simulated import simulate


def test_observed_errors_agree_with_the_curvature_of_the_marginal_log_likelihood() -> None:
    data = simulate(1, Family.TWO_PL, 4000, 5, missing=0.1)
    settings = CalibrationSettings(family=Family.TWO_PL, priors=Priors.none())
    result = calibrate(data.matrix, settings)
    assert result.errors is not None
    x = Curves.from_natural(result.items, log_slope=True).x
    places = [(j, k) for j in range(5) for k in range(2)]
    density = LatentDensity.normal()

    def log_likelihood(steps: dict[tuple[int, int], float]) -> float:
        moved = x.copy()
        for place, step in steps.items():
            moved[place] += step
        return expect(data.matrix, Curves(moved, log_slope=True).natural(), density).log_likelihood

    h = 1e-3
    hessian = np.zeros((10, 10))
    for i, first in enumerate(places):
        for k, second in enumerate(places[: i + 1]):
            corners = [
                s
                * t
                * log_likelihood(
                    {first: s * h, second: t * h} if first != second else {first: (s + t) * h}
                )
                for s in (1, -1)
                for t in (1, -1)
            ]
            hessian[i, k] = hessian[k, i] = sum(corners) / (4 * h * h)
    expected = np.sqrt(np.diag(np.linalg.inv(-hessian))).reshape(5, 2)
    assert result.errors.intercept == pytest.approx(expected[:, 1], rel=0.08)
    assert result.errors.a / result.items.a == pytest.approx(expected[:, 0], rel=0.08)


def test_both_methods_agree_on_a_long_test(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulate(2, Family.TWO_PL, 800, 80)
    settings = CalibrationSettings(family=Family.TWO_PL, priors=Priors.none())
    full = calibrate(data.matrix, settings).known_errors
    monkeypatch.setattr(uncertainty, "MAX_FULL_COORDINATES", 0)
    corrected = calibrate(data.matrix, settings).known_errors
    assert (full.method, corrected.method) == ("observed", "scale-corrected")
    assert np.median(corrected.b / full.b) == pytest.approx(1, abs=0.03)
    assert np.median(corrected.a / full.a) == pytest.approx(1, abs=0.03)


def test_parameters_that_are_not_estimated_have_no_error() -> None:
    data = simulate(3, Family.TWO_PL, 300, 6)
    errors = calibrate(data.matrix).known_errors
    assert np.isnan(errors.c).all()
    assert np.isnan(errors.d).all()
    assert np.isfinite(errors.b).all()


def test_the_common_slope_of_the_1pl_has_a_smaller_error() -> None:
    data = simulate(4, Family.RASCH, 500, 10)
    common = calibrate(data.matrix, CalibrationSettings(family=Family.RASCH)).known_errors
    single = calibrate(data.matrix, CalibrationSettings(family=Family.TWO_PL)).known_errors
    assert np.ptp(common.a) == pytest.approx(0, abs=1e-12)
    assert common.a[0] < 0.6 * np.median(single.a)


@pytest.mark.parametrize("negative_slopes", [False, True])
def test_parameter_errors_follow_the_delta_method(
    negative_slopes: bool,
) -> None:
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
