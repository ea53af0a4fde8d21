"""What a model of scores gets wrong, read from items that were drawn with known probabilities.

| symbol | meaning |
|---|---|
| w_j | what item j counts in the score |
| r_j | real less expected score of item j, by the model |
| q_t | probability with which step t drew its item j_t, given all that was asked before |
| B | sum of w_j r_j over the items not asked: how far the real score is above the model's |

At every step that drew by lot, w r / q of its item is an unbiased estimate of the sum of w r over
all that could be drawn; less the w r of what was asked from then on, it is one of B. The mean over
these steps is the estimate, whatever the model, the design and the answers are: nothing is assumed
but that the probabilities are what they say. An item that the model has learned from is the less
surprising for it; its residual is enlarged to what it would be if the model had not seen it.

Sources: Horvitz & Thompson (1952), Journal of the American Statistical Association 47; Farquhar,
Gal & Rainforth (2021), arXiv 2101.11665, for draws one at a time; Angelopoulos et al. (2023),
Science 382, for predictions in the place of the answers not given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, stdtr

from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray
from app.engine.prediction.score_curves import Located, ScoreCurves
from app.engine.prediction.targets import LEAST_DRAWS
from app.engine.state import Draw, Response

#: Items that a test chooses before it draws any by lot: half of a usual test of 50, rounded down.
LEAD = 24
_LEAST_UNSEEN = 0.3  # share of a residual's variance that is left once the model has seen it


def after_lead(draw: Draw | None) -> bool:
    """Whether an item came by lot after those that a test chooses."""
    return draw is not None and draw.by_lot and draw.step > LEAD


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """How far the real score lies above the model's, by items drawn by lot.

    Attributes:
        value: Estimate of B.
        variance: Of the estimate, by the draws.
        draws: Number of them.
    """

    value: float
    variance: float
    draws: int

    @property
    def p_value(self) -> float:
        """Of the test that the model is right, two-sided."""
        if self.variance <= 0.0:
            return 1.0
        size = abs(self.value) / self.variance**0.5
        return float(2.0 * stdtr(self.draws - 1, -size))


def discrepancy(
    curves: ScoreCurves,
    at: Located,
    weights: FloatArray,
    responses: Sequence[Response],
    frame: BoolArray,
) -> Discrepancy | None:
    """What the draws say; None where fewer than five items were drawn by lot.

    Args:
        curves: The model.
        at: Abilities by these very answers.
        weights: w, shape (n_items,).
        responses: Scored answers.
        frame: Mask of the items that could have been drawn, shape (n_items,). What is estimated
            for those not asked is taken to hold for the other items of the target, too.
    """
    # An answer of which nobody noted how it came to be asked was there before the others.
    asked = sorted(responses, key=lambda one: one.draw.step if one.draw else 0)
    items: IntArray = np.array([one.item for one in asked], dtype=np.intp)
    probability = np.array([one.draw.probability if one.draw else 1.0 for one in asked])
    by_lot = (probability < 1.0) & frame[items]
    draws = int(by_lot.sum())
    if draws < LEAST_DRAWS:
        return None
    across = curves.slopes[:, items]
    expected = expit(at.mean @ across + curves.intercept[items])
    raw = np.array([one.score for one in asked]) - expected
    variance = curves.dispersion * expected * (1.0 - expected)
    learned = (expected * (1.0 - expected) / curves.dispersion) * np.einsum(
        "kn,kl,ln->n", across, at.covariance, across
    )
    unseen = np.maximum(1.0 - learned, _LEAST_UNSEEN)
    counted = weights[items] * frame[items]
    # Of step t on: what is taken off again, for only those not asked are to be told of.
    later = np.cumsum((counted * raw)[::-1])[::-1]
    size = counted / probability
    estimates = (size * raw / unseen - later)[by_lot]
    open_weight = float(weights[frame].sum() - counted.sum())
    if open_weight <= 0.0:
        return Discrepancy(0.0, 0.0, draws)
    could = open_weight + np.cumsum(counted[::-1])[::-1]
    # The last draws of a small bank are certain to be near the truth: finite population.
    left = np.mean(open_weight / could[by_lot])
    observed = float(((size * raw / unseen)[by_lot] ** 2).sum())
    expected_square = float((size**2 * variance)[by_lot].sum())
    spread = max(observed, expected_square) * float(left) / draws**2
    reach = float(weights.sum() - weights[items].sum()) / open_weight
    return Discrepancy(float(estimates.mean()) * reach, spread * reach**2, draws)
