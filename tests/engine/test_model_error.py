"""Errors of a model, compared with SciPy's t on a grid and a numeric maximum."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from app.engine.prediction.model_error import (
    ABILITY,
    SCORE,
    Kind,
    ModelError,
    Seen,
    bias_of,
    model_error,
)

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


@pytest.mark.parametrize(("kind", "degrees", "farther"), [(ABILITY, 5.0, 0.15), (SCORE, 8.0, 0.2)])
def test_a_models_error_averages_over_its_possible_scales(
    kind: Kind, degrees: float, farther: float
) -> None:
    within, above, below = np.meshgrid(
        np.linspace(-0.7, 1.2, 39),
        np.linspace(0, 0.75, 31),
        np.linspace(0, 0.75, 31),
        indexing="ij",
    )
    # The t has the variance of the model, and a tenth more, on the scale of logarithms.
    usual = 0.05 - np.log(stats.t(degrees).std())
    log_mass = stats.norm(usual, 0.35).logpdf(within)
    log_mass += stats.norm(0.1, farther).logpdf(above) + stats.norm(0.1, farther).logpdf(below)
    for one in HOLD_OUTS:
        for error, sd, position in zip(one.error, one.sd, one.position, strict=True):
            scale = sd * np.exp(within + (above if position > 0 else below) * away(position))
            log_mass += counts(one.error.size, 2) * stats.t.logpdf(error, degrees, scale=scale)
    mass = np.exp(log_mass - log_mass.max())
    means = [np.average(values, weights=mass) for values in (within, above, below)]
    sds = [
        np.average((values - mean) ** 2, weights=mass) ** 0.5
        for values, mean in zip((above, below), means[1:], strict=True)
    ]
    found = model_error(HOLD_OUTS, 2, kind)
    assert found.degrees == degrees
    assert found.within == pytest.approx(means[0])
    assert (found.above, found.below) == pytest.approx((means[1], means[2]))
    assert (found.above_sd, found.below_sd) == pytest.approx((sds[0], sds[1]))


def test_factors_differ_by_side_and_tails_grow_with_distance() -> None:
    error = ModelError(0.2, above=0.1, below=0.3, degrees=8.0, above_sd=0.05, below_sd=0.25)
    for position, slope, sd in ((3.0, 0.1, 0.05), (-3.0, 0.3, 0.25), (-40.0, 0.3, 0.25)):
        far = min(abs(position) - 1.0, 6.0)
        assert error.at(position) == pytest.approx(np.exp(0.2 + (slope + sd) * far))
        scale, degrees = error.spread_at(position)
        assert scale == pytest.approx(np.exp(0.2 + slope * far))
        # The logarithm of a scale known to n degrees has variance 1 / 2n; n is at least three.
        variance = 1 / (2 * 8.0) + (sd * far) ** 2
        assert degrees == pytest.approx(max(1 / (2 * variance), 3.0))
    assert error.at(0.9) == error.at(-0.9) == pytest.approx(np.exp(0.2))
    assert error.spread_at(0.9)[1] == pytest.approx(8.0)
    heavy = ModelError(degrees=2.5, above_sd=0.5)
    assert heavy.spread_at(6.0)[1] == 2.5  # not lighter than before
    assert ModelError().at(2.0) == pytest.approx(np.exp(0.1))
    assert ModelError().spread_at(-2.0) == pytest.approx((np.exp(0.1), 8.0))


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
    assert found.slope == pytest.approx(best.x[0], abs=1e-6)
    assert found.sd == pytest.approx((25.0 + weight @ far**2) ** -0.5, rel=1e-5)
