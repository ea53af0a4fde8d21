"""Goodness of fit of a response model, and its verdict: M2 with RMSEA, and SRMSR.

M2 compares observed and expected shares of right answers to single items and to pairs of items. Its
covariance matrix has n (n + 1) / 2 rows for n items, so time grows with n^6 and memory with n^4.
Therefore M2 uses up to `MAX_M2_ITEMS` items, spread evenly over the difficulties. Any consistent
estimates will do for M2, so with parameters from the whole bank M2 of a subset is chi-square as
well. SRMSR grows with n^2 and uses up to `MAX_SRMSR_ITEMS`.

Source: Maydeu-Olivares & Joe (2005), JASA 100, and (2006), Psychometrika 71, eq. 15; RMSEA and its
interval: Maydeu-Olivares & Joe (2014), Multivariate Behavioral Research 49; SRMSR:
Maydeu-Olivares (2013), Measurement 11.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtrc, chndtr

from app.calibration.logistic.calibrate import Calibration
from app.calibration.logistic.curves import SLOPE, Curves, Family, probabilities, slopes_of_curves
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray, IntArray
from app.errors import CalibrationError

MAX_M2_ITEMS = 60
MAX_SRMSR_ITEMS = 1000
LEAST_COMPLETE = 300  # least complete examinees for the asymptotic distribution of M2

_SUBSET_SIZES = (60, 40, 30, 20, 12, 8)
_RMSEA_LEVELS = (0.95, 0.05)  # ends of a 90 % interval
_VERDICTS = ((0.05, "good"), (0.08, "acceptable"), (0.10, "marginal"))
_WORDS = (*(word for _, word in _VERDICTS), "poor")
TOO_FEW = "too few to tell"
#: Least examinees for a verdict better than `poor`. With fewer, parameters overfit the answers, and
#: even with its interval a bank of two abilities would get `good`.
_LEAST_TOLD = 100


#: Names under which M2 is stored.
_FIGURES = {
    "m2": "statistic",
    **{name: name for name in ("df", "p_value", "rmsea", "rmsea_lo", "rmsea_hi")},
    "m2_items": "n_items",
    "m2_examinees": "n_examinees",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class M2:
    """Limited-information test of a response model.

    Attributes:
        p_value: Probability of a larger M2 if the model is true.
        rmsea: Misfit per degree of freedom, independent of the number of examinees.
        rmsea_lo: Lower end of the RMSEA's 90 % interval.
        rmsea_hi: Upper end of the RMSEA's 90 % interval.
        n_examinees: Number of examinees with answers to all these items.
    """

    statistic: float
    df: int
    p_value: float
    rmsea: float
    rmsea_lo: float
    rmsea_hi: float
    n_items: int
    n_examinees: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodness:
    """Fit of a calibration.

    Attributes:
        m2: M2 with RMSEA; None if it cannot be computed.
        m2_missing: Reason why M2 cannot be computed, or an empty string.
        srmsr: Root mean square difference between observed and expected correlations of items.
        srmsr_items: Number of items that SRMSR uses.
        srmsr_chance: Expected SRMSR under a true model, given the number of answers.
    """

    m2: M2 | None
    m2_missing: str
    srmsr: float = float("nan")
    srmsr_items: int = 0
    srmsr_chance: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Write as JSON; what is unknown is None."""
        return {
            **{name: self.m2 and getattr(self.m2, of_m2) for name, of_m2 in _FIGURES.items()},
            "m2_missing": self.m2_missing or None,
            "srmsr": self.srmsr if np.isfinite(self.srmsr) else None,
            "srmsr_items": self.srmsr_items,
            "verdict": self.verdict,
        }

    @property
    def verdict(self) -> str:
        """The worse verdict of RMSEA and of SRMSR beyond chance, if there are enough answers.

        RMSEA alone does not suffice: it is per degree of freedom, and with many items it may be
        small although correlations are far from the model's.
        """
        known = bool(np.isfinite(self.srmsr))
        beyond_chance = max(self.srmsr**2 - self.srmsr_chance**2, 0.0) ** 0.5 if known else 0.0
        if self.m2 is None:
            return verdict_within(self.srmsr, beyond_chance, self.srmsr) if known else TOO_FEW
        word = verdict_within(self.m2.rmsea, self.m2.rmsea_lo, self.m2.rmsea_hi)
        if word != "poor" and self.m2.n_examinees < _LEAST_TOLD:
            word = TOO_FEW
        by_srmsr = verdict(beyond_chance)
        if by_srmsr == "poor":
            return by_srmsr
        return word if word == TOO_FEW else max(word, by_srmsr, key=_WORDS.index)


def verdict_within(value: float, lo: float, hi: float) -> str:
    """Verdict of a figure, or `TOO_FEW` if its interval reaches beyond the next verdict."""
    rank, lowest, highest = (_WORDS.index(verdict(each)) for each in (value, lo, hi))
    return _WORDS[rank] if highest - 1 <= rank <= lowest + 1 else TOO_FEW


def verdict(value: float) -> str:
    """Verdict of an RMSEA or SRMSR: good < 0.05, acceptable < 0.08, marginal < 0.10, or poor."""
    return next((word for limit, word in _VERDICTS if value < limit), "poor")


def goodness_of_fit(matrix: ScoreMatrix, calibration: Calibration) -> Goodness:
    """M2, RMSEA and SRMSR of a calibration on its own answers."""
    m2, missing = None, ""
    try:
        m2 = m2_of(matrix, calibration)
    except CalibrationError as exc:
        missing = exc.detail
    columns = _spread(matrix, np.arange(matrix.n_items), MAX_SRMSR_ITEMS)
    srmsr, chance = _srmsr(matrix.select(items=columns), calibration, columns)
    return Goodness(
        m2=m2,
        m2_missing=missing,
        srmsr=srmsr,
        srmsr_items=len(columns),
        srmsr_chance=chance,
    )


def m2_of(matrix: ScoreMatrix, calibration: Calibration) -> M2:
    """M2 of the largest subset of items that enough examinees answered completely.

    Raises:
        CalibrationError: No subset has enough complete examinees, or the family needs more items.
    """
    columns, rows = _complete_subset(matrix)
    scores = matrix.scores[np.ix_(rows, columns)].astype(np.float64)
    n_examinees, n_items = scores.shape
    first, second = np.triu_indices(n_items, 1)
    curves = Curves.from_natural(calibration.items.take(columns), log_slope=False)
    weights = calibration.density.weights
    columns_of_x = sorted({SLOPE, *calibration.family.free})
    p, _, derivatives = slopes_of_curves(curves, calibration.density.nodes, columns_of_x)
    pairs = p[first] * p[second]
    expected = np.concatenate([p, pairs]) @ weights
    joint = scores.T @ scores / n_examinees
    observed = np.concatenate([scores.mean(axis=0), joint[first, second]])
    gradient = _gradient(calibration.family, p, derivatives, weights, first, second)
    if calibration.free_density:
        gradient = np.column_stack([gradient, np.concatenate([p, pairs])])
    covariance = _moments(p, pairs, weights, first, second) - np.outer(expected, expected)
    # Residuals are whitened by their covariance, less what the parameters could absorb.
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(covariance)))
    residual = solve_triangular(root, observed - expected, lower=True)
    absorbed = solve_triangular(root, gradient, lower=True)
    norms = np.linalg.norm(absorbed, axis=0)
    basis, sizes, _ = np.linalg.svd(absorbed[:, norms > 0] / norms[norms > 0], full_matrices=False)
    basis = basis[:, sizes > 1e-8 * sizes[0]]
    df = len(expected) - basis.shape[1]
    if df < 1:
        raise CalibrationError(
            f"M2 of a {calibration.family.value} needs more than {n_items} items: no degrees of "
            "freedom are left."
        )
    left = residual @ residual - ((basis.T @ residual) ** 2).sum()
    statistic = max(float(n_examinees * left), 0.0)  # rounding may make it negative
    return M2(
        statistic=statistic,
        df=df,
        p_value=float(chdtrc(df, statistic)),
        rmsea=_rmsea(max(statistic - df, 0.0), df, n_examinees),
        rmsea_lo=_rmsea(_noncentrality(statistic, df, _RMSEA_LEVELS[0]), df, n_examinees),
        rmsea_hi=_rmsea(_noncentrality(statistic, df, _RMSEA_LEVELS[1]), df, n_examinees),
        n_items=n_items,
        n_examinees=n_examinees,
    )


def _complete_subset(matrix: ScoreMatrix) -> tuple[IntArray, IntArray]:
    order = np.argsort(-matrix.answers_per_item(), kind="stable")
    best, least = 0, min(LEAST_COMPLETE, matrix.n_examinees)
    for size in _SUBSET_SIZES:
        # Spread over the difficulties, from twice as many items that have the most answers.
        columns = _spread(matrix, order[: max(2 * size, matrix.n_items // 2)], size)
        rows = np.flatnonzero(matrix.answered[:, columns].all(axis=1))
        if len(rows) >= least and len(rows) > 1:
            return columns, rows
        best = max(best, len(rows))
    raise CalibrationError(
        f"M2 needs at least {least} examinees who answered all of 8 items, got {best}."
    )


def _spread(matrix: ScoreMatrix, columns: IntArray, size: int) -> IntArray:
    """At most `size` of the columns, evenly spaced in their order of difficulty."""
    if len(columns) <= size:
        return np.sort(columns)
    order = columns[np.argsort(matrix.item_means()[columns], kind="stable")]
    chosen: IntArray = order[np.linspace(0, len(order) - 1, size).round().astype(np.intp)]
    return np.sort(chosen)


def _gradient(
    family: Family,
    p: FloatArray,
    derivatives: FloatArray,
    weights: FloatArray,
    first: IntArray,
    second: IntArray,
) -> FloatArray:
    """Derivatives of expected shares by the parameters, shape (n_shares, n_parameters)."""
    n_items = len(p)
    columns = []
    for place, column in enumerate(sorted({SLOPE, *family.free})):
        slope = derivatives[:, place]
        single = np.diag(slope @ weights)
        double = np.zeros((len(first), n_items))
        rows = np.arange(len(first))
        double[rows, first] = (slope[first] * p[second]) @ weights
        double[rows, second] = (slope[second] * p[first]) @ weights
        block = np.concatenate([single, double])
        # All items of the 1PL share one slope.
        common = family is Family.RASCH and column == SLOPE
        columns.append(block.sum(axis=1, keepdims=True) if common else block)
    return np.concatenate(columns, axis=1)


def _moments(
    p: FloatArray, pairs: FloatArray, weights: FloatArray, first: IntArray, second: IntArray
) -> FloatArray:
    """Probabilities that two items, an item and a pair, or two pairs are all answered right.

    Entries that share an item are computed separately, as its right answer counts once.
    """
    n_items = len(p)
    both = np.concatenate([p, pairs])
    moments: FloatArray = (both * weights) @ both.T
    single = p @ weights
    double = pairs @ weights
    rows = np.arange(n_items, len(both))
    moments[np.arange(n_items), np.arange(n_items)] = single
    for member in (first, second):
        moments[member, rows] = double
        moments[rows, member] = double
    for item in range(n_items):
        of_item = np.flatnonzero((first == item) | (second == item))
        others = np.where(first[of_item] == item, second[of_item], first[of_item])
        triples = (p[others] * (weights * p[item])) @ p[others].T
        np.fill_diagonal(triples, double[of_item])
        moments[np.ix_(rows[of_item], rows[of_item])] = triples
    return moments


def _rmsea(noncentrality: float, df: int, n_examinees: int) -> float:
    return float(np.sqrt(noncentrality / (df * n_examinees)))


def _noncentrality(statistic: float, df: int, level: float) -> float:
    """Noncentrality at which the statistic is the quantile of `level`; 0 if there is none."""
    from scipy.optimize import brentq

    if chndtr(statistic, df, 0.0) <= level:
        return 0.0
    top = max(statistic - df, 0.0) + 20 * np.sqrt(2 * df + 4 * statistic) + 20
    return float(brentq(lambda nc: chndtr(statistic, df, nc) - level, 0.0, top))


def _srmsr(matrix: ScoreMatrix, calibration: Calibration, columns: IntArray) -> tuple[float, float]:
    """SRMSR, and its value by chance: a correlation of n answers has a standard error 1/sqrt(n)."""
    p, _ = probabilities(calibration.items.take(columns), calibration.density.nodes)
    weights = calibration.density.weights
    single = p @ weights
    spread = np.sqrt(single * (1 - single))
    expected = ((p * weights) @ p.T - np.outer(single, single)) / np.outer(spread, spread)
    n = np.zeros((len(columns), len(columns)))
    right, both = np.zeros_like(n), np.zeros_like(n)
    for _, block, seen in matrix.blocks():
        given = np.ones_like(block) if seen is None else seen
        n += given.T @ given
        right += block.T @ given  # right answers to the row's item, of examinees who answered both
        both += block.T @ block
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = right / n
        variance = mean * (1 - mean)
        observed = (both / n - mean * mean.T) / np.sqrt(variance * variance.T)
    pairs = np.triu_indices(len(columns), 1)
    gaps, answers = (observed - expected)[pairs], n[pairs]
    known = np.isfinite(gaps)
    chance = np.mean(1 / answers[known]) if known.any() else np.nan
    return float(np.sqrt(np.mean(gaps[known] ** 2))), float(np.sqrt(chance))
