"""Scores as one normal vector: information gain, predictions and intervals."""

import numpy as np
import pytest

from app.engine.prediction.score_model import (
    Given,
    ScoreModel,
    Target,
    Widths,
    compose,
    most_factors,
    reduced,
    short_form,
)
from app.errors import InvalidInputError

N_ITEMS = 12


def model(seed: int = 0) -> ScoreModel:
    rng = np.random.default_rng(seed)
    return ScoreModel(
        rng.uniform(0.3, 0.8, N_ITEMS),
        0.2 * rng.normal(size=(3, N_ITEMS)),
        rng.uniform(0.02, 0.2, N_ITEMS),
    )


def whole(known: ScoreModel) -> Target:
    return Target(known, np.full(N_ITEMS, 1 / N_ITEMS))


def test_gain_is_the_fall_in_the_variance_of_the_predicted_score() -> None:
    target = whole(model())
    asked = [3, 8, 1]
    _, before = target.predict(asked, np.zeros(3))
    gains = target.given(asked).gains()
    for item in (0, 5, 11):
        _, after = target.predict([*asked, item], np.zeros(4))
        assert gains[item] == pytest.approx(before**2 - after**2, rel=1e-9)
    assert gains[asked] == pytest.approx(np.zeros(3), abs=1e-12)


def test_parallel_tests_continue_from_their_own_states(monkeypatch: pytest.MonkeyPatch) -> None:
    tests, length = 40, 5
    n_items = tests * length
    factors = np.random.default_rng(1).normal(size=(2, n_items))
    many = ScoreModel(np.full(n_items, 0.5), factors, np.ones(n_items))
    target = Target(many, np.full(n_items, 1 / n_items))
    steps, step_forward = 0, Given.after

    def counted(given: Given, target: Target, item: int) -> Given:
        nonlocal steps
        steps += 1
        return step_forward(given, target, item)

    monkeypatch.setattr(Given, "after", counted)
    for asked in range(1, length + 1):
        for first in range(0, n_items, length):
            target.given(range(first, first + asked))

    assert steps == tests * length


def test_with_all_items_answered_nothing_is_left_to_predict() -> None:
    scores = np.random.default_rng(1).integers(0, 2, N_ITEMS).astype(float)
    target = whole(model())
    value, lo, hi = target.interval(list(range(N_ITEMS)), scores)
    assert value == pytest.approx(scores.mean())
    assert (lo, hi) == pytest.approx((scores.mean(), scores.mean()))


def test_intervals_stay_within_what_is_possible() -> None:
    target = Target(model(), np.full(N_ITEMS, 1 / N_ITEMS), Widths((1, 8), (30.0, 30.0)))
    value, lo, hi = target.interval([0, 1, 2], np.array([1.0, 0.0, 1.0]))
    assert (lo, hi) == pytest.approx((2 / 12, 11 / 12))
    assert lo <= value <= hi


def test_an_interval_holds_its_value_whatever_was_answered() -> None:
    known = Target(model(), np.full(N_ITEMS, 1 / N_ITEMS), Widths((1,), (0.01,)))
    rng = np.random.default_rng(2)
    for n_asked in (1, 6, 11, 12):
        for _ in range(50):
            items = rng.permutation(N_ITEMS)[:n_asked]
            value, lo, hi = known.interval(
                items.tolist(), rng.integers(0, 2, n_asked).astype(float)
            )
            assert 0.0 <= lo <= value <= hi <= 1.0


def test_widths_go_evenly_between_known_numbers_of_items() -> None:
    widths = Widths((4, 16), (2.0, 3.0))
    assert [widths.at(n) for n in (0, 4, 8, 16, 99)] == pytest.approx([2.0, 2.0, 2.5, 3.0, 3.0])


def test_a_short_form_beats_replacing_its_first_item() -> None:
    target = whole(model())
    first = short_form(target, 1)[0]
    _, best = target.predict([first], np.zeros(1))
    assert all(target.predict([i], np.zeros(1))[1] >= best for i in range(N_ITEMS))
    assert len(set(short_form(target, 99))) == N_ITEMS
    form, scores = compose(target, 4), np.array([1.0, 0.0, 0.5, 1.0])
    told, _ = target.predict(list(form.items), scores)
    assert form.constant + np.dot(form.weights, scores) == pytest.approx(told)


def test_costs_turn_a_short_form_to_cheap_items() -> None:
    costs = np.ones(N_ITEMS)
    costs[short_form(whole(model()), 3)] = 1000.0
    assert not set(short_form(whole(model()), 3)) & set(short_form(whole(model()), 3, costs))


@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_the_largest_factors_are_the_nearest_covariance_of_so_many(shape: tuple[int, int]) -> None:
    factors = np.random.default_rng(4).normal(size=shape)
    _, sizes, right = np.linalg.svd(factors, full_matrices=False)
    nearest = (right[:4].T * sizes[:4] ** 2) @ right[:4]
    kept = reduced(factors, 4)
    assert kept.shape == (4, shape[1])
    assert kept.T @ kept == pytest.approx(nearest)
    assert reduced(factors, shape[0]) is factors
    assert [most_factors(n) for n in (0, 5000, 10_000, 10**7)] == [400, 400, 200, 1]


def test_a_target_without_items_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="all were excluded"):
        whole(model()).without(range(N_ITEMS))
