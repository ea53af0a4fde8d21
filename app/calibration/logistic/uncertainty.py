"""Standard errors of item parameters.

Notation: S_j(x, k) is the derivative of log P(x | node k) in the coordinates of item j, W[i, k] the
posterior of examinee i, s_ij = sum_k W[i, k] S_j(x_ij, k) the marginal score (Fisher's identity).

`observed` inverts one information matrix of all items. The block of an item is the cross product
sum_i s_ij s_ij'. The block of items j and l is the observed information of Louis, which has no
complete-data part there: -sum_i Cov(S_j, S_l | answers of i). It is smooth in the answers, whereas
cross products would add sampling noise to all n_items^2 blocks. The prior adds its precision.

`scale-corrected` is for banks too large for the full matrix. It also serves answers that fit the
model so badly that the two kinds of blocks, which agree only under the model, give no positive
definite matrix. It inverts each item's own block, as though thetas were known, and adds the error
of the scale, which all items share. Fixing N(0, 1) makes the mean of n sampled thetas an error
N(0, 1/n) of location, and their log sd an error N(0, 1/2n) of all log slopes. On long tests, its
main use, no other error is left out.

Source: Louis (1982), JRSS B 44, eq. 3.2'; Bock & Lieberman (1970), Psychometrika 35, for cross
products; Paek & Cai (2014), Educational and Psychological Measurement 74, for their coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from app.calibration.logistic.curves import (
    CEILING,
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    SLOPE,
    Curves,
    Family,
    bounds,
    slopes_of_curves,
)
from app.calibration.logistic.expectation import LatentDensity, PosteriorBlock, posteriors
from app.calibration.logistic.maximization import Problem
from app.calibration.logistic.scale_linking import Linking
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import BoolArray, FloatArray, IntArray

ErrorMethod = Literal["observed", "scale-corrected"]

MAX_FULL_COORDINATES = 600
_NO_ONE = 1e-8  # a node with fewer expected examinees is skipped: it adds nothing
_LEAST_INFORMATION = 1e-12  # floor of the diagonal: a standard error of a million
_ROUNDING = 1e-6  # rounding error allowed in eigenvalues, relative to the diagonal
_LEAST_EIGENVALUE = 1e-8  # floor of eigenvalues, after scaling by the diagonal


@dataclass(frozen=True, eq=False, slots=True)
class ParameterErrors:
    """Standard errors of a calibrated bank; NaN where a parameter is not estimated.

    A parameter that ended at its bound has no standard error either: the likelihood is flat there.

    Attributes:
        method: Method of the covariance, as the module's docstring describes it.
        curves: The items' parameters.
        covariance: Covariance of each item's coordinates, shape (n_items, 4, 4).
        estimated: Which coordinates are estimated and inside their bounds, shape (n_items, 4).
    """

    method: ErrorMethod
    curves: Curves
    covariance: FloatArray
    estimated: BoolArray

    @property
    def a(self) -> FloatArray:
        """Standard errors of the discriminations."""
        se = self._coordinate(SLOPE)
        return se * self.curves.a if self.curves.log_slope else se

    @property
    def intercept(self) -> FloatArray:
        """Standard errors of the intercepts, logits."""
        return self._coordinate(INTERCEPT)

    @property
    def b(self) -> FloatArray:
        """Standard errors of the difficulties, logits, by the delta method."""
        a = self.curves.a
        b = -self.curves.x[:, INTERCEPT] / a
        direction = np.stack([-b if self.curves.log_slope else -b / a, -1 / a], axis=1)
        block = self.covariance[:, : INTERCEPT + 1, : INTERCEPT + 1]
        variance = np.einsum("ja,jab,jb->j", direction, block, direction)
        known = self.estimated[:, SLOPE] & self.estimated[:, INTERCEPT]
        return np.where(known, np.sqrt(np.maximum(variance, 0.0)), np.nan)

    @property
    def c(self) -> FloatArray:
        """Standard errors of the lower asymptotes."""
        c = expit(self.curves.x[:, GUESSING])
        se: FloatArray = self._coordinate(GUESSING) * c * (1 - c)
        return se

    @property
    def d(self) -> FloatArray:
        """Standard errors of the upper asymptotes, by the delta method."""
        c, u = expit(self.curves.x[:, GUESSING]), expit(self.curves.x[:, CEILING])
        direction = np.stack([(1 - u) * c * (1 - c), (1 - c) * u * (1 - u)], axis=1)
        block = self.covariance[:, GUESSING:, GUESSING:]
        variance = np.einsum("ja,jab,jb->j", direction, block, direction)
        return np.where(self.estimated[:, CEILING], np.sqrt(np.maximum(variance, 0.0)), np.nan)

    def moved(self, linking: Linking) -> "ParameterErrors":
        """Convert to the linking's target scale; the linking's own error is not added."""
        curves = self.curves
        a = curves.a
        change = np.broadcast_to(np.eye(N_COORDINATES), self.covariance.shape).copy()
        if not curves.log_slope:
            change[:, SLOPE, SLOPE] = 1 / linking.slope
        by_slope = a if curves.log_slope else np.ones_like(a)
        change[:, INTERCEPT, SLOPE] = -by_slope * linking.intercept / linking.slope
        x = curves.x.copy()
        x[:, SLOPE] = x[:, SLOPE] - np.log(linking.slope) if curves.log_slope else a / linking.slope
        x[:, INTERCEPT] -= a / linking.slope * linking.intercept
        return ParameterErrors(
            self.method,
            Curves(x, curves.log_slope),
            change @ self.covariance @ change.transpose(0, 2, 1),
            self.estimated,
        )

    @classmethod
    def joined(
        cls, places: Sequence[IntArray], errors: Sequence["ParameterErrors"]
    ) -> "ParameterErrors":
        """Join the errors of several sets of items; `places` are their positions in the whole."""
        order = np.argsort(np.concatenate(places))
        return cls(
            errors[0].method,
            Curves(
                np.concatenate([part.curves.x for part in errors])[order],
                errors[0].curves.log_slope,
            ),
            np.concatenate([part.covariance for part in errors])[order],
            np.concatenate([part.estimated for part in errors])[order],
        )

    def _coordinate(self, column: int) -> FloatArray:
        variance = np.maximum(self.covariance[:, column, column], 0.0)
        return np.where(self.estimated[:, column], np.sqrt(variance), np.nan)


def parameter_errors(
    matrix: ScoreMatrix, problem: Problem, curves: Curves, density: LatentDensity
) -> ParameterErrors:
    """Standard errors at the maximum.

    The method is `observed` up to `MAX_FULL_COORDINATES` coordinates, unless items have priors of
    their own or the information has a negative eigenvalue; then it is `scale-corrected`.
    """
    estimated = _estimated(problem, curves)
    used = np.array(sorted({SLOPE, *problem.family.free}))
    block = np.ix_(np.arange(matrix.n_items), used, used)
    p, q, derivatives = slopes_of_curves(curves, density.nodes, used.tolist())
    pieces = _Pieces(curves, derivatives / p[:, None, :], -derivatives / q[:, None, :])
    full = 0 < estimated.sum() <= MAX_FULL_COORDINATES  # 0 where all items are anchors
    # Items with priors of their own have few answers, and any two share hardly any examinees.
    full = full and not problem.priors.by_item
    within, between = _information(matrix, pieces, density, with_pairs=full)
    within += problem.priors.terms(curves).precision[block]
    covariance = np.zeros((matrix.n_items, N_COORDINATES, N_COORDINATES))
    whole = _invert_full(problem, within, between, estimated[:, used]) if full else None
    if whole is not None:
        covariance[block] = whole
    else:
        covariance[block] = _invert_blocks(within, estimated[:, used])
        if not problem.fixed:
            covariance += _scale_error(curves, matrix.n_examinees, estimated)
    method: ErrorMethod = "scale-corrected" if whole is None else "observed"
    return ParameterErrors(method, curves, covariance, estimated)


class _Pieces(NamedTuple):
    """Derivatives of log P and log Q at the nodes, shape (n_items, n_used, n_nodes)."""

    items: Curves
    right: FloatArray
    wrong: FloatArray


def _estimated(problem: Problem, curves: Curves) -> BoolArray:
    low, high = bounds(log_slope=problem.log_slope)
    free = np.zeros_like(curves.x, dtype=bool)
    free[:, problem.family.free] = True
    free[:, SLOPE] = True
    free[np.array(problem.fixed, dtype=np.intp)] = False
    inside: BoolArray = free & (curves.x > low) & (curves.x < high)
    return inside


def _information(
    matrix: ScoreMatrix, pieces: _Pieces, density: LatentDensity, *, with_pairs: bool
) -> tuple[FloatArray, FloatArray]:
    """Cross products within items and, `with_pairs`, -sum_i Cov(S_j, S_l) between items."""
    n_items, n_coordinates, n_nodes = pieces.right.shape
    within = np.zeros((n_items, n_coordinates, n_coordinates))
    size = n_items * n_coordinates if with_pairs else 0
    between = np.zeros((size, size))
    right_by_node = pieces.right.reshape(-1, n_nodes).T
    wrong_by_node = pieces.wrong.reshape(-1, n_nodes).T
    for block in posteriors(matrix, pieces.items.natural(), density):
        shape = (len(block.weights), n_items, n_coordinates)
        right = block.right[:, :, None]
        seen = 1.0 if block.seen is None else block.seen[:, :, None]
        scores = right * (block.weights @ right_by_node).reshape(shape)
        scores += (seen - right) * (block.weights @ wrong_by_node).reshape(shape)
        for a in range(n_coordinates):
            for b in range(a + 1):
                within[:, a, b] += np.einsum("ij,ij->j", scores[:, :, a], scores[:, :, b])
        if with_pairs:
            flat = scores.reshape(len(scores), -1)
            between += flat.T @ flat
            between -= _second_moments(block, pieces)
    lower = np.tril_indices(n_coordinates, -1)
    within[:, lower[1], lower[0]] = within[:, lower[0], lower[1]]
    return within, between


def _second_moments(block: PosteriorBlock, pieces: _Pieces) -> FloatArray:
    """sum_i E[S_j S_l' | answers of i], from weighted counts of answer pairs at each node."""
    n_items, n_coordinates, n_nodes = pieces.right.shape
    total = np.zeros((n_items, n_coordinates, n_items, n_coordinates))
    wrong = (1.0 if block.seen is None else block.seen) - block.right
    # With right and wrong answers side by side, one product counts all four kinds of pairs.
    answers = np.concatenate([block.right, wrong], axis=1)
    for k in range(n_nodes):
        weight = block.weights[:, k]
        if weight.sum() < _NO_ONE:
            continue
        pairs = answers.T @ (answers * weight[:, None])
        scores = np.concatenate([pieces.right[:, :, k], pieces.wrong[:, :, k]])
        for a in range(n_coordinates):
            for b in range(n_coordinates):
                terms = pairs * np.outer(scores[:, a], scores[:, b])
                total[:, a, :, b] += terms.reshape(2, n_items, 2, n_items).sum(axis=(0, 2))
    return total.reshape(n_items * n_coordinates, -1)


def _invert_full(
    problem: Problem, within: FloatArray, between: FloatArray, estimated: BoolArray
) -> FloatArray | None:
    """Covariance of each item; None if the information matrix has a negative eigenvalue."""
    n_items, n_coordinates = estimated.shape
    information = between
    for j in range(n_items):
        own = slice(j * n_coordinates, (j + 1) * n_coordinates)
        information[own, own] = within[j]
    spread = _design(problem, estimated)
    reduced = spread.T @ information @ spread
    scale = _scale(reduced[None])[0]
    if np.linalg.eigvalsh(reduced / np.outer(scale, scale))[0] < -_ROUNDING:
        return None
    covariance = spread @ _inverse(reduced[None])[0] @ spread.T
    blocks = covariance.reshape(n_items, n_coordinates, n_items, n_coordinates)
    items = np.arange(n_items)
    own_blocks: FloatArray = blocks[items, :, items, :]
    return own_blocks


def _design(problem: Problem, estimated: BoolArray) -> FloatArray:
    """Matrix from free parameters to all items' coordinates; 1PL slopes share one column."""
    n_items, n_coordinates = estimated.shape
    flat = np.flatnonzero(estimated.ravel())
    if problem.family is not Family.RASCH:
        return np.eye(n_items * n_coordinates)[:, flat]
    common = np.zeros((n_items, n_coordinates))
    common[:, SLOPE] = estimated[:, SLOPE]
    own = flat[flat % n_coordinates != SLOPE]
    return np.column_stack([np.eye(n_items * n_coordinates)[:, own], common.ravel()])


def _invert_blocks(within: FloatArray, estimated: BoolArray) -> FloatArray:
    coupled = estimated[:, :, None] & estimated[:, None, :]
    regular = np.where(coupled, within, np.eye(estimated.shape[1]))
    return np.where(coupled, _inverse(regular), 0.0)


def _inverse(information: FloatArray) -> FloatArray:
    """Inverse of each symmetric matrix, scaled by its diagonal, with eigenvalues kept positive."""
    scale = _scale(information)
    outer = scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(information / outer)
    values = np.maximum(values, _LEAST_EIGENVALUE)
    inverse: FloatArray = (vectors / values[:, None, :]) @ vectors.transpose(0, 2, 1) / outer
    return inverse


def _scale(information: FloatArray) -> FloatArray:
    """Roots of the diagonals, shape (n_matrices, n_coordinates)."""
    diagonal = np.einsum("jaa->ja", information)
    roots: FloatArray = np.sqrt(np.maximum(diagonal, _LEAST_INFORMATION))
    return roots


def _scale_error(curves: Curves, n_examinees: int, estimated: BoolArray) -> FloatArray:
    a = curves.a
    location = np.zeros_like(curves.x)
    location[:, INTERCEPT] = a
    scale = np.zeros_like(curves.x)
    scale[:, SLOPE] = 1.0 if curves.log_slope else a
    common: FloatArray = location[:, :, None] * location[:, None, :] / n_examinees + scale[
        :, :, None
    ] * scale[:, None, :] / (2 * n_examinees)
    return np.where(estimated[:, :, None] & estimated[:, None, :], common, 0.0)
