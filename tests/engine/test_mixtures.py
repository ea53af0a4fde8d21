"""Quantiles of mixtures of normal distributions, for any components."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from app.engine.bank import FloatArray
from app.engine.prediction.mixtures import StudentMixture, mixture_interval

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
def test_each_tail_holds_2_5_percent_of_the_mass(way: str, seed: int) -> None:
    weights, mean, noise = _mixtures(way, np.random.default_rng(seed))

    def below(at: FloatArray) -> FloatArray:
        scaled = (at[:, None] - mean) / np.maximum(noise, 1e-12)
        mass: FloatArray = (weights * ndtr(scaled)).sum(axis=1)
        return mass

    for end, level in zip(mixture_interval(weights, mean, noise), (0.025, 0.975), strict=True):
        assert (below(end - 1e-8) <= level + 1e-12).all()
        assert (below(end + 1e-8) >= level - 1e-12).all()


def test_a_single_normal_has_its_quantiles_and_a_certain_value_no_width() -> None:
    lo, hi = mixture_interval(np.ones((2, 1)), np.array([[3.0], [7.0]]), np.array([[2.0], [0.0]]))
    assert lo == pytest.approx([3 - 1.959963984540054 * 2, 7.0], abs=1e-9)
    assert hi == pytest.approx([3 + 1.959963984540054 * 2, 7.0], abs=1e-9)


def test_a_density_is_the_slope_of_the_mass_below() -> None:
    column = np.array([[-1.0], [2.0]])
    mixture = StudentMixture(column, np.array([[0.5], [3.0]]), 5.0, np.array([0.3, 0.7]))
    at, step = np.linspace(-6.0, 6.0, 41), 1e-5
    slope = (mixture.below(at + step) - mixture.below(at - step)) / (2.0 * step)
    np.testing.assert_allclose(mixture.density(at), slope, rtol=1e-6)


@given(
    middle=st.lists(st.floats(-12.0, 12.0), min_size=2, max_size=2),
    spread=st.lists(st.floats(1e-6, 20.0), min_size=2, max_size=2),
    mass=st.floats(0.0, 1.0),
    ends=st.lists(st.floats(-20.0, 20.0), min_size=2, max_size=2, unique=True),
)
def test_quantiles_are_where_the_mass_below_them_is(
    middle: list[float], spread: list[float], mass: float, ends: list[float]
) -> None:
    mixture = StudentMixture(
        np.array(middle)[:, None],
        np.array(spread)[:, None],
        8.0,
        np.array([mass, 1.0 - mass]),
    )
    first, last = sorted(ends)

    found = np.array(mixture.quantiles(np.array([0.025, 0.5, 0.975]), first, last))
    lo, median, hi = found.tolist()

    assert first <= lo <= median <= hi <= last
    below = sum(
        part * stats.t.cdf((found - m) / s, 8.0)
        for part, m, s in zip((mass, 1.0 - mass), middle, spread, strict=True)
    )
    least, most = mixture.below(np.array([first, last]))
    wanted = least + np.array([0.025, 0.5, 0.975]) * (most - least)
    # As near as the density allows where a logit is exact to 1e-12.
    slope = float(mixture.density(np.linspace(first, last, 9)).max() + 1.0 / min(spread))
    assert np.abs(below - wanted).max() <= 1e-9 + 1e-11 * slope
