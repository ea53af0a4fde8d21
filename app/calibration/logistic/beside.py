"""Curves of items beside a calibration: they count in scores, and nothing of ability is in them."""

import numpy as np
from scipy.special import logit

from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import ItemParameters

_HALF = 0.5  # of an answer, right and wrong: a share of 0 or 1 has no logit


def flat_curves(beside: ScoreMatrix) -> ItemParameters:
    """Curves without a slope, at the share of right answers.

    A filter has found that these items say too little of ability to measure it. An estimated slope
    would be chance, or what is thought of slopes beforehand, and where many items have it, those
    together would move the abilities of whoever is unlike those calibrated.

    Args:
        beside: Answers to these items, at least one to each.

    Returns:
        In the order of `beside`; the same on any scale.
    """
    seen = beside.answers_per_item()
    share = (beside.item_means() * seen + _HALF) / (seen + 2 * _HALF)
    zeros = np.zeros(beside.n_items)
    return ItemParameters(a=zeros, intercept=logit(share), c=zeros, d=np.ones(beside.n_items))
