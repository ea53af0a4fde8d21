"""Simulated answers with the parameters that made them."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray, ItemParameters


class Simulated(NamedTuple):
    items: ItemParameters
    theta: FloatArray
    matrix: ScoreMatrix

    @property
    def b(self) -> FloatArray:
        difficulties: FloatArray = -self.items.intercept / self.items.a
        return difficulties


def draw_items(rng: np.random.Generator, family: Family, n_items: int) -> ItemParameters:
    """Draw items as simulation studies do: log-normal a, normal b, beta-distributed c and d."""
    a = np.exp(rng.normal(0.2, 0.35, n_items)) if family is not Family.RASCH else np.ones(n_items)
    b = rng.normal(0.0, 1.0, n_items)
    guessing = family in (Family.THREE_PL, Family.FOUR_PL)
    c = rng.beta(8, 32, n_items) if guessing else np.zeros(n_items)
    d = 1 - rng.beta(4, 60, n_items) if family is Family.FOUR_PL else np.ones(n_items)
    return ItemParameters(a, -a * b, c, d)


def answer(
    rng: np.random.Generator, items: ItemParameters, theta: FloatArray, missing: float = 0.0
) -> ScoreMatrix:
    p = items.c + (items.d - items.c) * expit(items.a * theta[:, None] + items.intercept)
    scores = (rng.random(p.shape) < p).astype(float)
    scores[rng.random(p.shape) < missing] = np.nan
    return ScoreMatrix.of(scores)


def simulate(
    seed: int, family: Family, n_examinees: int, n_items: int, missing: float = 0.0
) -> Simulated:
    rng = np.random.default_rng(seed)
    items = draw_items(rng, family, n_items)
    theta = rng.normal(size=n_examinees)
    return Simulated(items, theta, answer(rng, items, theta, missing))


def adaptive(
    rng: np.random.Generator,
    believed: ItemParameters,
    true: ItemParameters,
    theta: FloatArray,
    *,
    n_asked: int,
    seeded: int = 0,
    n_seeded: int = 0,
) -> ScoreMatrix:
    """Simulate adaptive tests: each examinee is asked items informative at its estimate.

    Args:
        rng: Randomness.
        believed: Parameters by which the tests select and score.
        true: Parameters that make the answers; the pretest items come last.
        theta: True abilities.
        n_asked: Items of each test, each chosen at random among the best 5.
        seeded: Number of pretest items.
        n_seeded: Pretest items that each examinee is asked, drawn evenly.
    """
    n, n_items = len(theta), len(believed.a)
    nodes = np.linspace(-5, 5, 81)
    p = believed.c + (believed.d - believed.c) * expit(
        believed.a * nodes[:, None] + believed.intercept
    )
    slope = np.gradient(p, nodes, axis=0)
    information = slope**2 / (p * (1 - p))
    right = rng.random((n, n_items + seeded)) < true.c + (true.d - true.c) * expit(
        true.a * theta[:, None] + true.intercept
    )
    log_posterior = np.tile(-0.5 * nodes**2, (n, 1))
    scores = np.full((n, n_items + seeded), np.nan)
    for _ in range(n_asked):
        weights = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
        estimate = weights @ nodes / weights.sum(axis=1)
        at = np.rint((estimate + 5) * 8).astype(int)
        worth = np.where(np.isnan(scores[:, :n_items]), information[at], -1.0)
        best = np.argpartition(-worth, 5, axis=1)[:, :5]
        item = best[np.arange(n), rng.integers(0, 5, n)]
        answer = right[np.arange(n), item]
        scores[np.arange(n), item] = answer
        log_posterior += np.log(np.where(answer[:, None], p[:, item].T, 1 - p[:, item].T))
    for i in range(n):
        drawn = n_items + (i * n_seeded + np.arange(n_seeded)) % max(seeded, 1)
        scores[i, drawn] = right[i, drawn]
    return ScoreMatrix.of(scores)
