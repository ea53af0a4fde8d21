"""Number of questions that a precision takes, and the equivalent size of a random sample.

The mean of n of N items that are drawn at random without replacement has the variance

    v / n * (N - n) / (N - 1)

with v = p (1 - p) for right and wrong answers, a share p of them right. Solved for n, with v from a
test's own interval, it gives the number of items that the test needs for another half width. The
equivalent random sample of an interval is the one whose own interval is as wide.

Source: Cochran (1977), Sampling Techniques, 3rd edition, sections 2.6 and 3.2.
"""

import math
from bisect import bisect_left

from app.engine.models.base import FloatArray
from app.engine.state import Z_95


def equivalent_random_items(
    value: float, margin: float, n_items: int, scores: FloatArray | None = None
) -> int:
    """Size of the random sample whose 95 % interval is as narrow; at most all items.

    Args:
        value: Score.
        margin: Half width of its 95 % interval.
        n_items: Number of items that make up the score.
        scores: Scores on the items asked, shape (n,). Scores in between vary less than right and
            wrong answers, so that fewer of them are as exact. None means right and wrong answers.
    """
    spread = 1.0 if scores is None or not scores.size else _relative_sd(scores)

    def narrowness(n: int) -> float:
        lo, hi = sample_interval(value, n, n_items)
        return spread * (lo - hi) / 2

    return 1 + bisect_left(range(1, n_items), -margin, key=narrowness)


def _relative_sd(scores: FloatArray) -> float:
    """Standard deviation of scores, relative to right and wrong answers with the same mean."""
    mean = float(scores.mean())
    most = mean * (1.0 - mean)
    return round(math.sqrt(float(scores.var()) / most), 9) if most > 0.0 else 1.0


def sample_interval(mean: float, n: float, n_items: float) -> tuple[float, float]:
    """Ends of a score's 95 % interval from a random sample of right and wrong answers.

    Two right and two wrong answers are added, so that it holds for few answers, too. The number
    added falls with the share of the items that were asked.

    Source: Agresti & Coull (1998), The American Statistician 52.

    Args:
        mean: Share of right answers.
        n: Number of answers, at least 1.
        n_items: Number of items that make up the score.
    """
    left = (n_items - n) / max(n_items - 1, 1)
    size = n + 4.0 * left
    middle = (n * mean + 2.0 * left) / size
    half = Z_95 * math.sqrt(middle * (1.0 - middle) / size * left)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def items_for(margin: float, *, reached: float, n_asked: int, n_items: int) -> int:
    """Expected number of items for a margin, from the width of the interval so far.

    Args:
        margin: Wanted half width, above 0.
        reached: Half width of the 95 % interval after `n_asked` items.
        n_asked: Number of items asked, at least 1.
        n_items: Number of items that make up the score.
    """
    if n_asked >= n_items:
        return n_items
    spread = (reached / Z_95) ** 2 * n_asked * (n_items - 1) / (n_items - n_asked)
    if not spread:
        return 1
    size = spread * n_items / ((n_items - 1) * (margin / Z_95) ** 2 + spread)
    return min(max(math.ceil(size - 1e-9), 1), n_items)


def margin_after(n: int, *, reached: float, n_asked: int, n_items: int) -> float:
    """Expected half width of the 95 % interval after `n` items; the inverse of `items_for`."""
    if n_asked >= n_items:
        return 0.0
    return reached * math.sqrt(n_asked * (n_items - n) / (n * (n_items - n_asked)))
