"""Marginal likelihood of answers, with abilities integrated out."""

import numpy as np
from scipy.special import log_expit, logsumexp

from app.calibration.multidimensional.fit import fit_multidimensional, marginal_log_likelihood
from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings
from app.engine.models.multidimensional import Loadings, Population


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

    def fitted(dimensions: int) -> float:
        settings = MultidimensionalSettings(
            nested=False, dimensions=dimensions, method=FitMethod.VARIATIONAL
        )
        fit = fit_multidimensional(scores, settings, np.random.default_rng(0))
        n_parameters = fit.items.slopes.size + fit.items.intercept.size
        return 2.0 * n_parameters - 2.0 * fit.log_likelihood

    assert fitted(1) < fitted(2)
