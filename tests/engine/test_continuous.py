from collections.abc import Callable

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridEstimator
from app.engine.lint import lint
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.logistic import LOGISTIC
from app.engine.simulation.simulate import draw_scores
from tests.engine.random_banks import parameters, random_bank


def test_information_is_the_published_one() -> None:
    # Balkir et al. (2026), arXiv 2601.13885: mu (1 - mu) / k with mu = sigmoid(theta - b).
    item = parameters(1.0, -0.5, 0.0, 1.0, 0.08)
    terms = CONTINUOUS.warm_terms(item, 1.2)
    assert terms.j == terms.information_slope
    mu = 1 / (1 + np.exp(-(1.2 - 0.5)))
    assert CONTINUOUS.information(item, 1.2) == pytest.approx(mu * (1 - mu) / 0.08)
    assert CONTINUOUS.score_moments(item, 1.2)[1] == pytest.approx(0.08 * mu * (1 - mu))


def test_a_score_tells_as_much_as_a_normal_one_of_its_mean_and_variance() -> None:
    item, nodes = parameters(1.3, -0.5, 0.1, 0.9, 0.2), np.linspace(-3, 3, 61)
    weights = np.exp(-(nodes**2)) / np.exp(-(nodes**2)).sum()
    share = 1 / (1 + np.exp(0.5 - 1.3 * nodes))
    noise = 0.8**2 * 0.2 * (weights * share * (1 - share)).sum()
    total = 0.8**2 * np.cov(share, aweights=weights, ddof=0) + noise
    gain = CONTINUOUS.mutual_information(item.column(), nodes, weights)
    assert gain == pytest.approx([np.log(total / noise) / 2])


def test_dispersion_one_gives_the_logistic_model() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(0.0, 0.4, 30), rng.normal(size=30)
    plain = ItemBank.from_difficulties(a=a, b=b)
    scored = ItemBank.from_difficulties(a=a, b=b, k=np.ones(30))
    grid = np.linspace(-4, 4, 9)
    right = rng.integers(0, 2, 30)
    np.testing.assert_allclose(scored.information(grid), plain.information(grid))
    np.testing.assert_allclose(
        scored.log_likelihood(grid, range(30), right),
        plain.log_likelihood(grid, range(30), right),
    )
    for one, other in zip(
        CONTINUOUS.warm_terms(scored.parameters, 0.7),
        LOGISTIC.warm_terms(plain.parameters, 0.7),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_scores_of_many_items_may_be_missing() -> None:
    bank = random_bank(1, 20, kind="continuous")
    nodes = np.linspace(-3, 3, 7)
    scores = np.random.default_rng(2).random((3, 20))
    scores[1, 4:] = np.nan
    rows = CONTINUOUS.row_log_likelihood(bank.parameters, nodes, scores)
    np.testing.assert_allclose(rows[0], bank.log_likelihood(nodes, range(20), scores[0]))
    np.testing.assert_allclose(rows[1], bank.log_likelihood(nodes, range(4), scores[1, :4]))


def test_a_score_beyond_the_items_range_counts_as_at_its_end() -> None:
    item = parameters(1.3, 0.2, 0.2, 0.8, 0.1)
    for beyond, end in ((0.05, 0.2), (1.0, 0.8)):
        assert CONTINUOUS.log_likelihood(item, 0.4, beyond) == pytest.approx(
            float(CONTINUOUS.log_likelihood(item, 0.4, end))
        )


@pytest.mark.parametrize("k", [0.02, 0.3, 1.0, 1.5])
def test_drawn_scores_have_the_mean_and_variance_of_the_model(k: float) -> None:
    n = 40_000
    bank = ItemBank.from_difficulties(
        a=np.ones(n), b=np.full(n, -1.5), c=np.full(n, 0.1), d=np.full(n, 0.9), k=np.full(n, k)
    )
    (scores,) = draw_scores(bank, [0.7], np.random.default_rng(3))
    assert scores.min() >= 0.1
    assert scores.max() <= 0.9
    assert scores.mean() == pytest.approx(float(bank.expected_score(0.7)[0]), abs=0.008)
    variance = float(CONTINUOUS.score_moments(bank.parameters.take(0), 0.7)[1]) * min(1.0, 1.0 / k)
    assert scores.var() == pytest.approx(variance, rel=0.06)


def beta(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    return np.array(list(draw_scores(bank, [theta] * n, rng)))


def graded(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw grades 0, 1/m, ..., 1 with variance mu (1 - mu) / m, as a judge gives them."""
    grades = np.round(1 / bank.k).astype(int)
    right = rng.binomial(grades, bank.expected_score(theta), (n, bank.n_items))
    shares: FloatArray = right / grades
    return shares


def cut_normal(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    sd = np.sqrt(CONTINUOUS.score_moments(bank.parameters, theta)[1])
    return np.clip(rng.normal(bank.expected_score(theta), sd, (n, bank.n_items)), 0, 1)


def near_bank() -> ItemBank:
    """Return 50 items as an adaptive test would choose them for theta 0.5, and their grades."""
    rng = np.random.default_rng(4)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.0, 0.3, 50),
        b=0.5 + rng.normal(0, 0.7, 50),
        k=1 / rng.integers(4, 12, 50),
    )


@pytest.mark.parametrize(
    ("draw", "method"),
    [
        (beta, EstimatorName.MLE),
        (beta, EstimatorName.WLE),
        (graded, EstimatorName.WLE),
        (cut_normal, EstimatorName.WLE),
    ],
)
def test_information_is_the_inverse_variance_of_the_estimator(
    draw: Callable[..., FloatArray], method: EstimatorName
) -> None:
    bank, theta, n = near_bank(), 0.5, 1_500
    scores = draw(bank, theta, n, np.random.default_rng(5))
    found = np.array(
        [
            belief.theta
            for block in estimate_many(bank, scores, GridEstimator(method=method))
            for belief in block.beliefs
        ]
    )
    information = float(bank.information(theta).sum())
    # Of 1,500 thetas the variance has a standard error of 3.7 %, the mean one of 0.003.
    assert found.var() * information == pytest.approx(1.0, abs=0.11)
    assert found.mean() == pytest.approx(theta, abs=0.01)


@pytest.mark.parametrize(
    ("draw", "method"),
    [
        *((beta, method) for method in EstimatorName),
        (graded, EstimatorName.EAP),
        (cut_normal, EstimatorName.EAP),
    ],
)
def test_coverage_holds_whatever_the_distribution_of_the_scores(
    draw: Callable[..., FloatArray], method: EstimatorName
) -> None:
    bank, n = near_bank(), 1_000
    rng = np.random.default_rng(6)
    thetas = 0.5 + rng.normal(0, 0.5, n)
    scores = np.concatenate([draw(bank, theta, 1, rng) for theta in thetas])
    held = 0
    for block in estimate_many(bank, scores, GridEstimator(method=method)):
        for row, belief in zip(block.rows, block.beliefs, strict=True):
            estimate = belief.estimate()
            held += estimate.lo <= thetas[row] <= estimate.hi
    # Three standard errors of the coverage of 1,000 intervals are 2.1 %.
    assert 0.93 <= held / n <= 0.97


def test_lint_tells_ranges_from_guessing_and_finds_overdispersion() -> None:
    bank = ItemBank.from_difficulties(
        a=[1.0, 1.0], b=[0.0, 0.0], c=[0.6, 0.0], d=[0.9, 0.5], k=[0.1, 1.4]
    )
    assert [(f.item_id, f.code, f.value) for f in lint(bank)] == [("2", "high_dispersion", 1.4)]
