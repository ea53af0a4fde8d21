"""Score curves learned from reference models, and their estimated errors."""

import numpy as np
import pytest
from scipy.stats import t as student

from app.calibration.multidimensional.score_curves import (
    RANDOM,
    fit_curves,
    hold_outs,
    learn_curves,
)
from app.engine.models.base import FloatArray
from app.engine.prediction.model_error import SCORE, Seen, model_error


def records(n: int, n_items: int = 60, seed: int = 0) -> FloatArray:
    """Draw answers by a 2PL."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), rng.normal(size=n_items)
    chance = 1 / (1 + np.exp(-(theta[:, None] - b)))
    return (rng.random(chance.shape) < chance).astype(np.float64)


def test_answers_left_out_at_random_move_the_curves_little() -> None:
    scores = records(300)
    gaps = np.where(np.random.default_rng(1).random(scores.shape) < 0.2, np.nan, scores)
    whole, part = fit_curves(scores), fit_curves(gaps)
    assert np.corrcoef(whole.intercept, part.intercept)[0, 1] > 0.98
    assert whole.dispersion == part.dispersion == 1.0


def test_scores_between_0_and_1_have_less_variance_than_right_and_wrong() -> None:
    scores = records(80)
    smooth = 0.25 + 0.5 * scores
    assert fit_curves(smooth).dispersion < 0.5


def test_hold_outs_are_disjoint_and_hold_out_the_strongest() -> None:
    scores = records(41)
    means = scores.mean(axis=1)
    found = {one.name: one for one in hold_outs(scores, np.random.default_rng(0))}
    assert set(found) == {"random", "strongest_fifth", "strongest_from_weakest", "weakest_fifth"}
    for held in found.values():
        assert not set(held.known.tolist()) & set(held.tested.tolist())
        assert held.tested.size
    assert (
        means[found["strongest_fifth"].tested].min() >= means[found["strongest_fifth"].known].max()
    )
    assert means[found["weakest_fifth"].tested].max() <= means[found["weakest_fifth"].known].min()


def test_each_model_is_held_out_once_at_random() -> None:
    parts = [one for one in hold_outs(records(41), np.random.default_rng(0)) if one.name == RANDOM]
    assert len(parts) == 4
    tested = np.concatenate([one.tested for one in parts])
    np.testing.assert_array_equal(np.sort(tested), np.arange(41))


def test_an_uncertain_slope_makes_heavier_tails() -> None:
    """Errors have a known scale; of errors far beyond, 95 % lie within the expected t."""
    rng = np.random.default_rng(5)
    held = np.zeros(2)
    n_banks, position = 150, 3.0
    for _ in range(n_banks):
        within, slope = rng.normal(-0.05, 0.15), max(rng.normal(0.15, 0.15), 0.0)
        tested = [*rng.uniform(-1.0, 1.0, (4, 10)), rng.uniform(1.5, 3.0, 20)]
        size = [np.exp(within + slope * np.maximum(at - 1.0, 0.0)) for at in tested]
        seen = [
            Seen(0.03 * one * rng.normal(size=one.size), np.full(one.size, 0.03), at)
            for one, at in zip(size, tested, strict=True)
        ]
        found = model_error(seen, 1, margin=0.0, kind=SCORE)
        near, far = found.spread_at(0.5), found.spread_at(position)
        assert far[1] < near[1] == SCORE.degrees
        assert found.at(position) > far[0] > near[0]
        errors = np.exp(within + slope * (position - 1.0)) * rng.normal(size=100)
        for way, degrees in enumerate((far[1], 1e6)):
            held[way] += np.mean(abs(errors) < student.ppf(0.975, degrees) * far[0]) / n_banks
    assert 0.95 < held[0] < 0.99
    assert held[1] < 0.95


def test_errors_are_learned_for_every_target() -> None:
    scores = records(40, 30)
    half = np.where(np.arange(30) < 15, 1.0 / 15, 0.0)
    learned = learn_curves(
        scores, {"all": np.full(30, 1 / 30), "half": half}, np.random.default_rng(0)
    )
    assert set(learned.errors) == {"all", "half"}
    assert learned.error_of("other") == learned.errors["all"]


@pytest.mark.parametrize("count", [1, 2, 5, 19])
def test_curves_are_learned_from_the_first_model_on(count: int) -> None:
    learned = learn_curves(records(count), {"all": np.full(60, 1 / 60)}, np.random.default_rng(0))
    assert learned.n_reference == count
    assert (learned.errors, learned.population) == ({}, ())  # no model could be held out
    assert np.isfinite(learned.curves.slopes).all()
