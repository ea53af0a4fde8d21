import numpy as np
import pytest
from scipy.stats import kendalltau, rankdata, spearmanr

from app.engine.inference.orders import kendall, ranks, spearman


@pytest.mark.parametrize("n_values", [3, 8, 1000])
def test_ranks_and_their_correlations_are_those_of_scipy_with_ties_and_without(
    n_values: int,
) -> None:
    rng = np.random.default_rng(n_values)
    for _ in range(20):
        n = int(rng.integers(3, 60))
        first = rng.integers(0, n_values, n) / 7.0
        second = first + rng.integers(0, n_values, n) / 7.0
        first[0], second[0] = -1.0, -1.0  # neither is constant
        np.testing.assert_array_equal(ranks(first), rankdata(first))
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)
        assert kendall(first, second) == pytest.approx(kendalltau(first, second).statistic)


def test_constant_values_have_no_order() -> None:
    order, constant = np.arange(4.0), np.ones(4)
    assert spearman(order, constant) is spearman(constant, order) is None
    assert kendall(order, constant) is kendall(constant, order) is None
    assert kendall(np.ones(1), np.ones(1)) is None
