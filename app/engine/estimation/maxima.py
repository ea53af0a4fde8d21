"""Maxima in theta of likelihoods, posteriors and Warm's weighted likelihood, many rows at once.

A row is one examinee's answers. Each search knows the best node of a grid and stays between its
neighbours, so that a likelihood with several modes yields the highest one.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from app.engine.bank import FloatArray
from app.engine.estimation.posterior import NormalPrior
from app.engine.models.base import ItemParameters, ResponseModel

_TOLERANCE = 1e-12  # logits
# A Newton step squares the distance: after one this short, theta is exact to rounding.
_LAST_STEP = 1e-7
# A rise below this is rounding: a flat objective has no maximum.
_FLAT = 1e-9
_MAX_STEPS = 80  # bisection alone narrows a bracket of 1 logit to 1e-24 in that many


class Slope(NamedTuple):
    """First and second derivative of an objective at one theta per row, shape (n_rows,)."""

    first: FloatArray
    second: FloatArray


SlopeFunction = Callable[[FloatArray], Slope]


class Answers(NamedTuple):
    """Scored answers of some rows to some items.

    Attributes:
        parameters: Of the items, each shape (n_items,).
        scores: Shape (n_rows, n_items); anything where not answered.
        answered: 1 or 0, same shape; None if all are answered.
    """

    model: ResponseModel
    parameters: ItemParameters
    scores: FloatArray
    answered: FloatArray | None = None

    def of_rows(self, rows: list[int]) -> "Answers":
        """The same for some of the rows."""
        answered = None if self.answered is None else self.answered[rows]
        return self._replace(scores=self.scores[rows], answered=answered)

    def total(self, terms: FloatArray) -> FloatArray:
        """Sum over the answered items, shape (n_rows,)."""
        if self.answered is None:
            total: FloatArray = terms.sum(axis=-1)
            return total
        summed: FloatArray = np.einsum("ij,ij->i", terms, self.answered)
        return summed

    def information(self, theta: FloatArray) -> FloatArray:
        """Fisher information of each row's items at its theta, shape (n_rows,)."""
        return self.total(self.model.information(self.parameters, theta[:, None]))


def likelihood_slope(answers: Answers) -> SlopeFunction:
    """Slope of the log-likelihood."""

    def slope(theta: FloatArray) -> Slope:
        first, second = answers.model.likelihood_slope(
            answers.parameters, theta[:, None], answers.scores
        )
        return Slope(answers.total(first), answers.total(second))

    return slope


def posterior_slope(answers: Answers, prior: NormalPrior) -> SlopeFunction:
    """Slope of the log posterior."""
    likelihood = likelihood_slope(answers)
    precision = prior.sd**-2

    def slope(theta: FloatArray) -> Slope:
        first, second = likelihood(theta)
        return Slope(first - precision * (theta - prior.mean), second - precision)

    return slope


def weighted_slope(answers: Answers) -> SlopeFunction:
    """Warm's estimating function l' + J / (2 I). Source: Warm (1989), eq. 9."""
    likelihood = likelihood_slope(answers)

    def slope(theta: FloatArray) -> Slope:
        first, second = likelihood(theta)
        terms = answers.model.warm_terms(answers.parameters, theta[:, None])
        information, information_slope, j, j_slope = (answers.total(term) for term in terms)
        information = np.maximum(information, 1e-300)
        ratio = j / information
        ratio_slope = (j_slope - ratio * information_slope) / information
        return Slope(first + ratio / 2, second + ratio_slope / 2)

    return slope


def find_mode(nodes: FloatArray, sums: FloatArray) -> list[int | None]:
    """Each row's highest mode among the nodes.

    Args:
        nodes: Equally spaced, shape (n_nodes,).
        sums: Log-likelihood at the nodes, shape (1, n_rows, n_nodes); with information and Warm's J
            after it, shape (3, n_rows, n_nodes), the weighted likelihood whose slope is
            `weighted_slope` is searched instead.

    Returns:
        Positions of nodes that have a neighbour on both sides; None where the objective is as high
        at an end, so that no mode exists in between.
    """
    objective = sums[0]
    if len(sums) == 3:
        ratio = sums[2] / np.maximum(2 * sums[1], 1e-300)
        steps = (ratio[:, 1:] + ratio[:, :-1]) / 2 * (nodes[1] - nodes[0])
        objective = objective.copy()
        objective[:, 1:] += steps.cumsum(axis=1)
    best = objective.argmax(axis=1)
    highest = objective[np.arange(len(best)), best]
    at_end = np.maximum(objective[:, 0], objective[:, -1]) >= highest - _FLAT
    return [None if end else int(k) for k, end in zip(best, at_end, strict=True)]


def find_maximum(
    slope: SlopeFunction, lo: FloatArray, start: FloatArray, hi: FloatArray
) -> FloatArray:
    """Newton steps kept inside a shrinking bracket; bisection where they leave it.

    Args:
        slope: Derivatives of the objective.
        lo: Lower ends, one per row, shape (n_rows,).
        start: Where the objective is higher than at both ends.
        hi: Upper ends.

    Returns:
        The theta of each row's maximum in its bracket.
    """
    lo, theta, hi = lo.copy(), start.copy(), hi.copy()
    for _ in range(_MAX_STEPS):
        first, second = slope(theta)
        rising = first > 0
        np.copyto(lo, theta, where=rising)
        np.copyto(hi, theta, where=~rising)
        newton = theta - first / np.where(second < 0, second, np.inf)
        usable = (second < 0) & (newton >= lo) & (newton <= hi)
        following = np.where(usable, newton, (lo + hi) / 2)
        moved = np.abs(following - theta)
        theta = following
        if (moved <= np.where(usable, _LAST_STEP, _TOLERANCE)).all():
            break
    return theta
