"""Several abilities: the mode, its covariance, and the value of items."""

import numpy as np
import pytest
from scipy.optimize import minimize

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.information_index import index_of
from app.engine.models.multidimensional import (
    Loadings,
    MultidimensionalModel,
    Population,
    estimate_profile,
    standardised,
    with_answer,
)
from app.engine.multidimensional import ProfileMap, abilities_of
from app.engine.prediction.targets import target_weights
from app.engine.selection.base import Pool
from app.engine.selection.design import AbilityDesign, Optimality
from app.engine.state import CatState, Response
from app.errors import InvalidInputError
from tests.engine.random_banks import several

N_ITEMS = 30


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_the_rank_one_covariance_is_that_of_a_fresh_inverse(dimensions: int) -> None:
    bank = several(dimensions, dimensions=dimensions)
    slopes, prior = abilities_of(bank).items.slopes, abilities_of(bank).population.covariance
    weights = np.random.default_rng(1).uniform(0.0, 0.25, N_ITEMS)
    covariance = prior
    for slope, weight in zip(slopes, weights, strict=True):
        covariance = with_answer(covariance, slope, float(weight))
    fresh = np.linalg.inv(np.linalg.inv(prior) + slopes.T @ (weights[:, None] * slopes))
    np.testing.assert_allclose(covariance, fresh, rtol=1e-9, atol=1e-12)


def test_standard_abilities_have_the_curves_of_their_population() -> None:
    model = abilities_of(several(5, dimensions=2))
    z = np.random.default_rng(2).normal(size=(4, model.items.n_abilities))
    root = np.linalg.cholesky(model.population.covariance)
    np.testing.assert_allclose(
        standardised(model).items.expected_score(z),
        model.items.expected_score(model.population.mean + z @ root.T),
    )


def test_expected_scores_narrow_the_abilities_and_leave_them_in_place() -> None:
    """An expected score has no gradient at the mode; the Hessian is the same for any score."""
    bank, estimator = several(3), ProfileMap()
    items = abilities_of(bank).items
    start = estimator.start(bank)
    belief = estimator.update(
        bank, start, *(Response(ItemIndex(i), float(i % 2)) for i in range(9))
    )
    more = [ItemIndex(i) for i in (12, 20, 28)]
    expected = estimator.expected_scores(bank, belief, more)

    later = estimator.update(
        bank, belief, *(Response(item, float(e)) for item, e in zip(more, expected, strict=True))
    )

    mode, covariance = belief.profile.mean, belief.profile.covariance
    np.testing.assert_allclose(expected, items.expected_score(mode)[more])
    np.testing.assert_allclose(later.profile.mean, mode, atol=1e-9)
    for item, score in zip(more, expected.tolist(), strict=True):
        covariance = with_answer(covariance, items.slopes[item], score * (1.0 - score))
    np.testing.assert_allclose(later.profile.covariance, covariance, rtol=1e-6)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_the_mode_is_the_one_that_a_general_optimiser_finds(nested: bool, right: float) -> None:
    bank = several(5, nested=nested)
    items, population = abilities_of(bank).items, abilities_of(bank).population
    asked = np.arange(0, N_ITEMS, 2)
    scores = (np.arange(asked.size) < right * asked.size).astype(float)
    profile = estimate_profile(items, population, asked, scores)
    precision = np.linalg.inv(population.covariance)

    def loss(x: FloatArray) -> float:
        logit = items.slopes[asked] @ x + items.intercept[asked]
        away = x - population.mean
        return float(np.sum(np.logaddexp(0, logit) - scores * logit) + away @ precision @ away / 2)

    found = minimize(loss, population.mean, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(profile.mean, found.x, atol=1e-3)
    p = items.expected_score(profile.mean)[asked]
    hessian = precision + items.slopes[asked].T @ ((p * (1 - p))[:, None] * items.slopes[asked])
    np.testing.assert_allclose(profile.covariance, np.linalg.inv(hessian), rtol=1e-6)


def test_a_test_of_several_abilities_finds_the_profile_within_its_errors() -> None:
    bank = several(2, dimensions=2)
    rng = np.random.default_rng(0)
    population = abilities_of(bank).population
    misses = []
    for _ in range(60):
        truth = rng.multivariate_normal(population.mean, population.covariance)
        p = abilities_of(bank).items.expected_score(truth)
        belief = ProfileMap().start(bank)
        for item in range(N_ITEMS):
            answer = Response(ItemIndex(item), float(rng.random() < p[item]))
            belief = ProfileMap().update(bank, belief, answer)
        misses.append((belief.profile.mean - truth) / belief.profile.se)
    within = np.abs(np.array(misses)) < 1.96
    assert within.mean() > 0.88
    assert np.abs(np.mean(misses)) < 0.3


def test_nodes_and_interval_of_theta_have_the_moments_of_the_posterior() -> None:
    belief = ProfileMap().start(several(2, dimensions=2))
    belief = ProfileMap().update(several(2, dimensions=2), belief, Response(ItemIndex(3), 1.0))
    assert belief.weights @ belief.nodes == pytest.approx(belief.theta)
    assert belief.weights @ (belief.nodes - belief.theta) ** 2 == pytest.approx(
        belief.se**2, rel=1e-4
    )
    told, half = belief.estimate(), 1.959964 * belief.se
    assert (told.theta, told.se) == (belief.theta, belief.se)
    assert (told.lo, told.hi) == pytest.approx((belief.theta - half, belief.theta + half))


# The criterion of eq. 6 is tested in tests/published/test_wild.py.
@pytest.mark.parametrize("optimality", sorted(set(Optimality) - {Optimality.V_LOADINGS}))
def test_a_criterion_is_what_one_more_answer_changes(optimality: Optimality) -> None:
    bank = several(3)
    abilities = abilities_of(bank)
    belief = ProfileMap().start(bank)
    for item in range(4):
        belief = ProfileMap().update(bank, belief, Response(ItemIndex(item), float(item % 2)))
    state = CatState(belief=belief).with_pending(ItemIndex(9))
    tags = [{"a"} if i < 10 else {"b"} for i in range(N_ITEMS)]
    weights = target_weights(bank, {"a": 1.0, "b": 3.0}, tags)
    worth = AbilityDesign(optimality=optimality, weights=weights).values(
        Pool(index_of(bank)), state
    )
    p = abilities.items.expected_score(belief.profile.mean)
    slopes, w = abilities.items.slopes, p * (1 - p)
    before = with_answer(belief.profile.covariance, slopes[9], float(w[9]))
    rise = slopes.T @ (weights * w)
    for item in (0, 5, 17, 29):
        after = with_answer(before, slopes[item], float(w[item]))
        expected = {
            Optimality.V: rise @ (before - after) @ rise,
            Optimality.D: np.linalg.slogdet(before)[1] - np.linalg.slogdet(after)[1],
            Optimality.A: np.trace(before - after),
            Optimality.TRACE: w[item] * slopes[item] @ slopes[item],
        }[optimality]
        assert worth[item] == pytest.approx(float(expected), rel=1e-8)


def test_a_mixed_target_weighs_its_tags_and_a_tag_without_items_is_refused() -> None:
    bank = several(1)
    tags = [{"a"} if i < 10 else {"b"} for i in range(N_ITEMS)]
    weights = target_weights(bank, {"a": 1.0, "b": 3.0}, tags)
    assert weights[:10].sum() == pytest.approx(0.25)
    assert weights.sum() == pytest.approx(1.0)
    with pytest.raises(InvalidInputError, match="'c' has no items; known tags: all, a, b"):
        target_weights(bank, {"c": 1.0}, tags)


@pytest.mark.parametrize("criterion", ["d_optimal", "a_optimal", "trace"])
def test_optimal_design_for_abilities_needs_a_bank_with_loadings(criterion: str) -> None:
    plain = ItemBank.from_difficulties(a=[1.0, 1.0], b=[0.0, 1.0])
    design = Design.from_dict({"selection": {"criterion": criterion}})
    with pytest.raises(InvalidInputError, match="a bank with loadings"):
        design.build(plain)
    several_abilities = design.build(several(1))
    assert isinstance(several_abilities.estimator, ProfileMap)


def test_a_part_of_the_bank_keeps_its_loadings() -> None:
    bank = several(4)
    part = bank.take(np.array([3, 7]))
    np.testing.assert_array_equal(
        abilities_of(part).items.slopes, abilities_of(bank).items.slopes[[3, 7]]
    )


def test_one_ability_for_all_points_where_the_mean_score_rises_fastest() -> None:
    model = abilities_of(several(7, nested=False))
    step = 1e-5 * np.eye(3)
    rise = [
        model.items.expected_score(model.population.mean + one).mean()
        - model.items.expected_score(model.population.mean - one).mean()
        for one in step
    ]
    assert model.composite == pytest.approx(np.array(rise) / np.linalg.norm(rise), abs=1e-6)
    of_dimension_alone = np.array([[0.0, 1.2], [0.0, 0.0], [1.0, 0.5]])
    nested = Loadings.from_slopes(of_dimension_alone, np.zeros(3), nested=True)
    assert nested.slopes == pytest.approx(of_dimension_alone, abs=1e-3)
    flat = Loadings.from_slopes(np.zeros((4, 2)), np.zeros(4), nested=False)
    still = MultidimensionalModel(flat, Population(np.zeros(2), np.eye(2)))
    assert still.composite.tolist() == [1.0, 0.0]
