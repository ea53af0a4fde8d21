"""Fits item parameters by variational EM, with the abilities integrated out.

Each examinee has a Gaussian posterior under the Jaakkola-Jordan bound; all updates are closed
forms. With few answers each, a joint fit would take noise in the abilities for slopes.

Source: Cho, Wang, Zhang & Xu (2021), British Journal of Mathematical and Statistical Psychology 74.
"""

import numpy as np

from app.calibration.multidimensional.settings import (
    INTERCEPT_SD,
    MultidimensionalSettings,
    RawFit,
    Watch,
    blocks,
    factor_start,
    split_slopes,
)
from app.engine.models.base import FloatArray

_SLOPE_SD = 2.0  # standard deviation of the normal prior of slopes


def fit_variationally(
    scores: FloatArray, settings: MultidimensionalSettings, watch: Watch | None
) -> RawFit:
    """Fit by variational EM; `watch` gets the root mean square change of the slopes."""
    n = len(scores)
    x, start = factor_start(scores, settings)
    slopes, intercept, d = start.slopes, start.intercept, start.n_abilities
    covariances = np.tile(0.1 * np.eye(d), (n, 1, 1))
    ridge = np.diag([1.0 / _SLOPE_SD**2] * d + [1.0 / INTERCEPT_SD**2])
    converged, iteration = False, 0
    for iteration in range(1, settings.max_iterations + 1):
        before = slopes
        second = covariances + x[:, :, None] * x[:, None, :]
        new_slopes, new_intercept = np.empty_like(slopes), np.empty_like(intercept)
        precision = np.tile(np.eye(d), (n, 1, 1)).reshape(n, d * d)
        linear = np.zeros((n, d))
        for block in blocks(scores):
            y = scores[:, block]
            seen = ~np.isnan(y)
            half = np.where(seen, y - 0.5, 0.0)
            eta = _bound(x, second, slopes[block], intercept[block]) * seen
            s, t = _item_step(eta, half, x, second, ridge)
            new_slopes[block], new_intercept[block] = s, t
            # The E-step uses the same bound, and the item parameters of this iteration.
            outer = (s[:, :, None] * s[:, None, :]).reshape(len(s), d * d)
            precision += 2.0 * eta @ outer
            linear += half @ s - 2.0 * (eta * t) @ s
        slopes, intercept = new_slopes, new_intercept
        covariances = np.asarray(np.linalg.inv(precision.reshape(n, d, d)), dtype=np.float64)
        x = np.einsum("nij,nj->ni", covariances, linear)
        x, covariances, slopes, intercept = _standardised(x, covariances, slopes, intercept)
        moved = float(np.sqrt(np.mean((slopes - before) ** 2)))
        if watch is not None:
            watch(iteration, moved)
        if moved < 1e-3:
            converged = True
            break
    x, covariance, slopes = turned(x, covariances.mean(axis=0), slopes, nested=settings.nested)
    items = split_slopes(slopes, intercept, nested=settings.nested)
    return RawFit(x, covariance, items, iteration, converged)


def _bound(
    x: FloatArray, second: FloatArray, slopes: FloatArray, intercept: FloatArray
) -> FloatArray:
    """eta(xi) = tanh(xi / 2) / (4 xi) at the best xi^2 = E[z^2], shape (n, block)."""
    n, d = x.shape
    outer = (slopes[:, :, None] * slopes[:, None, :]).reshape(len(slopes), d * d)
    square = second.reshape(n, d * d) @ outer.T + 2.0 * (x @ slopes.T) * intercept + intercept**2
    xi = np.sqrt(np.maximum(square, 1e-8))
    eta: FloatArray = np.tanh(xi / 2.0) / (4.0 * xi)
    return eta


def _item_step(
    eta: FloatArray, half: FloatArray, x: FloatArray, second: FloatArray, ridge: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and intercepts that maximise the bound, by weighted least squares for each item."""
    n, d = x.shape
    n_items = eta.shape[1]
    normal = np.empty((n_items, d + 1, d + 1))
    normal[:, :d, :d] = 2.0 * (eta.T @ second.reshape(n, d * d)).reshape(n_items, d, d)
    normal[:, :d, d] = normal[:, d, :d] = 2.0 * eta.T @ x
    normal[:, d, d] = 2.0 * eta.sum(axis=0)
    right = np.column_stack([half.T @ x, half.sum(axis=0)])
    solved = np.linalg.solve(normal + ridge, right[:, :, None])[:, :, 0]
    return solved[:, :d], solved[:, d]


def _standardised(
    x: FloatArray, covariances: FloatArray, slopes: FloatArray, intercept: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Rescale the model to abilities of mean 0 and covariance I, which EM reaches only slowly."""
    mean = x.mean(axis=0)
    covariance = np.cov(x.T, bias=True).reshape(x.shape[1], -1) + covariances.mean(axis=0)
    root = np.linalg.cholesky(covariance)
    back = np.linalg.inv(root)
    return (
        (x - mean) @ back.T,
        back @ covariances @ back.T,
        slopes @ root,
        intercept + slopes @ mean,
    )


def turned(
    x: FloatArray, covariance: FloatArray, slopes: FloatArray, *, nested: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rotate the abilities to interpretable axes: general ability first, the others by varimax."""
    d = slopes.shape[1]
    turn = np.eye(d)
    if nested:
        # The mean slope is the direction in which all items move together.
        first = slopes.mean(axis=0)
        turn = np.linalg.qr(np.column_stack([first, np.eye(d)]))[0]
        turn[:, 0] *= np.sign(turn[:, 0] @ first)
    first_free = int(nested)
    if d - first_free > 1:
        free = slopes @ turn[:, first_free:]
        turn[:, first_free:] = turn[:, first_free:] @ _varimax(free)
    signs = np.sign((slopes @ turn).sum(axis=0))
    turn = turn * np.where(signs == 0, 1.0, signs)
    return x @ turn, turn.T @ covariance @ turn, slopes @ turn


def _varimax(slopes: FloatArray) -> FloatArray:
    """Rotation that maximises the variance of squared loadings (Kaiser, 1958, Psychometrika 23)."""
    turn = np.eye(slopes.shape[1])
    for _ in range(100):
        turned = slopes @ turn
        target = turned**3 - turned * np.mean(turned**2, axis=0)
        left, _, right = np.linalg.svd(slopes.T @ target)
        new = left @ right
        if np.abs(new - turn).max() < 1e-8:
            break
        turn = new
    rotation: FloatArray = turn
    return rotation
