"""Criteria: the worth of asking an item, also relative to its expected cost.

| symbol | meaning |
|---|---|
| I_i(theta) | Fisher information of item i, 1/logit^2 |
| w_k | posterior mass at node theta_k |
| P_i(theta) | expected score |
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from app.engine.bank import FloatArray, ItemIndex
from app.engine.information_index import largest
from app.engine.selection.base import Criterion, Pool
from app.engine.state import Belief, CatState
from app.errors import InvalidInputError

#: Nodes per posterior standard deviation of weighted criteria. Few are enough: sums over a
#: bell-shaped density converge exponentially, and every node costs a pass over the bank.
_NODES_PER_SE = 3.0
#: Posterior mass that may be left out on each side.
_TAIL = 1e-4
#: Assumed price of a prompt token relative to a written token, if prices are unknown.
INPUT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class MaximumInformation:
    """Fisher information at the current theta, through the index.

    Attributes:
        printed: Whether to take a^2 P (1 - P), as ATLAS eq. 2 prints it for the 3PL, without the
            index. It does not account for guessing, which lowers the information of an item.

    Source: Lord (1980), Applications of Item Response Theory, section 10.2.
    """

    printed: bool = False

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """I_i(theta)."""
        bank, theta = pool.index.bank, state.belief.theta
        return bank.printed_information(theta) if self.printed else bank.information(theta)


@dataclass(frozen=True, slots=True)
class PosteriorWeighted:
    """Fisher information averaged over the posterior: sum_k w_k I_i(theta_k).

    Early in a test theta is uncertain: an item that is steep only there may be uninformative.

    Source: van der Linden (1998), Psychometrika 63, eq. 13.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Posterior mean of the information."""
        nodes, weights = coarse_posterior(state.belief)
        average: FloatArray = weights @ pool.index.bank.information(nodes)
        return average


@dataclass(frozen=True, slots=True)
class MutualInformation:
    """Mutual information of the answer and theta, in nats, by the formula of the response model.

    It is the mean Kullback-Leibler divergence between the posterior after the answer and the one
    before it.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Mutual information for each item."""
        bank = pool.index.bank
        return bank.model.mutual_information(bank.parameters, *coarse_posterior(state.belief))


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCost:
    """Value of an item relative to its cost: value / cost^weight.

    Attributes:
        criterion: Criterion that gives the value.
        costs: Expected cost of each item, above 0, in any common unit, shape (n_items,).
        weight: Exponent of the cost; 0 ignores the cost, 1 gives the value per unit of cost.
    """

    criterion: Criterion
    costs: FloatArray
    weight: float

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Value of each item relative to its cost."""
        return self.criterion.values(pool, state) / self.costs**self.weight


def best_items(criterion: Criterion, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
    """The `count` best admissible items, best first, ties by position; fewer if few remain."""
    if isinstance(criterion, MaximumInformation) and not criterion.printed:
        return pool.index.best(
            state.belief.theta, count=count, asked=state.asked, active=pool.active
        )
    return largest(criterion.values(pool, state), pool.admissible(state), count)


def expected_costs(
    tokens_in: ArrayLike,
    tokens_out: ArrayLike,
    *,
    price_in: float | None = None,
    price_out: float | None = None,
) -> FloatArray:
    """Cost of each item: in written tokens, or in money where both prices are given.

    Args:
        tokens_in: Expected tokens of each prompt, shape (n_items,).
        tokens_out: Expected tokens of each answer, shape (n_items,).
        price_in: Price of a prompt token.
        price_out: Price of a written token.

    Raises:
        InvalidInputError: A cost that is not above 0, or only one of the prices.
    """
    read, written = np.asarray(tokens_in, np.float64), np.asarray(tokens_out, np.float64)
    if (price_in is None) != (price_out is None):
        raise InvalidInputError("Costs in money need the price of both prompt and written tokens.")
    if price_in is None or price_out is None:
        costs = INPUT_SHARE * read + written
    else:
        costs = price_in * read + price_out * written
    if not (np.isfinite(costs) & (costs > 0.0)).all():
        raise InvalidInputError("Expected costs of items must be finite and above 0.")
    return np.asarray(costs, dtype=np.float64)


def coarse_posterior(belief: Belief) -> tuple[FloatArray, FloatArray]:
    """The posterior on few nodes: neighbours are merged at their centre of mass, tails are cut.

    Returns:
        Nodes and weights, each of shape (n_coarse,).
    """
    nodes, weights = belief.nodes, belief.weights
    mass = weights.cumsum()
    first, last = np.searchsorted(mass, (_TAIL, 1.0 - _TAIL))
    nodes, weights = nodes[first : last + 1], weights[first : last + 1]
    if nodes.size > 1:
        mean = float(weights @ nodes) / float(weights.sum())
        sd = float(np.sqrt(weights @ (nodes - mean) ** 2))
        merged = max(int(sd / _NODES_PER_SE / (nodes[1] - nodes[0])), 1)
        starts = np.arange(0, nodes.size, merged)
        coarse = np.add.reduceat(weights, starts)
        nodes, weights = np.add.reduceat(weights * nodes, starts) / coarse, coarse
    return nodes, weights / weights.sum()
