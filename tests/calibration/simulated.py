"""Answers of simulated examinees, with the parameters that made them."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit  # type: ignore[import-untyped]  # scipy ships no types

from app.calibration.curves import Family
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
    """Items as in simulation studies of the family: log-normal a, normal b, beta c and d."""
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
