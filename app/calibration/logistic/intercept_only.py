"""Curves of items beside a calibration: they count in scores, and nothing of ability is in them."""

import numpy as np
from scipy.special import logit

from app.engine.models.base import FloatArray, IntArray, ItemParameters

_HALF = 0.5  # of an answer, right and wrong: a share of 0 or 1 has no logit


def flat_curves(means: FloatArray, n_answers: IntArray, dispersion: float = 1.0) -> ItemParameters:
    """Curves without a slope, at the mean score.

    A filter has found that these items say too little of ability to measure it. An estimated slope
    would be chance, or what is thought of slopes beforehand, and where many items have it, those
    together would move the abilities of whoever is unlike those calibrated.

    Args:
        means: Mean score of each item, in [0, 1], shape (n_items,).
        n_answers: Answers that it comes from, at least one, shape (n_items,).
        dispersion: Of scores in between.

    Returns:
        In the same order; the same on any scale.
    """
    share = (means * n_answers + _HALF) / (n_answers + 2 * _HALF)
    zeros, ones = np.zeros(means.size), np.ones(means.size)
    return ItemParameters(zeros, logit(share), zeros, ones, dispersion * ones)
