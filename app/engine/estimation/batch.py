"""Estimates for many examinees at once, in blocks; equal to the estimates answer by answer.

Examinees of similar ability share a grid: a block's likelihoods are two matrix products.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.estimation.estimators import EstimatorName, GridBelief, GridEstimator, Point, SeKind
from app.engine.estimation.maxima import Answers, find_maximum, find_mode
from app.engine.estimation.posterior import FixedGrid, Grid, NormalPrior, Posterior
from app.engine.models.multidimensional import estimate_profile
from app.engine.multidimensional import ProfileBelief
from app.errors import EstimationError

_BLOCK_ROWS = 128
_BLOCK_NODES = 1_500  # times 5,600 items: 67 MB for each table of a block
_MAX_ROUNDS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Beliefs about some rows of a table, all on the same nodes.

    Attributes:
        rows: Positions of the rows in the table, shape (n_rows,).
        beliefs: Belief about each row.
    """

    rows: IntArray
    beliefs: list[GridBelief]


class _Range(NamedTuple):
    """Range and spacing that a grid must have, logits."""

    lo: float
    hi: float
    spacing: float

    @classmethod
    def of(cls, shape: FixedGrid) -> "_Range":
        return cls(shape.lo, shape.hi, shape.spacing)

    def united(self, other: "_Range") -> "_Range":
        return _Range(
            min(self.lo, other.lo), max(self.hi, other.hi), min(self.spacing, other.spacing)
        )

    @property
    def n_nodes(self) -> int:
        return math.ceil((self.hi - self.lo) / self.spacing - 1e-6) + 1


def estimate_many(bank: ItemBank, scores: FloatArray, estimator: GridEstimator) -> Iterator[Block]:
    """Estimate every row of a table.

    Args:
        bank: Items in the order of the columns.
        scores: Shape (n_examinees, n_items), NaN where not answered.
        estimator: Estimator with its prior and grid.

    Yields:
        Blocks that together hold each row once, in no particular order.

    Raises:
        EstimationError: No grid can hold the posterior of a row.
    """
    grid = Posterior.start(estimator.prior, estimator.grid).grid
    todo = [
        (np.arange(first, min(first + _BLOCK_ROWS, len(scores))), grid)
        for first in range(0, len(scores), _BLOCK_ROWS)
    ]
    misfits: dict[int, _Range] = {}
    for _ in range(_MAX_ROUNDS):
        misfits = {}
        for rows, grid in todo:
            of_rows = bank.model.row_log_likelihood(bank.parameters, grid.nodes, scores[rows])
            posteriors = [Posterior.on(grid, of_row) for of_row in of_rows]
            fitting = np.array([posterior.fits() for posterior in posteriors])
            for i in np.flatnonzero(~fitting):
                misfits[int(rows[i])] = _Range.of(posteriors[i].better_shape())
            if fitting.any():
                settled = [posteriors[i] for i in np.flatnonzero(fitting)]
                chosen = rows[fitting]
                yield Block(chosen, _beliefs(bank, scores[chosen], estimator, settled))
        if not misfits:
            return
        todo = list(_shared_grids(misfits, estimator.prior))
    raise EstimationError(
        f"The ability of row {min(misfits)} cannot be estimated: no grid of abilities covers "
        "its posterior."
    )


def whole_bank_abilities(bank: ItemBank, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Abilities by the examinees' whole records: weighted likelihood estimates, without a prior.

    In a bank of several abilities it is the main one, estimated by MAP as in tests.

    Args:
        bank: Items in the order of the columns.
        scores: Shape (n_examinees, n_items), NaN where not answered.

    Returns:
        Thetas and their standard errors (logits), shape (n_examinees,) each.
    """
    thetas, errors = np.empty(len(scores)), np.empty(len(scores))
    if bank.abilities is not None:
        known = bank.abilities
        for i, row in enumerate(scores):
            answered = np.flatnonzero(~np.isnan(row))
            profile = estimate_profile(known.items, known.population, answered, row[answered])
            belief = ProfileBelief(profile, known.composite)
            thetas[i], errors[i] = belief.theta, belief.se
        return thetas, errors
    for block in estimate_many(bank, scores, GridEstimator(method=EstimatorName.WLE)):
        thetas[block.rows] = [belief.theta for belief in block.beliefs]
        errors[block.rows] = [belief.se for belief in block.beliefs]
    return thetas, errors


def _shared_grids(
    misfits: dict[int, _Range], prior: NormalPrior
) -> Iterator[tuple[IntArray, Grid]]:
    """Grids for neighbours on the theta scale: union of their ranges at the finest spacing."""
    members: list[int] = []
    shared = _Range(math.inf, -math.inf, math.inf)
    for row in sorted(misfits, key=lambda row: misfits[row].lo + misfits[row].hi):
        united = shared.united(misfits[row])
        if members and (len(members) == _BLOCK_ROWS or united.n_nodes > _BLOCK_NODES):
            yield np.array(members), _lay(shared, prior)
            members, united = [], misfits[row]
        members.append(row)
        shared = united
    yield np.array(members), _lay(shared, prior)


def _lay(shared: _Range, prior: NormalPrior) -> Grid:
    shape = FixedGrid(n_nodes=shared.n_nodes, lo=shared.lo, hi=shared.hi)
    return Grid.lay(prior, shape, fixed=False)


def _beliefs(
    bank: ItemBank, scores: FloatArray, estimator: GridEstimator, posteriors: list[Posterior]
) -> list[GridBelief]:
    answered = ~np.isnan(scores)
    answers = Answers(
        bank.model, bank.parameters, np.where(answered, scores, 0.0), answered.astype(np.float64)
    )
    points = _points(bank, scores, answers, estimator, posteriors)
    information = np.zeros(len(points))
    if any(estimator.se_kind(point.method) is not SeKind.POSTERIOR for point in points):
        information = answers.information(np.array([point.theta for point in points]))
    return [
        estimator.conclude(point, float(of_row), posterior)
        for point, of_row, posterior in zip(points, information, posteriors, strict=True)
    ]


def _points(
    bank: ItemBank,
    scores: FloatArray,
    answers: Answers,
    estimator: GridEstimator,
    posteriors: list[Posterior],
) -> list[Point]:
    if estimator.method is EstimatorName.EAP:
        return [Point(each.mean, EstimatorName.EAP, each.is_cut_off) for each in posteriors]
    points: dict[int, Point] = {}
    modes: list[int | None] = [None] * len(posteriors)
    if estimator.method is not EstimatorName.MAP:
        search = estimator.search_nodes()
        sums = _search_sums(bank, scores, answers, estimator, search)
        modes = find_mode(search, sums)
        with_mode = [i for i, mode in enumerate(modes) if mode is not None]
        starts = np.array([mode for mode in modes if mode is not None], dtype=np.intp)
        points |= _polished(answers, estimator, estimator.method, search, with_mode, starts)
    fallback = [i for i, mode in enumerate(modes) if mode is None]
    nodes = posteriors[0].grid.nodes
    inner = [i for i in fallback if not posteriors[i].is_cut_off]
    starts = np.array([posteriors[i].mode_node for i in inner], dtype=np.intp)
    points |= _polished(answers, estimator, EstimatorName.MAP, nodes, inner, starts)
    for i in fallback:
        if i not in points:
            points[i] = Point(
                float(nodes[posteriors[i].mode_node]), EstimatorName.MAP, at_bound=True
            )
    return [points[i] for i in range(len(posteriors))]


def _search_sums(
    bank: ItemBank,
    scores: FloatArray,
    answers: Answers,
    estimator: GridEstimator,
    nodes: FloatArray,
) -> FloatArray:
    sums = [bank.model.row_log_likelihood(bank.parameters, nodes, scores)]
    if estimator.method is EstimatorName.WLE and answers.answered is not None:
        terms = bank.model.warm_terms(bank.parameters.column(), nodes)
        sums += [answers.answered @ terms.information, answers.answered @ terms.j]
    return np.stack(sums)


def _polished(
    answers: Answers,
    estimator: GridEstimator,
    method: EstimatorName,
    nodes: FloatArray,
    rows: list[int],
    starts: IntArray,
) -> dict[int, Point]:
    if not rows:
        return {}
    theta = find_maximum(
        estimator.slope(method, answers.of_rows(rows)),
        nodes[starts - 1],
        nodes[starts],
        nodes[starts + 1],
    )
    at_bound = method is not estimator.method
    return {row: Point(float(t), method, at_bound) for row, t in zip(rows, theta, strict=True)}
