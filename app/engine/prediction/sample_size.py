"""How many questions a precision takes, and how many at random would have been as exact.

The mean of n of N items that are drawn at random without replacement has the variance

    v / n * (N - n) / (N - 1)

with v = p (1 - p) for items that are right or wrong, of which the share p is right. Solved for n,
with the v that a test's own interval shows, it says how many items the same test would need for
another half width. A sample as exact as an interval is one whose own interval is as wide.

Source: Cochran (1977), Sampling Techniques, 3rd edition, sections 2.6 and 3.2.
"""

import math
from bisect import bisect_left
from statistics import NormalDist

_Z_95 = NormalDist().inv_cdf(0.975)


def equivalent_random_items(value: float, margin: float, n_items: int) -> int:
    """Size of a random sample of the items whose 95 % interval is as narrow; at most all items.

    Args:
        value: The score.
        margin: Half of the width of its 95 % interval.
        n_items: All items that the score is taken over.
    """

    def narrowness(n: int) -> float:
        lo, hi = sample_interval(value, n, n_items)
        return (lo - hi) / 2

    return 1 + bisect_left(range(1, n_items), -margin, key=narrowness)


def sample_interval(mean: float, n: float, n_items: float) -> tuple[float, float]:
    """Ends of the 95 % interval of a score by a random sample of its items, all right or wrong.

    Two right and two wrong answers are added, so that it holds for few answers, too; fewer, the
    more of the items are known.

    Source: Agresti & Coull (1998), The American Statistician 52.

    Args:
        mean: Share of right answers.
        n: Answers, at least 1.
        n_items: All items that the score is taken over.
    """
    left = (n_items - n) / max(n_items - 1, 1)
    size = n + 4.0 * left
    middle = (n * mean + 2.0 * left) / size
    half = _Z_95 * math.sqrt(middle * (1.0 - middle) / size * left)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def items_for(margin: float, *, reached: float, n_asked: int, n_items: int) -> int:
    """Items that a test is expected to take for a margin, as its interval has narrowed so far.

    Args:
        margin: Wanted, above 0.
        reached: Half of the width of the 95 % interval after `n_asked` items.
        n_asked: At least 1.
        n_items: All items that the score is taken over.
    """
    if n_asked >= n_items:
        return n_items
    spread = (reached / _Z_95) ** 2 * n_asked * (n_items - 1) / (n_items - n_asked)
    if not spread:
        return 1
    size = spread * n_items / ((n_items - 1) * (margin / _Z_95) ** 2 + spread)
    return min(max(math.ceil(size - 1e-9), 1), n_items)
