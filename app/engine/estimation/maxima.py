"""Maxima in theta of likelihoods, posteriors and Warm's weighted likelihood, many rows at once.

A row holds one examinee's answers. Each search starts at the best node of a grid and stays between
its neighbours, so that it finds the highest of several modes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from app.engine.bank import FloatArray
from app.engine.estimation.posterior import NormalPrior
from app.engine.models.base import ItemParameters, ResponseModel, Slope

_TOLERANCE = 1e-12  # logits
# A Newton step squares the error: after a step this short, theta is exact to rounding.
_LAST_STEP = 1e-7
# A rise below this is a rounding error: a flat objective has no maximum.
_FLAT = 1e-9
_MAX_STEPS = 80  # enough for bisection alone to narrow a bracket of 1 logit to 1e-24


#: First and second derivative of an objective at one theta per row, shape (n_rows,) each.
SlopeFunction = Callable[[FloatArray], Slope]


class Answers(NamedTuple):
    """Scored answers of some rows to some items.

    Attributes:
        parameters: Parameters of the items, each of shape (n_items,).
        scores: Scores, shape (n_rows, n_items); any number where an item was not answered.
        answered: 1 for answered items and 0 for others, same shape; None if all are answered.
    """

    model: ResponseModel
    parameters: ItemParameters
    scores: FloatArray
    answered: FloatArray | None = None

    def of_rows(self, rows: list[int]) -> "Answers":
        """The answers of some of the rows."""
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
        sums: Log-likelihood at the nodes, shape (1, n_rows, n_nodes). With information and Warm's J
            after it, shape (3, n_rows, n_nodes), the objective is the weighted likelihood, whose
            slope is `weighted_slope`.

    Returns:
        Position of an inner node for each row; None if the objective is as high at an end, so that
        there is no inner mode.
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
    """Maximise by Newton steps in a shrinking bracket; a step that leaves it becomes bisection.

    Args:
        slope: Derivatives of the objective.
        lo: Lower end of each row's bracket, shape (n_rows,).
        start: Points where the objective is higher than at both ends, shape (n_rows,).
        hi: Upper end of each row's bracket, shape (n_rows,).

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
