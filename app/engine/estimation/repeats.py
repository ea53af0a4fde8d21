"""Items asked several times: how much more their answers tell than one answer each.

n answers to an item do not tell of the examinee what answers to n items do: what the examinee knows
of this item stays the same. With P the item's curve at theta, the chance p of a right answer varies
between items by rho P Q around P, and answers to an item by p (1 - p), (1 - rho) P Q on average,
which is the variance within items and is seen in the answers. The mean of n answers then has the
variance P Q (rho + (1 - rho) / n), where one answer has P Q: it counts as

    n / (1 + (n - 1) rho)

answers, which is 1 where answers never differ, and n where chance alone makes them.

Source: Kish (1965), Survey Sampling, on the design effect of clusters.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.engine.bank import ItemBank

#: Variance of this many answers of even chance counts as lying between items until seen otherwise.
_DOUBT = 5 * 0.25


def effective_answers(bank: ItemBank, theta: float, scores: Mapping[int, Sequence[float]]) -> float:
    """How many answers the mean of the answers to an item counts as, 1 or more.

    Args:
        bank: The items.
        theta: Ability, logits.
        scores: Of the answers to each item, by position.
    """
    several = {item: given for item, given in scores.items() if len(given) > 1}
    if not several or not math.isfinite(theta):
        return 1.0
    items = np.array(list(several), dtype=np.intp)
    whole = float(bank.model.score_variance(bank.parameters.take(items), theta).sum())
    within = sum(float(np.var(given, ddof=1)) for given in several.values())
    rho = 1 - min(within / (whole + _DOUBT), 1.0)
    # Items with fewer answers count for fewer, those with one for one.
    mean = sum(1 / len(given) for given in scores.values()) / len(scores)
    return 1 / (rho + (1 - rho) * mean)
