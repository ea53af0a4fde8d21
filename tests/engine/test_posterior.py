import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.bank import ItemBank, ItemIndex
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.estimation.posterior import (
    NODES_PER_SE_LEAST,
    FixedGrid,
    NormalPrior,
    Posterior,
    Rule,
)
from app.engine.state import Response
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank, random_bank

ADAPTIVE = GridEstimator()


def believe(
    bank: ItemBank, items: list[int], scores: list[float], estimator: GridEstimator = ADAPTIVE
) -> GridBelief:
    belief = estimator.start(bank)
    for item, score in zip(items, scores, strict=True):
        belief = estimator.update(bank, belief, Response(ItemIndex(item), score))
    return belief


def by_brute_force(
    bank: ItemBank, items: list[int], scores: list[float], prior: NormalPrior = ADAPTIVE.prior
) -> tuple[float, float]:
    nodes = np.linspace(-30, 30, 12_001)
    log_mass = bank.log_likelihood(nodes, items, scores) + prior.log_density(nodes)
    weights = np.exp(log_mass - log_mass.max())
    weights /= weights.sum()
    mean = float(weights @ nodes)
    return mean, float(np.sqrt(weights @ (nodes - mean) ** 2))


def test_the_prior_is_the_posterior_of_no_answers() -> None:
    start = Posterior.start(NormalPrior(mean=1.5, sd=0.4), None)
    assert start.mean == pytest.approx(1.5, abs=1e-9)
    assert start.sd == pytest.approx(0.4, rel=1e-9)
    assert start.weights.sum() == pytest.approx(1.0)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    shift=st.floats(-3, 3),
    sd=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_the_moving_grid_agrees_with_a_grid_of_twelve_thousand_nodes(
    seed: int, n: int, shift: float, sd: float
) -> None:
    bank = random_bank(seed, n)
    rng = np.random.default_rng(seed)
    scores = (rng.random(n) < bank.expected_score(shift)).astype(float).tolist()
    prior = NormalPrior(sd=sd)
    belief = believe(bank, list(range(n)), scores, GridEstimator(prior=prior))
    mean, deviation = by_brute_force(bank, list(range(n)), scores, prior)
    assert belief.theta == pytest.approx(mean, abs=1e-7)
    assert belief.se == pytest.approx(deviation, abs=1e-7)
    assert belief.se >= NODES_PER_SE_LEAST * belief.posterior.grid.spacing
    assert belief.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("theta", [-8.0, 8.0])
def test_a_posterior_far_from_the_prior_is_found(theta: float) -> None:
    bank = ItemBank.from_difficulties(a=np.full(400, 1.5), b=np.linspace(-9, 9, 400))
    scores = (bank.expected_score(theta) > 0.5).astype(float).tolist()
    items = list(range(400))
    belief = believe(bank, items, scores)
    mean, deviation = by_brute_force(bank, items, scores)
    assert abs(mean) > 7
    assert belief.theta == pytest.approx(mean, abs=1e-8)
    assert belief.se == pytest.approx(deviation, abs=1e-8)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_no_mass_lies_beyond_either_end_of_the_grid(sign: float, sd: float) -> None:
    bank = ItemBank.from_difficulties(a=np.full(12, 1.5), b=sign * np.linspace(0, 14, 12))
    estimator = GridEstimator(prior=NormalPrior(sd=sd))
    belief = estimator.start(bank)
    for item in range(12):
        response = Response(ItemIndex(item), float(sign > 0.0))
        belief = estimator.update(bank, belief, response)
        assert belief.weights[[0, -1]].max() < np.exp(-20) * belief.weights.max()


def test_a_very_narrow_posterior_is_resolved() -> None:
    bank = ItemBank.from_difficulties(a=np.full(3_000, 8.0), b=np.linspace(-0.5, 0.9, 3_000))
    scores = (bank.b < 0.2).astype(float).tolist()
    belief = believe(bank, list(range(3_000)), scores)
    assert belief.se < 0.01
    assert belief.theta == pytest.approx(0.2, abs=1e-3)
    assert belief.se >= NODES_PER_SE_LEAST * belief.posterior.grid.spacing


def test_a_fixed_grid_never_moves() -> None:
    grid = FixedGrid(n_nodes=33, lo=-4, hi=4)
    bank = clean_bank(1, 50)
    belief = believe(bank, list(range(50)), [1.0] * 50, GridEstimator(grid=grid))
    assert belief.nodes.tolist() == np.linspace(-4, 4, 33).tolist()
    assert grid.spacing == 0.25


def test_the_trapezoid_halves_the_ends_and_the_rectangle_does_not() -> None:
    wide = NormalPrior(sd=1e6)  # a flat prior, so that the rule alone gives the weights
    weights = {
        rule: Posterior.start(wide, FixedGrid(n_nodes=5, lo=-1, hi=1, rule=rule)).weights
        for rule in Rule
    }
    np.testing.assert_allclose(weights[Rule.TRAPEZOID], np.array([1, 2, 2, 2, 1]) / 8, rtol=1e-9)
    np.testing.assert_allclose(weights[Rule.RECTANGLE], np.full(5, 0.2), rtol=1e-9)


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.9])
def test_quantiles_of_a_normal_posterior_are_the_normal_ones(probability: float) -> None:
    expected = {0.025: -1.959964, 0.5: 0.0, 0.9: 1.281552}[probability]  # normal tables
    start = Posterior.start(NormalPrior(), None)
    assert start.quantile(probability) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("n_nodes", "lo", "hi", "words"),
    [(1, -4.0, 4.0, "got 1"), (33, 4.0, -4.0, "lo < hi"), (33, -np.inf, 4.0, "finite")],
)
def test_invalid_grids_are_refused(n_nodes: int, lo: float, hi: float, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        FixedGrid(n_nodes=n_nodes, lo=lo, hi=hi)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.0), (0.0, -1.0), (0.0, np.nan), (np.nan, 1.0)])
def test_invalid_priors_are_refused(mean: float, sd: float) -> None:
    with pytest.raises(InvalidInputError, match="prior"):
        NormalPrior(mean=mean, sd=sd)


def test_an_interval_hardly_depends_on_the_grid_it_was_read_from() -> None:
    bank = random_bank(4, 30)
    items, scores = list(range(30)), [float(i % 3 > 0) for i in range(30)]
    posterior = believe(bank, items, scores).posterior
    nodes = np.linspace(-8, 8, 160_001)
    log_mass = bank.log_likelihood(nodes, items, scores) + ADAPTIVE.prior.log_density(nodes)
    below = np.cumsum(np.exp(log_mass - log_mass.max()))
    expected = np.interp([0.025, 0.5, 0.975], below / below[-1], nodes)
    found = [posterior.quantile(probability) for probability in (0.025, 0.5, 0.975)]
    np.testing.assert_allclose(found, expected, atol=2e-4 * posterior.sd)


@pytest.mark.parametrize("probability", [1e-12, 1e-9, 0.01, 0.5, 1 - 1e-9])
def test_quantiles_grow_with_the_probability(probability: float) -> None:
    steep = ItemBank.from_difficulties(a=[400.0, 400.0], b=[0.3, 0.31])
    posterior = believe(steep, [0, 1], [1.0, 0.0]).posterior
    reached = [posterior.quantile(p) for p in (probability, min(probability * 1.5, 1.0))]
    assert np.isfinite(reached).all()
    assert reached[0] <= reached[1]
