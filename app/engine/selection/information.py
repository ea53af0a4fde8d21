"""Criteria: what asking an item is worth.

| symbol | meaning |
|---|---|
| I_i(theta) | Fisher information of item i, 1/logit^2 |
| w_k | posterior mass at node theta_k |
| P_i(theta) | expected score |
"""

from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, ItemIndex
from app.engine.selection.base import Criterion, Pool
from app.engine.state import Belief, CatState

#: Nodes per posterior standard deviation that weighted criteria use: sums over a bell-shaped
#: density converge exponentially, and every node costs a pass over the bank.
_NODES_PER_SE = 3.0
#: Posterior mass that may be left out on each side.
_TAIL = 1e-4


@dataclass(frozen=True, slots=True)
class MaximumInformation:
    """Fisher information at the present theta, through the index.

    Source: Lord (1980), Applications of Item Response Theory, section 10.2.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """I_i(theta)."""
        return pool.index.bank.information(state.belief.theta)

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.index.best(
            state.belief.theta, count=count, asked=state.asked, active=pool.active
        )


@dataclass(frozen=True, slots=True)
class PrintedInformation:
    """a^2 P (1 - P) at the present theta, as ATLAS eq. 2 prints it for the 3PL.

    Guessing takes information away; this form keeps it.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """a_i^2 P_i(theta) (1 - P_i(theta))."""
        return pool.index.bank.printed_information(state.belief.theta)

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.best(self.values(pool, state), state, count)


@dataclass(frozen=True, slots=True)
class PosteriorWeighted:
    """Fisher information averaged over the posterior: sum_k w_k I_i(theta_k).

    Early in a test theta is a guess, and an item that is steep exactly there may tell nothing.

    Source: van der Linden (1998), Psychometrika 63, eq. 13.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Posterior mean of the information."""
        nodes, weights = coarse_posterior(state.belief)
        average: FloatArray = weights @ pool.index.bank.information(nodes)
        return average

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.best(self.values(pool, state), state, count)


@dataclass(frozen=True, slots=True)
class MutualInformation:
    """Expected gain in knowledge of theta, in nats, by the formula of the response model.

    It is the mean Kullback-Leibler divergence between the posterior after the answer and the one
    before it.
    """

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Mutual information of answer and theta."""
        bank = pool.index.bank
        return bank.model.mutual_information(bank.parameters, *coarse_posterior(state.belief))

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.best(self.values(pool, state), state, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCost:
    """Worth of an item for what it costs: value / cost^weight.

    Attributes:
        criterion: Gives the value.
        costs: Expected cost of each item, in any one unit, above 0, shape (n_items,).
        weight: 0 ignores cost, 1 takes the value per unit of cost.
    """

    criterion: Criterion
    costs: FloatArray
    weight: float

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Value per cost."""
        return self.criterion.values(pool, state) / self.costs**self.weight

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.best(self.values(pool, state), state, count)


def coarse_posterior(belief: Belief) -> tuple[FloatArray, FloatArray]:
    """The posterior on few nodes: neighbours merged into their centre of mass, tails left out.

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
