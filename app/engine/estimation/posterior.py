"""Posterior densities of theta on a grid of nodes.

A fixed grid reproduces published procedures. Otherwise the grid follows the posterior. A finer
grid is laid when there are fewer than `NODES_PER_SE_LEAST` nodes per standard deviation of the
posterior. The grid is moved or widened when mass reaches an end. Sums are taken in the order of
the answers, so that a replay in that order is identical to the bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.errors import EstimationError, InvalidInputError

NODES_PER_SE_LEAST = 10.0
_NODES_PER_SE_LAID = 15.0
# Depths below the highest log density. A new grid covers all nodes above the first depth. It is
# laid anew once an end rises above the second depth. The difference leaves room to move, and the
# mass outside a grid is below 1e-9.
_LAID_TO = 30.0
_MOVED_AT = 20.0
_PRIOR_REACH = 8.0  # standard deviations; a normal density falls there to exp(-32) of its mode
_MAX_NODES = 20_001
_MAX_LAYINGS = 60
_NEWTON_STEPS = 4
_FARTHEST = 50.0  # largest absolute ability, logits
_COARSEST = 0.5  # largest distance between two nodes, logits
_WIDEST_PRIOR = 1e6


class Rule(StrEnum):
    """Quadrature rule of an equally spaced grid; it sets the weight of the end nodes."""

    TRAPEZOID = "trapezoid"
    RECTANGLE = "rectangle"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedGrid:
    """Equally spaced nodes on a range that never changes.

    Attributes:
        n_nodes: Number of nodes, at least 2.
        lo: First node, logits.
        hi: Last node, logits.
        rule: Quadrature rule; the trapezoid rule halves the weight of the end nodes.
    """

    n_nodes: int
    lo: float
    hi: float
    rule: Rule = Rule.TRAPEZOID

    def __post_init__(self) -> None:
        if not 2 <= self.n_nodes <= _MAX_NODES:
            raise InvalidInputError(
                f"A grid needs between 2 and {_MAX_NODES} nodes, got {self.n_nodes}."
            )
        if not (math.isfinite(self.lo) and math.isfinite(self.hi) and self.lo < self.hi):
            raise InvalidInputError(
                f"A grid's range needs lo < hi, both finite, got [{self.lo}, {self.hi}]."
            )

    @property
    def spacing(self) -> float:
        """Distance between two nodes, logits."""
        return (self.hi - self.lo) / (self.n_nodes - 1)

    def require_useful(self) -> "FixedGrid":
        """This grid, after checking that it can hold the posterior of a test.

        Raises:
            InvalidInputError: It reaches beyond any ability, or it is so coarse that a posterior
                may fall between two nodes, with a standard error next to 0.
        """
        if not -_FARTHEST <= self.lo < self.hi <= _FARTHEST:
            raise InvalidInputError(
                f"A grid's range is expected within [-{_FARTHEST:g}, {_FARTHEST:g}], "
                f"got [{self.lo:g}, {self.hi:g}]."
            )
        if self.spacing > _COARSEST:
            least = math.ceil((self.hi - self.lo) / _COARSEST) + 1
            raise InvalidInputError(
                f"A grid from {self.lo:g} to {self.hi:g} needs at least {least} nodes, "
                f"{_COARSEST:g} apart, got {self.n_nodes}: a posterior between two nodes "
                "would have a standard error next to 0."
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalPrior:
    """Normal prior of theta."""

    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        if not abs(self.mean) <= _WIDEST_PRIOR:
            raise InvalidInputError(
                f"The prior's mean must be finite, at most {_WIDEST_PRIOR:g} either way, got "
                f"{self.mean}."
            )
        if not 0 < self.sd <= _WIDEST_PRIOR:
            raise InvalidInputError(
                "The prior's standard deviation must be above 0 and finite, at most "
                f"{_WIDEST_PRIOR:g}, got {self.sd}."
            )

    def log_density(self, theta: FloatArray) -> FloatArray:
        """Log density up to a constant."""
        log_density: FloatArray = -0.5 * ((theta - self.mean) / self.sd) ** 2
        return log_density


STANDARD_NORMAL = NormalPrior()


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Nodes, with the constants of sums over them.

    Attributes:
        nodes: Equally spaced values of theta, shape (n_nodes,).
        log_prior: Log prior density at the nodes, shape (n_nodes,).
        log_measure: Log of prior density times quadrature weight, shape (n_nodes,).
        moments: 1, x and x^2 of the distance x from `centre`, shape (n_nodes, 3).
        centre: Middle of the range; squared distances from it lose no digits.
        spacing: Distance between two nodes, logits.
        fixed: Whether the grid is never laid anew.
    """

    nodes: FloatArray
    log_prior: FloatArray
    log_measure: FloatArray
    moments: FloatArray
    centre: float
    spacing: float
    fixed: bool

    @classmethod
    def lay(cls, prior: NormalPrior, shape: FixedGrid, *, fixed: bool) -> "Grid":
        """Grid of a given shape under a prior."""
        nodes = np.linspace(shape.lo, shape.hi, shape.n_nodes)
        log_prior = prior.log_density(nodes)
        log_measure = log_prior.copy()
        if shape.rule is Rule.TRAPEZOID:
            log_measure[[0, -1]] -= math.log(2)
        centre = (shape.lo + shape.hi) / 2
        offsets = nodes - centre
        moments = np.stack([np.ones_like(nodes), offsets, offsets * offsets], axis=1)
        return cls(nodes, log_prior, log_measure, moments, centre, shape.spacing, fixed)


Evidence = Callable[[FloatArray], FloatArray]
"""Function from nodes to the log-likelihood of all answers so far."""


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Density of theta after some answers.

    Attributes:
        grid: Grid of the nodes.
        log_likelihood: Log-likelihood of all answers at the nodes, shape (n_nodes,).
        weights: Posterior mass at the nodes, shape (n_nodes,); sums to 1.
        mean: Posterior mean, logits.
        sd: Posterior standard deviation, logits.
    """

    grid: Grid
    log_likelihood: FloatArray
    weights: FloatArray
    mean: float
    sd: float
    _log_ends: tuple[float, float]

    @classmethod
    def start(cls, prior: NormalPrior, shape: FixedGrid | None) -> "Posterior":
        """The prior on its grid."""
        fixed = shape is not None
        if shape is None:
            reach = _PRIOR_REACH * prior.sd
            shape = _shape(prior.mean - reach, prior.mean + reach, min(prior.sd, 1.0))
        grid = Grid.lay(prior, shape, fixed=fixed)
        return cls.on(grid, np.zeros_like(grid.nodes))

    @classmethod
    def on(cls, grid: Grid, log_likelihood: FloatArray) -> "Posterior":
        """Normalise prior times likelihood on a grid."""
        log_mass = log_likelihood + grid.log_measure
        log_mass -= log_mass[log_mass.argmax()]
        weights = np.exp(log_mass)
        total, first, second = (weights @ grid.moments).tolist()
        weights /= total
        offset = first / total
        mean = grid.centre + offset
        sd = math.sqrt(max(second / total - offset * offset, 0.0))
        ends = (float(log_mass[0]), float(log_mass[-1]))
        return cls(grid, log_likelihood, weights, mean, sd, ends)

    @property
    def mode_node(self) -> int:
        """Position of the node with the highest density."""
        return int((self.log_likelihood + self.grid.log_prior).argmax())

    @property
    def is_cut_off(self) -> bool:
        """Whether the highest density lies at an end of a fixed grid."""
        return self.grid.fixed and self.mode_node in (0, len(self.grid.nodes) - 1)

    def quantile(self, probability: float) -> float:
        """Quantile of theta, interpolated between nodes.

        The distribution function is a cubic between two nodes: it has the cumulative masses as
        values and the densities as slopes there, so that the quantile hardly depends on the grid.
        """
        weights, nodes = self.weights, self.grid.nodes
        below = weights.cumsum() - 0.5 * weights  # the trapezoid rule
        exact = below.copy()
        exact[1:-1] -= (weights[2:] - weights[:-2]) / 24  # the leading error term of that rule
        right = min(max(int(exact.searchsorted(probability)), 1), len(nodes) - 1)
        lo, hi = float(exact[right - 1]), float(exact[right])
        if self.grid.fixed or not lo <= probability <= hi or lo == hi:
            return float(np.interp(probability, below, nodes))
        slope_lo, slope_hi = float(weights[right - 1]), float(weights[right])
        # lo + slope_lo t + square t^2 + cube t^3 = probability, t from 0 to 1; density > 0.
        square = 3 * (hi - lo) - 2 * slope_lo - slope_hi
        cube = slope_lo + slope_hi - 2 * (hi - lo)
        t = (probability - lo) / (hi - lo)
        for _ in range(_NEWTON_STEPS):
            excess = lo + t * (slope_lo + t * (square + t * cube)) - probability
            slope = slope_lo + t * (2 * square + t * 3 * cube)
            t = min(max(t - excess / slope, 0.0), 1.0) if slope > 0 else t
        return float(nodes[right - 1] + t * (nodes[right] - nodes[right - 1]))

    def fits(self) -> bool:
        """Whether the grid is fine enough and wide enough; a fixed grid always fits."""
        if self.grid.fixed:
            return True
        lowest, highest = self._log_ends
        return (
            self.sd >= NODES_PER_SE_LEAST * self.grid.spacing
            and lowest < -_MOVED_AT
            and highest < -_MOVED_AT
        )

    def on_fitting_grid(self, evidence: Evidence, prior: NormalPrior) -> "Posterior":
        """The same posterior, on another grid if its own does not fit.

        Args:
            evidence: Log-likelihood of the same answers at the nodes of another grid.
            prior: Prior of theta, the same for every grid.
        """
        posterior = self
        for _ in range(1 + _MAX_LAYINGS):
            if posterior.fits():
                return posterior
            grid = Grid.lay(prior, posterior.better_shape(), fixed=False)
            posterior = Posterior.on(grid, evidence(grid.nodes))
        raise EstimationError(
            "No ability can be estimated from these answers: no grid covers their posterior "
            f"(mean {posterior.mean:.3g}, standard deviation {posterior.sd:.3g})."
        )

    def better_shape(self) -> FixedGrid:
        """The range that carries mass, widened by half beyond each end that mass reaches."""
        nodes, spacing = self.grid.nodes, self.grid.spacing
        log_mass = self.log_likelihood + self.grid.log_measure
        carrying = np.flatnonzero(log_mass > log_mass.max() - _LAID_TO)
        lo, hi = float(nodes[carrying[0]]) - spacing, float(nodes[carrying[-1]]) + spacing
        room = (hi - lo) / 2
        lowest, highest = self._log_ends
        if lowest >= -_MOVED_AT:
            lo -= room
        if highest >= -_MOVED_AT:
            hi += room
        # The sd of a posterior that falls between two nodes is unknown: refine step by step.
        return _shape(lo, hi, max(self.sd, spacing))


def _shape(lo: float, hi: float, se: float) -> FixedGrid:
    n_nodes = math.ceil((hi - lo) * _NODES_PER_SE_LAID / se) + 1
    return FixedGrid(n_nodes=min(max(n_nodes, 2), _MAX_NODES), lo=lo, hi=hi)


def evidence_of(
    bank: ItemBank, items: IntArray, scores: FloatArray, nodes: FloatArray
) -> FloatArray:
    """Log-likelihood of a list of answers at each node, summed in their order."""
    parameters = bank.parameters.take(items).column()
    terms = bank.model.log_likelihood(parameters, nodes, scores[:, None])
    total: FloatArray = terms.sum(axis=0)
    return total
