"""Ends of the intervals of mixtures of normals, whatever their components are."""

import numpy as np
import pytest
from scipy.special import ndtr

from app.engine.bank import FloatArray
from app.engine.prediction.mixtures import mixture_interval

_WAYS = ("wide", "narrow", "of any width", "spikes")


def _mixtures(way: str, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    shape = (100, int(rng.integers(1, 62)))
    weights = rng.dirichlet(np.full(shape[1], 10 ** rng.uniform(-2, 1)), size=shape[0])
    mean = rng.uniform(0, 100, shape)
    noise = {
        "wide": rng.uniform(0.1, 10, shape),
        "narrow": rng.uniform(1e-3, 0.05, shape),
        "of any width": 10 ** rng.uniform(-12, 2, shape),
        "spikes": np.zeros(shape),
    }
    return weights, mean, noise[way]


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_a_fortieth_of_the_mass_lies_beyond_each_end(way: str, seed: int) -> None:
    weights, mean, noise = _mixtures(way, np.random.default_rng(seed))

    def below(at: FloatArray) -> FloatArray:
        scaled = (at[:, None] - mean) / np.maximum(noise, 1e-12)
        mass: FloatArray = (weights * ndtr(scaled)).sum(axis=1)
        return mass

    for end, level in zip(mixture_interval(weights, mean, noise), (0.025, 0.975), strict=True):
        assert (below(end - 1e-8) <= level + 1e-12).all()
        assert (below(end + 1e-8) >= level - 1e-12).all()


def test_one_normal_has_its_own_quantiles_and_what_is_certain_no_width() -> None:
    lo, hi = mixture_interval(np.ones((2, 1)), np.array([[3.0], [7.0]]), np.array([[2.0], [0.0]]))
    assert lo == pytest.approx([3 - 1.959963984540054 * 2, 7.0], abs=1e-9)
    assert hi == pytest.approx([3 + 1.959963984540054 * 2, 7.0], abs=1e-9)
