"""Item fit: S-X2 of each item, and Q3 of each pair of items.

Source: Orlando & Thissen (2000), Applied Psychological Measurement 24 (S-X2); Yen (1984), Applied
Psychological Measurement 8 (Q3); Christensen, Makransky & Horton (2017), Applied Psychological
Measurement 41 (Q3 against its mean); Fisher (1921), Metron 1 (chance correlations).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

import numpy as np
from scipy.special import chdtrc, ndtri

from app.calibration.logistic.calibrate import Calibration
from app.calibration.logistic.curves import probabilities
from app.calibration.matrix import MISSING, ByteArray, ScoreMatrix
from app.engine.lint import Finding
from app.engine.models.base import FloatArray, IntArray

GROUP_ITEMS = 100
"""Items whose sum score is one S-X2; longer banks are cut into groups alike in difficulty."""
Q3_LIMIT = 0.2
"""A pair whose Q3 exceeds the mean of all pairs by this, beyond chance, is locally dependent."""

_Q3_CHANCE = 0.05  # share of banks without dependence in which any pair is flagged
_LEAST_EXPECTED = 1.0  # least expected right and wrong answers of a score group (S-X2 source)
_MOST_PAIRS = 100
_PAIR_BLOCK = 512
#: The warning advises to remove an item, so it must hardly ever come by chance: one bank in ten
#: thousand without copies gets it. 40 examinees are enough to find most copies.
_COPY_LOG_CHANCE = np.log(1e-4)
#: Items are flagged if S-X2 has a smaller p-value, as one fitting item in a thousand has, ...
MISFIT_P = 0.001
#: ... and if RMSEA is larger than this: with thousands of examinees no item fits perfectly.
MISFIT_RMSEA = 0.08


@dataclass(frozen=True, eq=False, slots=True)
class ItemFit:
    """S-X2 of each item; NaN and 0 where it cannot be computed.

    Attributes:
        statistic: Shape (n_items,).
        p_value: Probability of a larger statistic if the item fits, not corrected for many items.
        n_examinees: Number of examinees with answers to all items of the item's group.
    """

    statistic: FloatArray
    df: IntArray
    p_value: FloatArray
    n_examinees: IntArray


@dataclass(frozen=True, slots=True)
class DependentPair:
    """Two items that share more than ability."""

    first: str
    second: str
    q3: float


@dataclass(frozen=True, slots=True)
class LocalDependence:
    """Q3, the correlations of items once ability is taken out.

    Attributes:
        mean: Mean Q3 of all pairs, which is slightly negative even if the model holds.
        n_flagged: Number of pairs whose Q3 is above the mean by more than `Q3_LIMIT`, and by more
            than chance allows in any of so many pairs.
        pairs: Flagged pairs with the largest Q3.
    """

    mean: float
    n_flagged: int
    pairs: tuple[DependentPair, ...]


def item_fit(matrix: ScoreMatrix, calibration: Calibration) -> ItemFit:
    """S-X2 of each item: compare observed and expected shares of right answers by sum score.

    Banks of more than `GROUP_ITEMS` items are split into groups with a sum score each, which bounds
    the number of score groups and the cost per item. Only examinees complete on a group count.
    """
    n_items = matrix.n_items
    statistic = np.full(n_items, np.nan)
    df = np.zeros(n_items, dtype=np.intp)
    n_examinees = np.zeros(n_items, dtype=np.intp)
    n_groups = -(-n_items // GROUP_ITEMS)
    by_difficulty = np.argsort(np.nan_to_num(matrix.item_means()), kind="stable")
    n_free = len(calibration.family.free)
    for group in range(n_groups):
        columns = np.sort(by_difficulty[group::n_groups])
        scores = matrix.scores[:, columns]
        scores = scores[(scores != MISSING).all(axis=1)]
        n_examinees[columns] = len(scores)
        if len(scores):
            expected = _expected_shares(calibration, columns)
            statistic[columns], df[columns] = _chi_square(scores, expected, n_free)
    p_value = np.where(df > 0, chdtrc(np.maximum(df, 1), statistic), np.nan)
    return ItemFit(np.where(df > 0, statistic, np.nan), df, p_value, n_examinees)


def local_dependence(matrix: ScoreMatrix, calibration: Calibration) -> LocalDependence:
    """Correlations between the residuals of items at each examinee's EAP."""
    theta = calibration.thetas(matrix)
    residual = np.empty((matrix.n_examinees, matrix.n_items))
    given = np.empty((matrix.n_examinees, matrix.n_items), dtype=bool)
    for rows, right, seen in matrix.blocks():
        p, _ = probabilities(calibration.items, theta[rows])
        given[rows] = True if seen is None else seen
        residual[rows] = (right - p.T) * given[rows]
    residual -= residual.sum(axis=0) / np.maximum(given.sum(axis=0), 1)
    residual *= given
    complete = bool(given.all())
    total, n_pairs = 0.0, 0
    z = -ndtri(_Q3_CHANCE / max(1, matrix.n_items * (matrix.n_items - 1) / 2))
    # The mean is known only at the end; under the model it is about -1 / n_items.
    least = -3 / matrix.n_items
    candidates: list[tuple[float, int, int, float]] = []
    norms = (residual**2).sum(axis=0)
    for start in range(0, matrix.n_items, _PAIR_BLOCK):
        block = slice(start, start + _PAIR_BLOCK)
        here = residual[:, block]
        both = np.full((here.shape[1], matrix.n_items), matrix.n_examinees)
        if complete:
            scale = np.outer(norms[block], norms)
        else:  # only examinees who answered both items of a pair
            both = given[:, block].T.astype(float) @ given
            scale = ((here**2).T @ given) * (given[:, block].T.astype(float) @ residual**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            q3 = (here.T @ residual) / np.sqrt(scale)
        upper = np.arange(matrix.n_items) > np.arange(start, start + here.shape[1])[:, None]
        upper &= np.isfinite(q3)
        total += float(q3[upper].sum())
        n_pairs += int(upper.sum())
        by_chance = np.tanh(z / np.sqrt(np.maximum(both - 3, 1)))
        limit = np.maximum(Q3_LIMIT, by_chance)
        i, j = np.nonzero(upper & (q3 - limit > least))
        values = q3[i, j].tolist(), (start + i).tolist(), j.tolist(), limit[i, j].tolist()
        candidates += zip(*values, strict=True)
    mean = total / max(n_pairs, 1)
    flagged = [(q3, i, j) for q3, i, j, limit in candidates if q3 - mean > limit]
    return LocalDependence(
        mean=mean,
        n_flagged=len(flagged),
        pairs=tuple(
            DependentPair(matrix.items[i], matrix.items[j], q3)
            for q3, i, j in nlargest(_MOST_PAIRS, flagged)
        ),
    )


def copies_warning(
    matrix: ScoreMatrix, calibration: Calibration, dependence: LocalDependence
) -> str | None:
    """Warning about pairs of items that all examinees answered alike, if chance is ruled out.

    Copies carry the same information twice, so standard errors of tests with both are too small.
    With few answers or easy items, equal answers may be chance. So the probability that a pair
    agrees for all examinees is computed from its curves and corrected for the number of pairs.
    """
    if not dependence.pairs:
        return None
    column = {item: at for at, item in enumerate(matrix.items)}
    first = np.array([column[pair.first] for pair in dependence.pairs])
    second = np.array([column[pair.second] for pair in dependence.pairs])
    here, there = matrix.scores[:, first], matrix.scores[:, second]
    both = (here != MISSING) & (there != MISSING)
    alike = np.flatnonzero(((here == there) | ~both).all(axis=0))
    if alike.size:
        theta = calibration.thetas(matrix)
        p, q = probabilities(calibration.items.take(first[alike]), theta)
        p_other, q_other = probabilities(calibration.items.take(second[alike]), theta)
        agree = np.where(both[:, alike], np.log(p * p_other + q * q_other).T, 0.0).sum(axis=0)
        alike = alike[agree + np.log(matrix.n_items**2 / 2) < _COPY_LOG_CHANCE]
    if not alike.size:
        return None
    pair = dependence.pairs[int(alike[0])]
    count = "1 pair of items is" if alike.size == 1 else f"{alike.size} pairs of items are"
    return (
        f"{count} answered alike by everybody, as copies are (such as {pair.first!r} and "
        f"{pair.second!r}): a test that asks both counts one answer twice, and its theta is less "
        "sure than it says. Keep one of each."
    )


def _expected_shares(calibration: Calibration, columns: IntArray) -> FloatArray:
    """Expected share of right answers at each sum score, shape (n_items, n_items + 1).

    The distribution of the other items' sum score comes from Lord & Wingersky's recursion, for all
    left-out items in parallel.
    """
    density = calibration.density.thinned()
    p, q = probabilities(calibration.items.take(columns), density.nodes)
    n_items, n_nodes = p.shape
    others = np.zeros((n_items, n_nodes, n_items + 1))
    others[:, :, 0] = density.weights
    for item in range(n_items):
        own = others[item].copy()
        right = others[:, :, :-1] * p[item][:, None]
        others *= q[item][:, None]
        others[:, :, 1:] += right
        others[item] = own
    right = np.zeros((n_items, n_items + 1))
    right[:, 1:] = np.einsum("jk,jks->js", p, others[:, :, :-1])
    wrong = np.einsum("jk,jks->js", q, others)
    shares: FloatArray = right / np.maximum(right + wrong, np.finfo(np.float64).tiny)
    return shares


def _chi_square(
    scores: ByteArray, expected: FloatArray, n_free: int
) -> tuple[FloatArray, IntArray]:
    n_items = scores.shape[1]
    sums = scores.sum(axis=1, dtype=np.intp)
    at_score = np.bincount(sums, minlength=n_items + 1).astype(np.float64)
    right = np.zeros((n_items, n_items + 1))
    np.add.at(right.T, sums, scores)
    inner = slice(1, n_items)  # sums of 0 and n_items determine every answer
    n, observed = at_score[inner], right[:, inner]
    hoped = at_score[inner] * expected[:, inner]
    statistic = np.zeros(n_items)
    df = np.zeros(n_items, dtype=np.intp)
    for item in range(n_items):
        edges = _merged(hoped[item], n - hoped[item])
        if len(edges) <= n_free:
            continue
        r, o, m = (np.add.reduceat(v, edges) for v in (hoped[item], observed[item], n))
        statistic[item] = ((o - r) ** 2 * m / (r * (m - r))).sum()
        df[item] = len(edges) - n_free
    return statistic, df


def _merged(right: FloatArray, wrong: FloatArray) -> IntArray:
    """First scores of groups with enough expected right and wrong answers each."""
    edges, r, w = [0], 0.0, 0.0
    for score in range(len(right)):
        if r >= _LEAST_EXPECTED and w >= _LEAST_EXPECTED:
            edges.append(score)
            r = w = 0.0
        r += right[score]
        w += wrong[score]
    if len(edges) > 1 and (r < _LEAST_EXPECTED or w < _LEAST_EXPECTED):
        edges.pop()  # the incomplete last group joins the one before
    return np.array(edges, dtype=np.intp)


def misfits(keys: Sequence[str], columns: Mapping[str, FloatArray]) -> list[Finding]:
    """Findings for items whose answers do not fit their curve, from a calibration's columns."""
    p_values, rmsea = columns["s_x2_p"], columns["s_x2_rmsea"]
    return [
        Finding(
            code="misfit",
            severity="warning",
            item_id=keys[i],
            field="s_x2_rmsea",
            value=float(rmsea[i]),
            message=f"Item {keys[i]!r}: the answers do not follow its curve (S-X2: RMSEA "
            f"{rmsea[i]:.3f}, p = {p_values[i]:.2g}).",
        )
        for i in np.flatnonzero((p_values < MISFIT_P) & (rmsea >= MISFIT_RMSEA)).tolist()
    ]
