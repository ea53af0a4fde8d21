"""Whether parameters belong to the questions they stand beside: answers tell.

A wrong join is silent. Everything loads, tests converge, standard errors shrink, and theta is
noise. Answers from outside the calibration give it away: with the right join an examinee is right
on items that the parameters call easy for it; with a wrong one that has nothing to do with it.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from app.engine.bank import FloatArray, ItemBank
from app.engine.inference.orders import spearman

Verdict = TypeAliasType("Verdict", Literal["holds", "broken", "doubtful", "undecided"])

#: Standard normal quantile of 0.99: of a hundred wrong joins one may pass as a right one, and of a
#: hundred right ones one may be accused.
_Z_99 = 2.326
#: Real models follow published parameters less closely than the parameters say; those of other
#: families and of another day by half or more.
_LEAST_SHARE = 0.4
#: Probability from which a test is said to be able to tell.
ENOUGH_POWER = 0.9
_LEAST_ANSWERS = 5
#: What choosing items by the answers, and theta with them, adds to T of one test on a wrong join:
#: about one for each, as fitting a parameter does to a log-likelihood ratio; so it was in adaptive
#: tests of 10 to 100 items of GSM8K joined wrongly.
_ADAPTED = 2.0
_GRID = np.linspace(-6.0, 6.0, 121)
_FLOOR = 1e-6
#: Examinees and cells that are looked at; more would tell nothing new.
_MAX_EXAMINEES = 400
_MAX_CELLS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCheck:
    """What answers say of a join.

    Attributes:
        verdict: `holds`: the answers follow these parameters better than parameters dealt anew
            among the items; `broken`: they do not, and those of a right join would; `doubtful`:
            they do, but far less than those of a right join would, as where part of the items is
            joined wrongly; `undecided`: these answers cannot tell.
        z: How much likelier the answers are than with the parameters dealt anew among the items
            that each examinee answered, in standard deviations.
        expected_z: The same if they came from these parameters.
        p_value: Probability of such a `z` or a greater one if the join were wrong.
        power: Probability that a wrong join would be found by as many answers to these items.
        rank_correlation: Spearman's, of the items' shares of right answers with their
            difficulties; None where there are fewer than three items or no spread.
        n_examinees: That tell something: neither all right nor all wrong.
        n_answers: Of these.
        n_items: That they answered.
    """

    verdict: Verdict
    z: float | None
    expected_z: float | None
    p_value: float | None
    power: float
    rank_correlation: float | None
    n_examinees: int
    n_answers: int
    n_items: int


def check_join(
    bank: ItemBank,
    scores: FloatArray,
    usable: NDArray[np.bool_] | None = None,
    adaptive: NDArray[np.bool_] | None = None,
    rng: np.random.Generator | None = None,
) -> JoinCheck:
    """Hold answers against the parameters that they are said to belong to.

    With theta_j where the curves of the items that j answered average to j's score (so that it
    stays when parameters are dealt anew among them), L_ij = log(P/Q) there, and both L and the
    scores centred within each examinee, T = sum L~ x~ is the part of the log-likelihood that
    depends on which parameters go with which item. Dealt anew it has mean 0 and the variance
    sum_jk (x~_j . x~_k) (L~_j . L~_k) / (n_jk - 1), exact where all answered the same items.

    An adaptive test puts a harder item after a right answer, so that its items go with its answers
    whatever the join. `_ADAPTED` is taken off T for that before a join is believed, and left in
    before one is accused.

    Args:
        bank: Parameters by item.
        scores: Shape (n_examinees, n_items), NaN where there is no answer.
        usable: Items to look at, shape (n_items,); by default all. Those with a slope of 0 or
            less, which say the opposite of what they mean, are left out anyway.
        adaptive: Whose items were chosen by their answers, shape (n_examinees,); nobody's by
            default.
        rng: Takes a sample where there are very many answers.

    Source: Hoeffding (1951), Ann. Math. Statist. 22, on linear permutation statistics.
    """
    keep = (bank.a > 0) if usable is None else usable & (bank.a > 0)
    items = np.flatnonzero(keep & ~np.all(np.isnan(scores), axis=0))
    chosen = _sampled(len(scores), len(items), rng)
    scores = scores[np.ix_(chosen, items)]
    adapted = np.zeros(len(chosen)) if adaptive is None else _ADAPTED * adaptive[chosen]
    answered = ~np.isnan(scores)
    rank = _rank_correlation(bank.b[items], scores, answered)
    n = answered.sum(axis=1)
    values = np.where(answered, scores, 0.0)
    mean = values.sum(axis=1) / np.maximum(n, 1)
    spread = np.where(answered, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
    telling = (n >= _LEAST_ANSWERS) & (spread > 0)
    counts = {
        "n_examinees": int(telling.sum()),
        "n_answers": int(n[telling].sum()),
        "n_items": int(answered[telling].any(axis=0).sum()),
    }
    silent = JoinCheck(
        verdict="undecided",
        z=None,
        expected_z=None,
        p_value=None,
        power=0.0,
        rank_correlation=rank,
        **counts,
    )
    if not telling.any():
        return silent
    some, mask = values[telling], answered[telling]
    p = _expected(bank, items, some, mask, n[telling])
    weights = _centred(np.log(p / (1 - p)), mask)
    observed, signal = _centred(some, mask), _centred(p, mask)
    noise = np.where(mask, p * (1 - p), 0.0)
    variance = _variance(observed, weights, mask)
    at_right = _variance(signal, weights, mask, noise)
    if variance <= 0 or at_right <= 0:
        return silent
    shift = float(adapted[telling].sum() / math.sqrt(variance))
    z = float((weights * observed).sum() / math.sqrt(variance)) - shift
    expected = float((weights * signal).sum() / math.sqrt(at_right))
    deviation = math.sqrt(float((weights**2 * noise).sum()) / at_right)
    accused_below = _LEAST_SHARE * expected - _Z_99 * deviation
    return JoinCheck(
        verdict=_verdict(z, accused_below - shift),
        z=z,
        expected_z=expected,
        p_value=_upper_tail(z),
        # Of a wrong join z is standard normal.
        power=1 - _upper_tail(accused_below - shift),
        rank_correlation=rank,
        **counts,
    )


def _verdict(z: float, accused_below: float) -> Verdict:
    if z < accused_below:
        return "doubtful" if z >= _Z_99 else "broken"
    return "holds" if z >= _Z_99 else "undecided"


def _sampled(n_examinees: int, n_items: int, rng: np.random.Generator | None) -> NDArray[np.intp]:
    most = min(_MAX_EXAMINEES, max(2, _MAX_CELLS // max(1, n_items)))
    if n_examinees <= most:
        return np.arange(n_examinees)
    rng = np.random.default_rng(0) if rng is None else rng
    return np.sort(rng.choice(n_examinees, most, replace=False))


def _expected(
    bank: ItemBank,
    items: NDArray[np.intp],
    values: FloatArray,
    mask: NDArray[np.bool_],
    n: NDArray[np.intp],
) -> FloatArray:
    """Expected scores where the curves of each one's items average to its score."""
    curves = mask.astype(np.float64) @ bank.expected_score(_GRID, items).T / n[:, None]
    means = values.sum(axis=1) / n
    theta = np.array(
        [
            np.interp(mean, np.maximum.accumulate(curve), _GRID)
            for mean, curve in zip(means, curves, strict=True)
        ]
    )
    return np.clip(bank.expected_score(theta, items), _FLOOR, 1 - _FLOOR)


def _centred(values: FloatArray, mask: NDArray[np.bool_]) -> FloatArray:
    """Less each examinee's own mean; 0 where there is no answer."""
    kept = np.where(mask, values, 0.0)
    means = kept.sum(axis=1) / mask.sum(axis=1)
    return np.where(mask, values - means[:, None], 0.0)


def _variance(
    scores: FloatArray,
    weights: FloatArray,
    mask: NDArray[np.bool_],
    noise: FloatArray | None = None,
) -> float:
    """Of T with the parameters dealt anew; `noise` is what chance adds to expected scores."""
    together = mask.astype(np.float64) @ mask.T.astype(np.float64)
    products = scores @ scores.T
    if noise is not None:
        products[np.diag_indices_from(products)] += noise.sum(axis=1)
    terms = products * (weights @ weights.T) / np.maximum(together - 1, 1)
    terms[together < 2] = 0.0
    return float(max(terms.sum(), 0.25 * np.trace(terms)))


def _rank_correlation(
    b: FloatArray, scores: FloatArray, answered: NDArray[np.bool_]
) -> float | None:
    n = answered.sum(axis=0)
    with np.errstate(invalid="ignore"):
        shares = np.where(answered, scores, 0.0).sum(axis=0) / n
    known = (n > 0) & np.isfinite(b)
    if known.sum() < 3:
        return None
    return spearman(shares[known], b[known])


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))
