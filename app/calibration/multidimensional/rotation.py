"""Turns abilities to axes that can be read."""

import numpy as np

from app.engine.models.base import FloatArray


def turned(
    x: FloatArray, covariance: FloatArray, slopes: FloatArray, *, nested: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Abilities turned to axes that can be read: the general one first, the others by varimax."""
    d = slopes.shape[1]
    turn = np.eye(d)
    if nested:
        # What the mean slope points at moves all items together.
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
    """Kaiser (1958), Psychometrika 23: the rotation of most varied squared loadings."""
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
