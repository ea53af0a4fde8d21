"""Marginal log-likelihood of the answers under a model of several abilities.

Laplace's method (Tierney and Kadane, 1986, eq. 2.2) integrates the abilities out around each
examinee's posterior mode. The value, and the AIC and BIC from it, can thus be compared with a
one-ability bank's. The likelihood at the estimated abilities would rise with each dimension.
"""

import numpy as np
from scipy.special import expit, log_expit

from app.engine.bank import FloatArray
from app.engine.models.multidimensional import Loadings, Population

_CELLS = 2_000_000  # cells of the score matrix computed at once, which bounds the memory
_MOST_STEPS = 50
_LONGEST_STEP = 2.0  # in standard deviations of the population; keeps Newton's method stable
_CLOSE = 1e-6


def marginal_log_likelihood(
    items: Loadings, population: Population, scores: FloatArray, start: FloatArray
) -> float:
    """Log-likelihood of all answers, with abilities integrated over the population.

    Args:
        items: Parameters of the bank's items.
        population: Distribution of the abilities.
        scores: 0, 1 or NaN where there is no answer, shape (n_examinees, n_items).
        start: First guess of each examinee's abilities, shape (n_examinees, D).
    """
    height = max(_CELLS // max(scores.shape[1], 1), 1)
    return sum(
        _of_block(items, population, scores[first : first + height], start[first : first + height])
        for first in range(0, len(scores), height)
    )


def _of_block(
    items: Loadings, population: Population, scores: FloatArray, start: FloatArray
) -> float:
    n_abilities = items.n_abilities
    answered = ~np.isnan(scores)
    right = np.where(answered, scores, 0.0)
    precision = np.linalg.inv(population.covariance)
    products = items.slopes[:, :, None] * items.slopes[:, None, :]
    products = products.reshape(-1, n_abilities * n_abilities)
    abilities = start.copy()

    def curvature(logit: FloatArray) -> FloatArray:
        chance = expit(logit)
        weights = np.where(answered, chance * (1.0 - chance), 0.0)
        return (weights @ products).reshape(-1, n_abilities, n_abilities) + precision

    for _ in range(_MOST_STEPS):
        logit = abilities @ items.across + items.intercept
        gradient = np.where(answered, right - expit(logit), 0.0) @ items.slopes
        gradient -= (abilities - population.mean) @ precision
        step = np.linalg.solve(curvature(logit), gradient[:, :, None])[:, :, 0]
        length = np.sqrt(np.einsum("ni,ij,nj->n", step, precision, step))
        step *= np.minimum(1.0, _LONGEST_STEP / np.maximum(length, _CLOSE))[:, None]
        abilities += step
        if length.max(initial=0.0) < _CLOSE:
            break
    logit = abilities @ items.across + items.intercept
    answers = np.where(answered, right * logit + log_expit(-logit), 0.0).sum(axis=1)
    deviation = abilities - population.mean
    prior = -0.5 * np.einsum("ni,ij,nj->n", deviation, precision, deviation)
    prior += 0.5 * np.linalg.slogdet(precision)[1]
    width = -0.5 * np.linalg.slogdet(curvature(logit))[1]
    return float(np.sum(answers + prior + width))
