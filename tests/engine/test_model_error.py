"""How wrong a model is: the posterior mean, summed over every point of its grid."""

import numpy as np
import pytest
from scipy.stats import norm, t

from app.engine.prediction.model_error import SCORE, ModelError, Seen, model_error

LOOKS = 2


def seen_of(seed: int, n: int, growth: tuple[float, float]) -> Seen:
    """Errors that grow with the distance, by so much above and below."""
    rng = np.random.default_rng(seed)
    position, sd = rng.normal(0.0, 2.0, n), rng.uniform(0.2, 0.5, n)
    away = np.maximum(np.abs(position) - 1.0, 0.0)
    scale = np.exp(0.2 + np.where(position > 0.0, *growth) * away)
    return Seen(error=scale * sd * rng.normal(size=n), sd=sd, position=position)


def test_what_is_learned_is_the_posterior_mean_over_the_whole_grid() -> None:
    seen = [seen_of(1, 30, (0.5, 0.05)), seen_of(2, 12, (0.4, 0.0))]
    within, farther = np.linspace(-0.7, 1.2, 39), np.linspace(0.0, 0.75, 31)
    inside, above, below = np.meshgrid(within, farther, farther, indexing="ij")
    usual = 0.05 + 0.5 * np.log((SCORE.degrees - 2.0) / SCORE.degrees)
    log_mass = norm(usual, 0.35).logpdf(inside)
    log_mass += norm(0.1, SCORE.farther).logpdf(above) + norm(0.1, SCORE.farther).logpdf(below)
    for one in seen:
        # Examinees of one hold-out share a tenth of their error, looks at one count for one.
        counts = 1.0 / (1.0 + (one.error.size - 1) * 0.1) / LOOKS
        for error, sd, position in zip(one.error, one.sd, one.position, strict=True):
            slope = above if position > 0.0 else below
            scale = np.exp(inside + slope * max(abs(position) - 1.0, 0.0)) * sd
            log_mass += counts * (t(SCORE.degrees).logpdf(error / scale) - np.log(scale))
    mass = np.exp(log_mass - log_mass.max())
    mass /= mass.sum()
    found = model_error(seen, LOOKS, margin=0.0, kind=SCORE)
    for name, values in (("within", inside), ("above", above), ("below", below)):
        assert getattr(found, name) == pytest.approx(float((mass * values).sum()), rel=1e-9)
    spread = float((mass * (above - (mass * above).sum()) ** 2).sum()) ** 0.5
    assert found.above_sd == pytest.approx(spread, rel=1e-9)
    assert found.above > found.below
    sure = model_error(seen, LOOKS, margin=1.0, kind=SCORE)
    assert sure.above == pytest.approx(found.above + found.above_sd)
    assert sure.above_sd == 0.0


def test_a_factor_grows_from_one_standard_deviation_on_up_to_seven() -> None:
    error = ModelError(0.1, above=0.2, below=0.3, degrees=8.0, above_sd=0.05, below_sd=0.1)
    for position, exponent in ((0.9, 0.1), (3.0, 0.1 + 0.25 * 2), (-9.0, 0.1 + 0.4 * 6)):
        assert error.at(position) == pytest.approx(np.exp(exponent))
    factor, degrees = error.spread_at(3.0)
    # A t of n degrees has a log scale of variance 1 / 2n: 1/8 + 2 (0.05 * 2)^2.
    assert (factor, degrees) == pytest.approx((np.exp(0.5), 1.0 / 0.145))
    assert error.spread_at(-9.0)[1] == 3.0
