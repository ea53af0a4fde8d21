"""Items asked several times: the weight of repeated answers."""

import numpy as np
import pytest

from app.engine.bank import ItemBank, ItemIndex
from app.engine.estimation.estimators import EstimatorName, GridEstimator, effective_answers
from app.engine.state import Response

N, REPEATS = 300, 3
RNG = np.random.default_rng(3)
BANK = ItemBank.from_difficulties(a=np.exp(RNG.normal(0.4, 0.3, N)), b=RNG.normal(size=N))


def answers(theta: float, rho: float, rng: np.random.Generator, n: int = N) -> np.ndarray:
    """Draw binary answers, shape (n, REPEATS), whose chances vary by item around the curves."""
    p = BANK.expected_score(theta)[:n]
    if rho > 0:
        size = 1 / rho - 1
        p = rng.beta(p * size, (1 - p) * size)
    return (rng.random((n, REPEATS)) < p[:, None]).astype(float)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.7])
def test_the_weight_of_answers_depends_on_their_variance_within_items(rho: float) -> None:
    rng = np.random.default_rng(1)
    scores = dict(enumerate(answers(0.3, rho, rng).tolist()))
    found = effective_answers(BANK, 0.3, scores)
    assert found == pytest.approx(REPEATS / (1 + (REPEATS - 1) * rho), rel=0.12)


def test_n_answers_count_as_one_to_n_by_how_they_differ() -> None:
    scores = {item: [float(item % 2)] * REPEATS for item in range(40)}
    assert effective_answers(BANK, 0.0, scores) == 1.0
    assert effective_answers(BANK, 0.0, {0: [1.0]}) == 1.0
    varied = dict.fromkeys(range(40), [1.0, 0.0] * 2)  # more than the curves say at this theta
    assert effective_answers(BANK, 8.0, varied) == pytest.approx(4.0)
    few = effective_answers(BANK, 0.0, {0: [1.0, 0.0, 1.0]})
    assert 1.0 < few < 1.5  # one item is little evidence for chance
    scores = {0: [1.0, 0.0, 1.0], 1: [1.0], 2: [0.0, 1.0]}
    chance = BANK.expected_score(0.4)[[0, 2]]
    # Variance within items: 1/3 for three answers, 1/2 for two; the prior adds five answers.
    rho = 1 - (1 / 3 + 1 / 2) / (np.sum(chance * (1 - chance)) + 5 / 4)
    counted = 1 / (rho + (1 - rho) * (1 / 3 + 1 + 1 / 2) / 3)
    assert effective_answers(BANK, 0.4, scores) == pytest.approx(counted)


@pytest.mark.parametrize("rho", [0.1, 0.6])
def test_intervals_hold_where_items_are_asked_three_times(rho: float) -> None:
    rng = np.random.default_rng(8)
    estimator, n = GridEstimator(), 60
    held = np.zeros((100, 3))
    widths = np.zeros((100, 3))
    for row, theta in enumerate(rng.normal(size=100)):
        given = answers(theta, rho, rng, n)
        belief = estimator.update(
            BANK,
            estimator.start(BANK),
            *(Response(ItemIndex(j), float(given[j].mean())) for j in range(n)),
        )
        counted = effective_answers(BANK, belief.theta, dict(enumerate(given.tolist())))
        for column, weight in enumerate((1.0, counted, float(REPEATS))):
            found = estimator.weighted(BANK, belief, weight).estimate()
            held[row, column] = found.lo < theta < found.hi
            widths[row, column] = found.hi - found.lo
    alone, together, naive = held.mean(axis=0)
    assert 0.91 <= together <= 0.985
    assert alone >= together >= naive
    assert widths[:, 1].mean() < 0.95 * widths[:, 0].mean()
    if rho > 0.5:
        assert naive < 0.9


def test_a_mode_moves_from_its_prior_with_the_weight_of_answers() -> None:
    estimator = GridEstimator(method=EstimatorName.MAP)
    once = [Response(ItemIndex(item), float(item % 4 != 0)) for item in range(12)]
    belief, twice = (estimator.update(BANK, estimator.start(BANK), *once * n) for n in (1, 2))
    counted = estimator.weighted(BANK, belief, 2.0)
    assert counted.theta == pytest.approx(twice.theta, abs=1e-6)
    assert counted.se == pytest.approx(twice.se, rel=1e-6)


def test_an_mle_keeps_its_theta() -> None:
    estimator = GridEstimator(method=EstimatorName.MLE)
    belief = estimator.start(BANK)
    for item in range(20):
        belief = estimator.update(BANK, belief, Response(ItemIndex(item), float(item % 3 == 0)))
    counted = estimator.weighted(BANK, belief, 2.0)
    assert counted.theta == belief.theta
    assert counted.se == pytest.approx(belief.se / np.sqrt(2))
