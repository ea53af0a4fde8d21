"""What both fits of several abilities share: settings, start values, the result's shape."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from app.engine.models.base import FloatArray
from app.engine.models.multidimensional import Loadings

#: Callback that gets the number of each iteration of a fit, and its loss.
Watch = Callable[[int, float], None]


class FitMethod(StrEnum):
    """How the model is fitted."""

    JOINT = "joint"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultidimensionalSettings:
    """How a multidimensional bank is calibrated.

    Attributes:
        nested: Whether there is a general ability beside the dimensions.
        dimensions: Number of dimensions K; None takes it from parallel analysis, at most 4.
        method: Method of the fit; None compares both on held-out answers.
        max_iterations: Most iterations of either method.
    """

    nested: bool = True
    dimensions: int | None = None
    method: FitMethod | None = None
    max_iterations: int = 400


INTERCEPT_SD = 4.0  # prior; keeps the intercept finite where nearly all answers are alike
SLOPE_BOUNDS = (0.02, 8.0)
MAX_LOADING = 10.0
_LEAST_WIDTH = 16  # least number of items in a block, however many examinees there are
_BLOCK_CELLS = 4_000_000  # logits computed at a time, 32 MB for each array


@dataclass(frozen=True, slots=True, eq=False)
class RawFit:
    """Parameters that a fit estimates.

    Attributes:
        abilities: Estimated abilities, the general one first, shape (n_examinees, D).
        covariance: Mean posterior covariance of an examinee, shape (D, D); 0 for the joint fit.
        converged: Whether the fit converged within the allowed iterations.
    """

    abilities: FloatArray
    covariance: FloatArray
    items: Loadings
    iterations: int
    converged: bool


def factor_start(
    scores: FloatArray, settings: MultidimensionalSettings
) -> tuple[FloatArray, Loadings]:
    """Start values from principal components: abilities, shape (n_examinees, D), and items."""
    n, k = len(scores), settings.dimensions or 1
    d = k + settings.nested
    mean = np.nanmean(scores, axis=0)
    centred = np.nan_to_num(scores - mean)
    free, components = centred, []
    if settings.nested:
        answered = np.count_nonzero(~np.isnan(scores), axis=1)
        general = centred.sum(axis=1) / np.maximum(answered, 1)
        scale = float(general.std()) or 1.0
        components.append(general / scale)
        free = centred - np.outer(components[0], components[0] @ centred / n)
    components += list(_principal(free, min(k, n)) * np.sqrt(n))
    x = np.column_stack(components)[:, :d]
    x = x - x.mean(axis=0)
    # A logit changes 1 / (p q) times as fast as a probability.
    rise = np.maximum(mean * (1.0 - mean), 0.05)[:, None]
    slopes = np.clip(centred.T @ x / n / rise, -3.0, 3.0)
    intercept = np.log(np.clip(mean, 0.02, 0.98) / np.clip(1.0 - mean, 0.02, 0.98))
    if not settings.nested:
        return x, Loadings(np.ones(len(mean)), intercept, slopes, nested=False)
    a = np.clip(slopes[:, 0], 0.1, 4.0)
    loadings = np.clip(slopes[:, 1:] / a[:, None], -MAX_LOADING, MAX_LOADING)
    return x, Loadings(a, intercept, loadings, nested=True)


def _principal(centred: FloatArray, count: int) -> FloatArray:
    """Largest principal component scores of the examinees, each of norm 1, shape (count, n)."""
    n, n_items = centred.shape
    if n <= n_items:
        return np.asarray(np.linalg.eigh(centred @ centred.T)[1][:, ::-1][:, :count].T)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    along = (centred @ vectors[:, ::-1][:, :count]).T
    components: FloatArray = along / np.maximum(np.linalg.norm(along, axis=1), 1e-12)[:, None]
    return components


def split_slopes(slopes: FloatArray, intercept: FloatArray, *, nested: bool) -> Loadings:
    """Split slopes into a and loadings K: slopes are a (1, K) if nested, else a K with |K| = 1."""
    if nested:
        a = np.maximum(slopes[:, 0], SLOPE_BOUNDS[0])
        return Loadings(a, intercept, slopes[:, 1:] / a[:, None], nested)
    a = np.maximum(np.linalg.norm(slopes, axis=1), 1e-6)
    return Loadings(a, intercept, slopes / a[:, None], nested)


def blocks(scores: FloatArray, cells: int = _BLOCK_CELLS) -> Iterator[slice]:
    """Slices of items whose scores make up about `cells` cells."""
    width = max(cells // max(len(scores), 1), _LEAST_WIDTH)
    for first in range(0, scores.shape[1], width):
        yield slice(first, min(first + width, scores.shape[1]))
