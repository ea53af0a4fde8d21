"""Parallel analysis: how many dimensions a response matrix has.

An eigenvalue of the items' correlations counts as a dimension while it exceeds the eigenvalue of
responses without any common dimension: each item's responses are permuted among the examinees.

Source: Horn (1965), Psychometrika 30; the 95th percentile instead of the mean: Glorfeld (1995),
Educational and Psychological Measurement 55.
"""

from dataclasses import dataclass

import numpy as np

from app.engine.models.base import FloatArray
from app.errors import CalibrationError

_PERMUTATIONS = 20
_PERCENTILE = 95.0
#: Most items, and examinees, that the analysis uses: more would only make it more precise.
_MAX_ITEMS = 3000
_MAX_EXAMINEES = 3000
MAX_DIMENSIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAnalysis:
    """Result of a parallel analysis.

    Attributes:
        dimensions: Number of eigenvalues above chance, the general dimension included; at least 1.
        eigenvalues: Largest eigenvalues of the items' correlation matrix, falling.
        chance: 95th percentile of each of these eigenvalues over permuted responses.
    """

    dimensions: int
    eigenvalues: tuple[float, ...]
    chance: tuple[float, ...]


def parallel_analysis(scores: FloatArray, rng: np.random.Generator) -> ParallelAnalysis:
    """Compare the eigenvalues with those of permuted responses.

    Args:
        scores: Shape (n_examinees, n_items), NaN where there is no answer.
        rng: Random generator for permutations.

    Raises:
        CalibrationError: Fewer than three examinees, or fewer than two items with varying scores.
    """
    scores = _sampled(scores, rng)
    scores = scores[:, ~np.isnan(scores).all(axis=0)]
    spread = np.nanstd(scores, axis=0) if len(scores) else np.zeros(0)
    scores = scores[:, spread > 0]
    if min(scores.shape[0] - 1, scores.shape[1]) < 2:
        raise CalibrationError(
            "Finding dimensions needs at least 3 examinees and 2 items that tell them apart, "
            f"got {scores.shape[0]} and {scores.shape[1]}."
        )
    mean = np.nanmean(scores, axis=0)
    standard = np.nan_to_num((scores - mean) / np.nanstd(scores, axis=0))
    found = _largest(standard)
    permuted = np.array([_largest(rng.permuted(standard, axis=0)) for _ in range(_PERMUTATIONS)])
    chance = np.percentile(permuted, _PERCENTILE, axis=0)
    above = found > chance
    count = int(above.size if above.all() else above.argmin())
    return ParallelAnalysis(
        dimensions=max(count, 1), eigenvalues=tuple(found.tolist()), chance=tuple(chance.tolist())
    )


def _sampled(scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    for axis, most in ((0, _MAX_EXAMINEES), (1, _MAX_ITEMS)):
        if scores.shape[axis] > most:
            kept = np.sort(rng.choice(scores.shape[axis], most, replace=False))
            scores = np.take(scores, kept, axis=axis)
    return scores


def _largest(standard: FloatArray) -> FloatArray:
    n, p = standard.shape
    small = standard @ standard.T / n if n < p else standard.T @ standard / n
    count = min(MAX_DIMENSIONS, n - 1, p)
    largest: FloatArray = np.linalg.eigvalsh(small)[::-1][:count]
    return largest
