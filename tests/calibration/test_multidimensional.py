"""Fits of several abilities to simulated answers."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_expit, logsumexp

from app.calibration.multidimensional.fit import (
    MultidimensionalFit,
    fit_multidimensional,
    marginal_log_likelihood,
    parallel_analysis,
)
from app.calibration.multidimensional.joint import JointLoss
from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings
from app.calibration.multidimensional.variational import fit_variationally
from app.engine.models.base import FloatArray
from app.engine.models.multidimensional import Loadings, Population
from app.errors import CalibrationError, InvalidInputError
from tests.values import not_none


def simulated(
    dimensions: int, seed: int, n_examinees: int = 400, n_items: int = 60
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Simulate scores of items that load mostly on one dimension; with abilities and slopes."""
    rng = np.random.default_rng(seed)
    slopes = 0.3 * rng.normal(size=(n_items, dimensions))
    slopes[np.arange(n_items), np.arange(n_items) % dimensions] += 1.7
    abilities = rng.normal(size=(n_examinees, dimensions))
    expected = 1 / (1 + np.exp(-(abilities @ slopes.T)))
    return (rng.random(expected.shape) < expected).astype(float), abilities, slopes


def fitted(
    scores: FloatArray,
    dimensions: int,
    *,
    nested: bool = False,
    method: FitMethod = FitMethod.JOINT,
) -> MultidimensionalFit:
    settings = MultidimensionalSettings(nested=nested, dimensions=dimensions, method=method)
    return fit_multidimensional(scores, settings, np.random.default_rng(0))


def agreement(found: FloatArray, truth: FloatArray) -> float:
    """Return the least canonical correlation, which ignores rotation."""
    left = np.linalg.qr(found - found.mean(axis=0))[0]
    right = np.linalg.qr(truth - truth.mean(axis=0))[0]
    return float(np.linalg.svd(left.T @ right, compute_uv=False).min())


@pytest.mark.parametrize("method", list(FitMethod))
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_abilities_and_slopes_are_recovered_up_to_rotation(
    dimensions: int, method: FitMethod
) -> None:
    scores, abilities, slopes = simulated(dimensions, seed=dimensions)
    fit = fitted(scores, dimensions, method=method)
    assert agreement(fit.abilities, abilities) > 0.8
    assert agreement(fit.items.slopes, slopes - slopes.mean(axis=0)) > 0.6
    truth = 1 / (1 + np.exp(-(abilities @ slopes.T)))
    expected = fit.items.expected_score(fit.abilities)
    assert np.corrcoef(truth.ravel(), expected.ravel())[0, 1] > 0.85


def test_a_variational_fit_is_near_the_posterior_on_a_grid() -> None:
    rng = np.random.default_rng(4)
    slopes, difficulty = rng.lognormal(0.0, 0.3, 40), rng.normal(size=40)
    logit = slopes * (rng.normal(size=(500, 1)) - difficulty)
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    settings = MultidimensionalSettings(dimensions=1, method=FitMethod.VARIATIONAL)
    fit = fit_variationally(scores, settings, None)

    found = fit.items.slopes[:, 0]
    assert np.mean(found / slopes) == pytest.approx(1.0, abs=0.1)
    grid = np.linspace(-6.0, 6.0, 601)
    at = grid[:, None] * found + fit.items.intercept
    joint = scores @ log_expit(at).T + (1 - scores) @ log_expit(-at).T - grid**2 / 2
    mass = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    mean = mass @ grid
    assert fit.abilities[:, 0] == pytest.approx(mean, abs=0.1)
    # The bound is too narrow by a little, and never too wide.
    variance = float((mass @ grid**2 - mean**2).mean())
    assert 0.7 * variance < fit.covariance[0, 0] < variance


@pytest.mark.parametrize("method", list(FitMethod))
def test_the_nested_model_finds_the_general_ability(method: FitMethod) -> None:
    rng = np.random.default_rng(3)
    general, special = rng.normal(size=(400, 1)), rng.normal(size=(400, 2))
    slopes = np.zeros((60, 2))
    slopes[:20, 0] = slopes[20:40, 1] = 1.3
    logit = 1.4 * general + special @ slopes.T + rng.normal(size=60)
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    fit = fitted(scores, 2, nested=True, method=method)
    assert np.corrcoef(fit.abilities[:, 0], general[:, 0])[0, 1] > 0.85


@pytest.mark.parametrize("nested", [True, False])
def test_the_gradient_is_that_of_finite_differences(nested: bool) -> None:
    rng = np.random.default_rng(0)
    scores = (rng.random((12, 7)) < 0.5).astype(float)
    scores[2, 3] = np.nan
    settings = MultidimensionalSettings(nested=nested, dimensions=2)
    n = 12 * (2 + nested) + 7 * (1 + nested) + 2 * 7 * 2
    at = rng.uniform(0.1, 1.0, n)
    loss = JointLoss.of(scores, settings)
    numeric = approx_fprime(at, lambda x: loss(x)[0], 1e-6)
    np.testing.assert_allclose(loss(at)[1], numeric, atol=1e-4)


@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_parallel_analysis_counts_the_dimensions(dimensions: int) -> None:
    scores, _, _ = simulated(dimensions, seed=9)
    assert parallel_analysis(scores, np.random.default_rng(0)).dimensions == dimensions


def test_parallel_analysis_leaves_out_items_that_nobody_answered() -> None:
    scores, _, _ = simulated(2, seed=9)
    scores[:, 5] = np.nan
    assert parallel_analysis(scores, np.random.default_rng(0)).dimensions == 2


def test_methods_are_compared_on_held_out_answers() -> None:
    scores, _, _ = simulated(2, seed=5, n_examinees=120, n_items=30)
    scores[scores.shape[0] // 2 :, :3] = np.nan
    settings = MultidimensionalSettings(nested=False)
    fit = fit_multidimensional(scores, settings, np.random.default_rng(0))
    assert set(fit.compared) == {"joint", "variational"}
    assert fit.method == max(fit.compared, key=lambda name: fit.compared[name])
    assert fit.dimensions == not_none(fit.analysis).dimensions
    assert fit.log_likelihood < 0


def test_constant_items_are_predicted_by_their_constant() -> None:
    scores, _, _ = simulated(1, seed=2, n_examinees=80, n_items=20)
    scores[:, 4], scores[:, 5] = 1.0, 0.0
    fit = fitted(scores, 1)
    assert np.flatnonzero(fit.degenerate).tolist() == [4, 5]
    expected = fit.items.expected_score(fit.abilities)
    assert expected[:, 4].min() > 0.99
    assert expected[:, 5].max() < 0.01
    assert not fit.items.slopes[[4, 5]].any()


def test_data_that_cannot_be_fitted_are_refused() -> None:
    scores, _, _ = simulated(1, seed=2, n_examinees=5, n_items=20)
    with pytest.raises(CalibrationError, match="9 dimensions are too many"):
        fitted(scores, 9, nested=True)
    with pytest.raises(InvalidInputError, match="at least 1 dimension, got 0"):
        fitted(scores, 0)
    with pytest.raises(CalibrationError, match="items that tell examinees apart, got 0"):
        fitted(np.ones((10, 4)), 1)


def test_the_marginal_likelihood_is_that_of_a_fine_grid_of_abilities() -> None:
    rng = np.random.default_rng(1)
    population = Population(np.array([0.3, -0.2]), np.array([[1.2, 0.3], [0.3, 0.7]]))
    items = Loadings(np.ones(40), rng.normal(size=40), rng.uniform(0.2, 1.5, (40, 2)), nested=False)
    abilities = rng.multivariate_normal(population.mean, population.covariance, 80)
    logit = abilities @ items.slopes.T + items.intercept
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    scores[rng.random(scores.shape) < 0.2] = np.nan

    axis = np.linspace(-6.0, 6.0, 81)
    nodes = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    apart = nodes - population.mean
    weights = -0.5 * np.einsum("ni,ij,nj->n", apart, np.linalg.inv(population.covariance), apart)
    logits = nodes @ items.slopes.T + items.intercept
    answers = np.nan_to_num(scores) @ log_expit(logits).T
    answers += np.where(np.isnan(scores), 0.0, 1.0 - scores) @ log_expit(-logits).T
    expected = float(logsumexp(answers + weights - logsumexp(weights), axis=1).sum())

    found = marginal_log_likelihood(items, population, scores, np.zeros((80, 2)))
    assert abs(found - expected) < 0.002 * abs(expected)


def test_a_spurious_second_ability_does_not_improve_the_fit() -> None:
    rng = np.random.default_rng(2)
    slopes, intercept = rng.uniform(0.8, 1.5, 30), rng.normal(size=30)
    logit = rng.normal(size=(400, 1)) * slopes + intercept
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)

    fits = [fitted(scores, dimensions, method=FitMethod.VARIATIONAL) for dimensions in (1, 2)]
    aic = [2.0 * fit.n_parameters - 2.0 * fit.log_likelihood for fit in fits]
    assert aic[0] < aic[1]


@pytest.mark.parametrize(
    ("dimensions", "nested", "free"),
    [(1, False, 20), (2, False, 30 - 1), (1, True, 30 - 1), (2, True, 40 - 3)],
)
def test_slopes_that_a_rotation_may_change_are_not_free_parameters(
    dimensions: int, nested: bool, free: int
) -> None:
    # Ten items have one intercept each, and one slope for each ability.
    scores, _, _ = simulated(2, seed=1, n_examinees=80, n_items=10)
    assert fitted(scores, dimensions, nested=nested).n_parameters == free
