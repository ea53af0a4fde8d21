"""Items asked several times: how many single answers the mean of an item's answers counts as.

n answers to one item are less informative than answers to n items, because the examinee's knowledge
of this item stays the same. Let P be the item's curve at theta. The probability p of a right answer
varies between items with variance rho P Q around P. Answers to one item vary with p (1 - p), which
is (1 - rho) P Q on average; the answers show this variance within items. The mean of n answers then
has the variance P Q (rho + (1 - rho) / n), and one answer has P Q. The mean counts as

    n / (1 + (n - 1) rho)

answers: 1 if repeated answers never differ, n if they are independent given theta.

Source: Kish (1965), Survey Sampling, on the design effect of clusters.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.engine.bank import ItemBank

#: Prior for variance between items: that of five answers with p = 0.5.
_DOUBT = 5 * 0.25


def effective_answers(bank: ItemBank, theta: float, scores: Mapping[int, Sequence[float]]) -> float:
    """How many answers the mean of the answers to an item counts as, 1 or more.

    Args:
        bank: The items.
        theta: Ability, logits.
        scores: Scores of the answers to each item, by position of the item.
    """
    repeated = {item: given for item, given in scores.items() if len(given) > 1}
    if not repeated or not math.isfinite(theta):
        return 1.0
    items = np.array(list(repeated), dtype=np.intp)
    total = float(bank.model.score_variance(bank.parameters.take(items), theta).sum())
    within = sum(float(np.var(given, ddof=1)) for given in repeated.values())
    rho = 1 - min(within / (total + _DOUBT), 1.0)
    # The mean of 1 / n over items: an item with fewer answers counts as fewer, one with 1 as 1.
    mean = sum(1 / len(given) for given in scores.values()) / len(scores)
    return 1 / (rho + (1 - rho) * mean)
