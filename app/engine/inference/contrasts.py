"""Tasks on which an examinee is better or worse than its overall result suggests.

Two examinees with the same overall score may differ on every task of a bank. A contrast is the
score on some items minus the expected score there of examinees with the same overall result. Its
interval shows whether it exceeds chance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.prediction.score_model import Target
from app.engine.state import Z_95

#: Share of the task's variance below which a contrast is void: the task is the whole bank.
_LEAST_SHARE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Score on some items minus the expected score, with the ends of its interval.

    Attributes:
        value: Difference of the mean scores.
    """

    value: float
    lo: float
    hi: float

    @property
    def sign(self) -> int:
        """1 for better than expected, -1 for worse, 0 if the interval holds 0."""
        return (self.lo > 0.0) - (self.hi < 0.0)


def of_scores(
    task: Target, whole: Target, items: Sequence[int], scores: FloatArray, *, among: int = 1
) -> Contrast | None:
    """The score on a task compared with that of examinees with the same overall score.

    With t the score on the task and w the overall score, the contrast is
    t - E[t] - beta (w - E[w]), beta = Cov(t, w) / Var(w): the residual of t given w. It is a
    weighted sum of item scores like t itself, so answers predict it in the same way.

    Args:
        task: The score on the task.
        whole: The overall score, of the same score model.
        items: Positions of the answered items.
        scores: Scores of the answered items.
        among: Number of contrasts that are examined: all their intervals hold together with
            probability 95 % (Bonferroni).

    Returns:
        The contrast; None if the task is practically the whole bank.
    """
    if not whole.variance > 0.0:
        return None
    beta = float(task.weights @ whole.covariance) / whole.variance
    rest = Target(task.model, task.weights - beta * whole.weights)
    if rest.variance <= _LEAST_SHARE * task.variance:
        return None
    predicted, sd = rest.predict(items, scores)
    value = float(predicted) - float(rest.weights @ rest.model.mean)
    # The score of a completely asked task is certain, but that of the whole bank may not be.
    multiple = max(task.widths.at(len(items)), whole.widths.at(len(items)), Z_95)
    half = multiple / Z_95 * _two_sided(among) * sd
    return Contrast(value=value, lo=value - half, hi=value + half)


def of_answers(
    bank: ItemBank, theta: float, items: Sequence[int], scores: FloatArray, *, among: int = 1
) -> Contrast:
    """Mean score on the answered items minus that of examinees of ability theta.

    The interval follows from the variance of the score at theta. For scores of 0 and 1 half an
    answer is added (continuity correction). As theta was estimated from the same answers, the
    interval is, if anything, too wide.

    Args:
        bank: The items.
        theta: Overall ability, logits.
        items: Positions of the task's answered items, at least one.
        scores: Scores of these items.
        among: Number of contrasts that are examined, as in `of_scores`.
    """
    positions = np.asarray(items, dtype=np.intp)
    parameters = bank.parameters.take(positions)
    expected = bank.model.expected_score(parameters, theta)
    scatter = float(bank.model.score_moments(parameters, theta)[1].sum())
    value = float(np.mean(scores - expected))
    continuity = 0.5 if np.isin(scores, (0.0, 1.0)).all() else 0.0
    half = (_two_sided(among) * math.sqrt(scatter) + continuity) / positions.size
    return Contrast(value=value, lo=value - half, hi=value + half)


def _two_sided(among: int) -> float:
    """Half-width, in standard deviations, of intervals that hold together with probability 95 %."""
    return NormalDist().inv_cdf(1.0 - 0.025 / max(among, 1))
