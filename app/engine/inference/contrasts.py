"""Where an examinee is better or worse than its overall result lets expect.

Two examinees of the same overall score may differ on every task of a bank. A contrast is the score
on some items minus the one that is expected there of examinees who are as good overall, and its
interval says whether it is more than chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.prediction.score_model import NORMAL_95, Target

#: Contrasts that vary less than this share of the task's own variance compare it with itself.
_LEAST_SHARE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Score on some items less the expected one.

    Attributes:
        value: Difference of mean scores.
        lo: Lower end of its interval.
        hi: Upper end.
    """

    value: float
    lo: float
    hi: float

    @property
    def sign(self) -> int:
        """1 for better than expected, -1 for worse, 0 where the interval leaves both open."""
        return (self.lo > 0.0) - (self.hi < 0.0)


def of_scores(
    task: Target, whole: Target, items: Sequence[int], scores: FloatArray, *, among: int = 1
) -> Contrast | None:
    """The score on a task against that of examinees with the same overall score.

    With t the score on the task and w the overall one, the contrast is
    t - E[t] - beta (w - E[w]), beta = Cov(t, w) / Var(w): what is left of t once w is known. It is
    a weighted sum of item scores like t itself, so that answers predict it in the same way.

    Args:
        task: The score on the task.
        whole: The overall score, of the same model.
        items: Positions of the items answered.
        scores: Their scores.
        among: How many contrasts are looked at: all their intervals hold together with 95 %
            (Bonferroni).

    Returns:
        None where the task is as good as the whole.
    """
    if not whole.variance > 0.0:
        return None
    beta = float(task.weights @ whole.covariance) / whole.variance
    rest = Target(task.model, task.weights - beta * whole.weights)
    if rest.variance <= _LEAST_SHARE * task.variance:
        return None
    predicted, sd = rest.predict(items, scores)
    value = float(predicted) - float(rest.weights @ rest.model.mean)
    # A task asked in full has no width of its own left, but the whole bank may have.
    multiple = max(task.widths.at(len(items)), whole.widths.at(len(items)), NORMAL_95)
    half = multiple / NORMAL_95 * _two_sided(among) * sd
    return Contrast(value=value, lo=value - half, hi=value + half)


def of_answers(
    bank: ItemBank, theta: float, items: Sequence[int], scores: FloatArray, *, among: int = 1
) -> Contrast:
    """Mean score on the items answered less that of examinees of ability theta.

    The interval is that of the score's own scatter at theta, with half an answer added where scores
    are right or wrong (correction for continuity). That theta was estimated from the same answers
    makes it, if anything, too wide.

    Args:
        bank: The items.
        theta: Overall ability.
        items: Positions of the task's items that were answered, at least one.
        scores: Their scores.
        among: As in `of_scores`.
    """
    positions = np.asarray(items, dtype=np.intp)
    parameters = bank.parameters.take(positions)
    expected = bank.model.expected_score(parameters, theta)
    scatter = float(bank.model.score_variance(parameters, theta).sum())
    value = float(np.mean(scores - expected))
    continuity = 0.5 if np.isin(scores, (0.0, 1.0)).all() else 0.0
    half = (_two_sided(among) * math.sqrt(scatter) + continuity) / positions.size
    return Contrast(value=value, lo=value - half, hi=value + half)


def _two_sided(among: int) -> float:
    """Half-width of intervals that hold together with 95 %, in standard deviations."""
    return NormalDist().inv_cdf(1.0 - 0.025 / max(among, 1))
