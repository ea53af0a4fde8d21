"""E-step: posteriors of the examinees and expected counts, as matrix products.

Notation: L[i, k] = log P(answers of i | node k) + log weight k; posterior W = softmax over k.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from app.calibration.logistic.curves import probabilities
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray, ItemParameters
from app.errors import InvalidInputError

DEFAULT_NODES = 61
DEFAULT_BOUND = 6.0
#: Distance of two nodes in standard errors: the trapezoid rule's error, about
#: exp(-2 pi^2 / width^2), is then below 1e-5.
_NODE_WIDTH = 1.3
_ENOUGH = 1.2  # a grid this much too coarse is not worth a second run
_POPULATION_CYCLES, _POPULATION_TOLERANCE = 500, 1e-5  # logits


@dataclass(frozen=True, eq=False, slots=True)
class LatentDensity:
    """Distribution of ability in the calibration population, on nodes.

    Attributes:
        nodes: Equally spaced thetas, shape (n_nodes,).
        weights: Probabilities of the nodes, which sum to 1, shape (n_nodes,).
    """

    nodes: FloatArray
    weights: FloatArray

    @classmethod
    def normal(
        cls,
        *,
        mean: float = 0.0,
        sd: float = 1.0,
        n_nodes: int = DEFAULT_NODES,
        bound: float = DEFAULT_BOUND,
    ) -> "LatentDensity":
        """Normal density on `n_nodes` nodes over [-bound, bound], weights normalised.

        Raises:
            InvalidInputError: Fewer than 5 nodes, or a bound or sd that is not positive.
        """
        if n_nodes < 5 or not bound > 0 or not sd > 0:
            raise InvalidInputError(
                "A latent density needs at least 5 nodes, a bound > 0 and an sd > 0, got "
                f"{n_nodes} nodes, bound {bound}, sd {sd}."
            )
        nodes = np.linspace(-bound, bound, n_nodes)
        return cls(nodes, np.ones(n_nodes)).reshaped(mean=mean, sd=sd)

    def reshaped(self, *, mean: float, sd: float) -> "LatentDensity":
        """Normal weights on the same nodes."""
        log_weights = -0.5 * ((self.nodes - mean) / sd) ** 2
        weights = np.exp(log_weights - log_weights.max())
        return LatentDensity(self.nodes, weights / weights.sum())

    def reweighted(self, mass: FloatArray) -> "LatentDensity":
        """Weights in proportion to `mass`, with a floor far below one examinee."""
        weights = np.maximum(mass, 1e-9 * mass.sum())
        return LatentDensity(self.nodes, weights / weights.sum())

    def thinned(self) -> "LatentDensity":
        """Keep equally spaced nodes, at most `DEFAULT_NODES` of them."""
        step = -(-len(self.nodes) // DEFAULT_NODES)
        weights = self.weights[::step]
        return LatentDensity(self.nodes[::step], weights / weights.sum())

    def refined(self, information: FloatArray, most: int) -> "LatentDensity | None":
        """Normal density on as many nodes as posteriors need; None if these are nearly enough.

        Args:
            information: Information of all items at the nodes, shape (n_nodes,).
            most: Largest number of nodes.
        """
        bound = float(self.nodes[-1])
        se = 1 / np.sqrt(1 + self.weights @ information)
        needed = min(int(np.ceil(2 * bound / (_NODE_WIDTH * se))) + 1, most)
        if needed <= _ENOUGH * len(self.nodes):
            return None
        return LatentDensity.normal(n_nodes=needed, bound=bound)

    @property
    def mean(self) -> float:
        """Mean ability."""
        return float(self.weights @ self.nodes)

    @property
    def sd(self) -> float:
        """Standard deviation of ability."""
        return float(np.sqrt(self.weights @ (self.nodes - self.mean) ** 2))


@dataclass(frozen=True, eq=False, slots=True)
class Expectation:
    """Expected counts at the nodes, given the answers.

    Attributes:
        log_likelihood: Marginal log-likelihood of all answers.
        right: Expected number of right answers, shape (n_items, n_nodes).
        seen: Expected number of answers, shape (n_items, n_nodes); (1, n_nodes) if none is missing.
        mass: Expected number of examinees, shape (n_nodes,).
    """

    log_likelihood: float
    right: FloatArray
    seen: FloatArray
    mass: FloatArray


def expect(matrix: ScoreMatrix, items: ItemParameters, density: LatentDensity) -> Expectation:
    """Expected counts and the marginal log-likelihood at given item parameters.

    Source: Bock & Aitkin (1981), Psychometrika 46, eq. 14-16.
    """
    n_nodes = len(density.nodes)
    right = np.zeros((matrix.n_items, n_nodes))
    missing = np.zeros((matrix.n_items, n_nodes))
    mass = np.zeros(n_nodes)
    total = 0.0
    any_missing = False
    for block in posteriors(matrix, items, density):
        right += block.right.T @ block.weights
        mass_here = block.weights.sum(axis=0)
        mass += mass_here
        total += float(block.log_likelihood.sum())
        if block.seen is not None:
            any_missing = True
            missing += mass_here - block.seen.T @ block.weights
    # A difference of sums may fall below 0, or below `right`, by rounding.
    seen = np.maximum(mass - missing, right) if any_missing else mass[None, :]
    return Expectation(total, right, seen, mass)


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorBlock:
    """Answers of a block of examinees, and the posteriors of their abilities."""

    right: FloatArray
    """1 for a right answer, shape (n_rows, n_items)."""
    seen: FloatArray | None
    """1 for an answer, shape (n_rows, n_items); None if every cell has one."""
    weights: FloatArray
    """Posterior over the nodes, shape (n_rows, n_nodes)."""
    log_likelihood: FloatArray
    """Marginal log-likelihood of each row."""


def posteriors(
    matrix: ScoreMatrix, items: ItemParameters, density: LatentDensity
) -> Iterator[PosteriorBlock]:
    """Posterior of each examinee over the nodes, in blocks of rows."""
    p, q = probabilities(items, density.nodes)
    log_q = np.log(q)
    log_odds = np.log(p) - log_q
    with np.errstate(divide="ignore"):
        log_prior = np.log(density.weights)
    all_wrong = log_q.sum(axis=0)
    for _, right, seen in matrix.blocks():
        joint = right @ log_odds
        joint += log_prior
        joint += all_wrong if seen is None else seen @ log_q
        top = joint.max(axis=1, keepdims=True)
        np.exp(joint - top, out=joint)
        sums = joint.sum(axis=1, keepdims=True)
        joint /= sums
        yield PosteriorBlock(right, seen, joint, (top + np.log(sums))[:, 0])


def population(
    matrix: ScoreMatrix,
    items: ItemParameters,
    density: LatentDensity,
    tolerance: float = _POPULATION_TOLERANCE,
) -> tuple[LatentDensity, FloatArray]:
    """Normal density of the population that gave these answers, at fixed item parameters.

    EM estimates mean and sd alone, until neither moves by more than `tolerance` logits. Unlike the
    sd of point estimates of theta, this sd is not biased by their unreliability.

    Returns:
        The density, and the examinees' posteriors under it, shape (n_examinees, n_nodes).

    Source: Mislevy (1984), Psychometrika 49.
    """
    flat = LatentDensity(density.nodes, np.full(len(density.nodes), 1 / len(density.nodes)))
    likelihood = np.concatenate([block.weights for block in posteriors(matrix, items, flat)])
    for _ in range(_POPULATION_CYCLES):
        moments = density.reweighted(_posterior(likelihood, density).sum(axis=0))
        mean, sd = moments.mean, moments.sd
        change = max(abs(mean - density.mean), abs(sd - density.sd))
        density = density.reshaped(mean=mean, sd=sd)
        if change < tolerance:
            break
    return density, _posterior(likelihood, density)


def _posterior(likelihood: FloatArray, density: LatentDensity) -> FloatArray:
    weights: FloatArray = likelihood * density.weights
    weights /= weights.sum(axis=1, keepdims=True)
    return weights
