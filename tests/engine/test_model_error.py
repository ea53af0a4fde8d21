"""Errors of a model, compared with SciPy's t on a grid and a numeric maximum."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from app.engine.prediction.model_error import Seen, bias_of, growth_of

RNG = np.random.default_rng(5)


def seen(n: int) -> Seen:
    position = RNG.normal(0.0, 2.0, n)
    sd = RNG.uniform(0.2, 0.6, n)
    return Seen(
        error=sd * RNG.standard_t(5.0, n) * np.exp(0.1 + 0.2 * abs(position)),
        sd=sd,
        position=position,
    )


HOLD_OUTS = [seen(30), seen(12), seen(30)]


def away(position: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(np.abs(position) - 1.0, 0.0, 6.0))


def counts(n: int, looks: int) -> float:
    """Return the weight of one of n results that together count n / (1 + (n - 1) 0.1)."""
    return 1.0 / (1.0 + (n - 1) * 0.1) / looks


def test_growth_averages_over_the_possible_scales_of_errors() -> None:
    within, above, below = np.meshgrid(
        np.linspace(-0.7, 1.2, 39),
        np.linspace(0, 0.75, 31),
        np.linspace(0, 0.75, 31),
        indexing="ij",
    )
    # The t has the variance of the model, and a tenth more, on the scale of logarithms.
    usual = 0.05 - np.log(stats.t(5.0).std())
    log_mass = stats.norm(usual, 0.35).logpdf(within)
    log_mass += stats.norm(0.1, 0.15).logpdf(above) + stats.norm(0.1, 0.15).logpdf(below)
    for one in HOLD_OUTS:
        for error, sd, position in zip(one.error, one.sd, one.position, strict=True):
            scale = sd * np.exp(within + (above if position > 0 else below) * away(position))
            log_mass += counts(one.error.size, 2) * stats.t.logpdf(error, 5.0, scale=scale)
    mass = np.exp(log_mass - log_mass.max())
    for found, slopes in zip(growth_of(HOLD_OUTS, 2), (above, below), strict=True):
        mean = np.average(slopes, weights=mass)
        assert found.value == pytest.approx(mean)
        assert found.sd == pytest.approx(np.average((slopes - mean) ** 2, weights=mass) ** 0.5)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("size", [1.0, 0.02])
def test_a_bias_is_the_mode_of_its_posterior_under_t_errors(above: bool, size: float) -> None:
    shown = [
        Seen(size * (one.error + 0.3 * one.position), one.sd, one.position) for one in HOLD_OUTS
    ]
    error, sd, far, count = np.concatenate(
        [
            np.array([one.error, one.sd, away(one.position), 0 * one.sd + counts(one.sd.size, 3)])[
                :, (one.position > 1.0) if above else (one.position < -1.0)
            ]
            for one in shown
        ],
        axis=1,
    )

    def loss(at: np.ndarray) -> float:
        scale = np.sqrt(max(np.exp(at[1]), 0.25)) * sd
        likely = count @ stats.t.logpdf(error, 5.0, loc=at[0] * far, scale=scale)
        return float(-likely - stats.norm(0.0, 0.2).logpdf(at[0]))

    best = minimize(loss, [0.0, 0.3], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-13})
    variance = max(np.exp(best.x[1]), 0.25) * sd**2
    weight = count * 6.0 / (5.0 + (error - best.x[0] * far) ** 2 / variance) / variance
    found = bias_of(shown, 3, above=above)
    assert found.value == pytest.approx(best.x[0], abs=1e-6)
    assert found.sd == pytest.approx((25.0 + weight @ far**2) ** -0.5, rel=1e-5)
