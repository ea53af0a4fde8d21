import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridBelief, GridEstimator, SeKind
from app.engine.estimation.posterior import FixedGrid, NormalPrior
from app.engine.state import Response
from tests.contracts.estimators import EstimatorContract, answers, estimate_of, responses
from tests.engine.random_banks import clean_bank, random_bank


class TestGridEstimator(EstimatorContract):
    @pytest.fixture(params=EstimatorName)
    def estimator(self, request: pytest.FixtureRequest) -> GridEstimator:
        return GridEstimator(method=request.param)


def simulated(bank: ItemBank, thetas: FloatArray, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    drawn = rng.random((len(thetas), bank.n_items)) < bank.expected_score(thetas)
    return drawn.astype(np.float64)


def beliefs(bank: ItemBank, scores: FloatArray, estimator: GridEstimator) -> list[GridBelief]:
    found: dict[int, GridBelief] = {}
    for block in estimate_many(bank, scores, estimator):
        found |= dict(zip(block.rows.tolist(), block.beliefs, strict=True))
    return [found[i] for i in range(len(scores))]


# Modes


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 40))
def test_map_is_the_highest_point_of_the_posterior(seed: int, n: int) -> None:
    bank = random_bank(seed, n, steepness=1.0)
    given_answers = answers(bank, 0.0, seed)
    estimate = estimate_of(GridEstimator(method=EstimatorName.MAP), bank, given_answers)
    grid = np.linspace(-8, 8, 3_201)

    def log_posterior(theta: FloatArray) -> FloatArray:
        scores = [answer.score for answer in given_answers]
        return bank.log_likelihood(theta, list(range(n)), scores) - theta**2 / 2

    at_estimate = log_posterior(np.array([estimate.theta]))[0]
    assert at_estimate >= log_posterior(grid).max() - 1e-9


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 40))
def test_mle_is_the_highest_point_or_says_there_is_none(seed: int, n: int) -> None:
    bank = random_bank(seed, n, steepness=1.0)
    given_answers = answers(bank, 0.0, seed)
    scores = [answer.score for answer in given_answers]
    estimate = estimate_of(GridEstimator(method=EstimatorName.MLE), bank, given_answers)
    log_likelihood = bank.log_likelihood(np.linspace(-10, 10, 4_001), list(range(n)), scores)
    highest = log_likelihood.max()
    if estimate.at_bound:
        assert max(log_likelihood[0], log_likelihood[-1]) >= highest - 1e-6
        assert estimate.method == "map"
    else:
        assert bank.log_likelihood(estimate.theta, list(range(n)), scores) >= highest - 1e-9


def test_the_higher_of_two_modes_is_found() -> None:
    # Right on a hard item with guessing and wrong on easy ones: modes near -3 and 4.
    bank = ItemBank.from_difficulties(
        a=[6.0, 6.0, 3.0, 3.0], b=[4.0, 4.2, -3.0, 6.0], c=[0.05, 0.05, 0.0, 0.0]
    )
    scores = [1.0, 1.0, 1.0, 0.0]
    grid = np.linspace(-10, 10, 20_001)
    best = grid[bank.log_likelihood(grid, [0, 1, 2, 3], scores).argmax()]
    estimate = estimate_of(GridEstimator(method=EstimatorName.MLE), bank, responses(scores))
    assert best > 4
    assert estimate.theta == pytest.approx(best, abs=2e-3)


def test_wle_of_one_parameter_items_solves_warms_equation() -> None:
    # With a = 1 and no guessing J / I is I' / I, so WLE maximises the likelihood times sqrt(I).
    bank = ItemBank.from_difficulties(a=np.ones(8), b=np.linspace(-2, 2, 8))
    grid = np.linspace(-9, 9, 180_001)
    for right in range(9):
        scores = [1.0] * right + [0.0] * (8 - right)
        weighted = bank.log_likelihood(grid, list(range(8)), scores)
        weighted += np.log(bank.information(grid).sum(axis=1)) / 2
        estimate = estimate_of(GridEstimator(method=EstimatorName.WLE), bank, responses(scores))
        assert estimate.method == "wle"
        assert estimate.theta == pytest.approx(grid[weighted.argmax()], abs=2e-4)


# Fallbacks when there is no solution


@pytest.mark.parametrize("scores", [[], [1.0] * 10, [0.0] * 10])
def test_mle_without_a_maximum_falls_back_to_map_and_says_so(scores: list[float]) -> None:
    bank = clean_bank(1, 10)
    mle = estimate_of(GridEstimator(method=EstimatorName.MLE), bank, responses(scores))
    by_map = estimate_of(GridEstimator(method=EstimatorName.MAP), bank, responses(scores))
    assert (mle.method, mle.at_bound) == ("map", True)
    assert (by_map.method, by_map.at_bound) == ("map", False)
    assert (mle.theta, mle.se, mle.lo, mle.hi) == (by_map.theta, by_map.se, by_map.lo, by_map.hi)


def test_wle_is_finite_when_all_is_right_and_falls_back_without_answers() -> None:
    bank = clean_bank(1, 10)
    estimator = GridEstimator(method=EstimatorName.WLE)
    all_right = estimate_of(estimator, bank, responses([1.0] * 10))
    assert (all_right.method, all_right.at_bound) == ("wle", False)
    assert estimate_of(estimator, bank, []).at_bound


def test_answers_to_items_without_slope_leave_the_prior() -> None:
    bank = ItemBank.from_intercepts(a=[0.0, 0.0], intercept=[1.0, -1.0])
    for method in EstimatorName:
        estimate = estimate_of(GridEstimator(method=method), bank, responses([1.0, 0.0]))
        assert estimate.theta == pytest.approx(0.0, abs=1e-9)
        assert estimate.se == pytest.approx(1.0, rel=1e-9)
        assert estimate.at_bound == (method in (EstimatorName.MLE, EstimatorName.WLE))


@pytest.mark.parametrize("method", [EstimatorName.EAP, EstimatorName.MAP])
def test_a_fixed_range_that_truncates_the_posterior_is_reported(method: EstimatorName) -> None:
    bank = ItemBank.from_difficulties(a=np.full(60, 2.0), b=np.linspace(0, 5, 60))
    grid = FixedGrid(n_nodes=33, lo=-2, hi=2)
    estimator = GridEstimator(method=method, grid=grid)
    assert estimate_of(estimator, bank, responses([1.0] * 60)).at_bound
    assert estimate_of(estimator, bank, responses([1.0] * 60)).theta <= 2
    assert not estimate_of(estimator, bank, responses([1.0, 0.0, 0.0])).at_bound


# Standard errors


@pytest.mark.parametrize("method", EstimatorName)
def test_each_standard_error_belongs_to_its_estimator(method: EstimatorName) -> None:
    bank, prior = clean_bank(2, 40), NormalPrior(sd=0.8)
    given_answers = answers(bank, 0.4, 2)
    ses = {
        kind: estimate_of(GridEstimator(method=method, prior=prior, se=kind), bank, given_answers)
        for kind in (None, *SeKind)
    }
    usual = ses[None]
    information = float(bank.information(usual.theta).sum())
    by_kind = {
        SeKind.POSTERIOR: estimate_of(GridEstimator(prior=prior), bank, given_answers).se,
        SeKind.INFORMATION: information**-0.5,
        SeKind.INFORMATION_WITH_PRIOR: (information + 1 / 0.64) ** -0.5,
    }
    for kind, expected in by_kind.items():
        assert ses[kind].se == pytest.approx(expected, rel=1e-12)
    own = {"eap": SeKind.POSTERIOR, "map": SeKind.INFORMATION_WITH_PRIOR}
    assert usual.se == ses[own.get(method.value, SeKind.INFORMATION)].se


def test_no_information_means_no_finite_standard_error() -> None:
    estimator = GridEstimator(se=SeKind.INFORMATION)
    assert estimator.start(clean_bank(0, 3)).se == np.inf


# Recovery


@pytest.mark.parametrize("method", list(EstimatorName))
def test_intervals_hold_as_often_as_they_say(method: EstimatorName) -> None:
    rng = np.random.default_rng(11)
    n_items, n_examinees = 80, 2_000
    bank = ItemBank.from_difficulties(
        a=rng.lognormal(0.2, 0.3, n_items),
        b=rng.normal(0, 1.3, n_items),
        c=rng.uniform(0, 0.25, n_items),
    )
    thetas = rng.normal(0, 1, n_examinees)
    scores = simulated(bank, thetas, 12)
    estimates = [b.estimate() for b in beliefs(bank, scores, GridEstimator(method=method))]
    held = [e.lo <= theta <= e.hi for e, theta in zip(estimates, thetas, strict=True)]
    # Three standard errors of a share of 2,000; the normal intervals are approximate.
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)
    error = np.array([e.theta for e in estimates]) - thetas
    assert abs(error.mean()) < 0.02
    assert np.corrcoef([e.theta for e in estimates], thetas)[0, 1] > 0.94


# Many examinees at once


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("method", list(EstimatorName))
@pytest.mark.parametrize("grid", [None, FixedGrid(n_nodes=33, lo=-2, hi=2)])
def test_many_at_once_get_what_each_would_get_alone(
    method: EstimatorName, grid: FixedGrid | None, missing: float
) -> None:
    bank = random_bank(21, 60)
    rng = np.random.default_rng(21)
    thetas = np.concatenate([rng.normal(0, 1, 10), [-6.0, 6.0]])
    scores = simulated(bank, thetas, 22)
    scores[rng.random(scores.shape) < missing] = np.nan
    scores[0] = np.nan
    scores[1] = 1.0
    scores[2] = 0.0
    scores[3, :10] = 0.4
    estimator = GridEstimator(method=method, grid=grid)
    for row, belief in zip(scores, beliefs(bank, scores, estimator), strict=True):
        given_answers = [
            Response(ItemIndex(i), float(score)) for i, score in enumerate(row) if score == score
        ]
        alone = estimate_of(estimator, bank, given_answers)
        together = belief.estimate()
        assert (together.method, together.at_bound) == (alone.method, alone.at_bound)
        assert together.theta == pytest.approx(alone.theta, abs=1e-8)
        assert together.se == pytest.approx(alone.se, abs=1e-8)
        assert (together.lo, together.hi) == pytest.approx((alone.lo, alone.hi), abs=2e-3)


def test_each_examinee_is_estimated_once() -> None:
    bank = clean_bank(5, 20)
    scores = simulated(bank, np.random.default_rng(5).normal(0, 2, 400), 5)
    rows = [row for block in estimate_many(bank, scores, GridEstimator()) for row in block.rows]
    assert sorted(rows) == list(range(400))


def test_theta_uses_a_prior_where_its_method_or_standard_error_does() -> None:
    prior, bank = NormalPrior(mean=0.3, sd=1.2), ItemBank.from_difficulties(a=[1.0], b=[0.0])
    for method in (EstimatorName.EAP, EstimatorName.MAP):
        assert GridEstimator(method=method, prior=prior).prior_in(bank) == (0.3, 1.2)
        bare = GridEstimator(method=method, prior=prior, se=SeKind.INFORMATION)
        assert bare.prior_in(bank) is None
    for method in (EstimatorName.MLE, EstimatorName.WLE):
        assert GridEstimator(method=method, prior=prior).prior_in(bank) is None
