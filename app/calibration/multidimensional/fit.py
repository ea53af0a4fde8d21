"""Fits the multidimensional and the nested model.

There are two methods. The likelihood of held-out answers chooses between them by default:

- `joint`: maximum a posteriori of item parameters and abilities together, as published; see
  `fit_jointly`.
- `variational`: abilities are integrated out, which many examinees with few answers each need; see
  `fit_variationally`.

| symbol | meaning |
|---|---|
| X | abilities, (n_examinees, D) |
| S | slopes on all abilities, (n_items, D) |
| t | intercepts, (n_items,) |
| Z = X S' + t | logits |

Sources: Horn (1965), Psychometrika 30, for parallel analysis, with the 95th percentile instead of
the mean as in Glorfeld (1995), Educational and Psychological Measurement 55; Tierney & Kadane
(1986), JASA 81, eq. 2.2, for the marginal likelihood.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, log_expit

from app.calibration.multidimensional.joint import fit_jointly
from app.calibration.multidimensional.settings import (
    FitMethod,
    MultidimensionalSettings,
    RawFit,
    Watch,
    blocks,
)
from app.calibration.multidimensional.variational import fit_variationally
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.models.multidimensional import Loadings, Population
from app.errors import CalibrationError, InvalidInputError

#: Most dimensions beside the general one if the settings give no number. Language models' answers
#: have dozens of dimensions above chance, but nobody reads a profile of dozens.
MOST_BY_DEFAULT = 4
_HELD_OUT = 0.1  # share of the answers that the comparison of methods holds out
_COMPARED = 500  # most items, and examinees; more would only make the comparison slower
_LEAST_PROBABILITY = 1e-6
_FITS: dict[FitMethod, Callable[[FloatArray, MultidimensionalSettings, Watch | None], RawFit]] = {
    FitMethod.JOINT: fit_jointly,
    FitMethod.VARIATIONAL: fit_variationally,
}
_PERMUTATIONS = 20
_PERCENTILE = 95.0
_ANALYSED = 3000  # most items, and examinees, that the analysis uses
MAX_DIMENSIONS = 12
_CELLS = 2_000_000  # cells of the score matrix computed at once, which bounds the memory
_MOST_STEPS = 50
_LONGEST_STEP = 2.0  # in standard deviations of the population; keeps Newton's method stable
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAnalysis:
    """Result of a parallel analysis.

    Attributes:
        dimensions: Number of eigenvalues above chance, the general dimension included; at least 1.
        eigenvalues: Largest eigenvalues of the items' correlation matrix, falling.
        chance: 95th percentile of each of these eigenvalues over permuted responses.
    """

    dimensions: int
    eigenvalues: tuple[float, ...]
    chance: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MultidimensionalFit:
    """A fitted model.

    Attributes:
        items: Parameters of every item; discriminations and loadings of degenerate items are 0.
        abilities: Abilities of the examinees, shape (n_examinees, D).
        population: Mean and covariance of the abilities.
        log_likelihood: Log-likelihood of all answers, abilities integrated out; see
            `marginal_log_likelihood`.
        converged: Whether the fit converged within the allowed iterations.
        degenerate: Items that everybody answered alike (intercept only), mask, shape (n_items,).
        analysis: Parallel analysis; None where the settings give the number of dimensions.
        compared: Mean log-likelihood of a held-out answer by method, empty without comparison.
    """

    items: Loadings
    abilities: FloatArray
    population: Population
    method: FitMethod
    log_likelihood: float
    iterations: int
    converged: bool
    degenerate: BoolArray
    analysis: ParallelAnalysis | None
    compared: dict[str, float]

    @property
    def dimensions(self) -> int:
        """The number of dimensions K, without the general ability."""
        return int(self.items.loadings.shape[1])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters: slopes and intercepts, less the rotations.

        The likelihood is the same for all rotations of D abilities, which have D (D - 1) / 2
        angles: as many slopes are not free.
        """
        d = self.items.n_abilities
        return self.items.slopes.size + self.items.intercept.size - d * (d - 1) // 2


def fit_multidimensional(
    scores: FloatArray,
    settings: MultidimensionalSettings,
    rng: np.random.Generator,
    watch: Watch | None = None,
) -> MultidimensionalFit:
    """Fit the model to a matrix of scores.

    Args:
        scores: In [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        settings: Settings of the fit.
        rng: Random generator for permutations and held-out answers.
        watch: Called with the iteration and the loss.

    Raises:
        CalibrationError: There are more dimensions than the examinees or items allow, or fewer than
            two items with different scores.
    """
    degenerate = _degenerate(scores)
    useful = np.flatnonzero(~degenerate)
    if useful.size < 2:
        raise CalibrationError(
            "A multidimensional model needs items that tell examinees apart, got "
            f"{useful.size} of {scores.shape[1]}."
        )
    analysis = None
    if settings.dimensions is None:
        analysis = parallel_analysis(scores, rng)
        found = analysis.dimensions - 1 if settings.nested else analysis.dimensions
        # At most one for every 5 examinees and every 3 useful items.
        most = min(MOST_BY_DEFAULT, len(scores) // 5, useful.size // 3)
        settings = replace(settings, dimensions=max(min(found, most), 1))
    n_abilities = check_dimensions(settings, len(scores), useful.size)
    kept = scores[:, useful]
    compared: dict[str, float] = {}
    method = settings.method
    if method is None:
        compared = _compared(kept, settings, rng)
        method = FitMethod(max(compared, key=lambda name: compared[name]))
    raw = _FITS[method](kept, settings, watch)
    items = _all_items(raw.items, scores, useful)
    second = raw.abilities.T @ raw.abilities / len(scores) + raw.covariance
    mean = raw.abilities.mean(axis=0)
    covariance = second - np.outer(mean, mean)
    # Abilities of few examinees may span fewer dimensions; a prior needs variance in each of them.
    covariance += 1e-3 * np.trace(covariance) / n_abilities * np.eye(n_abilities)
    population = Population(mean=mean, covariance=covariance)
    return MultidimensionalFit(
        items=items,
        abilities=raw.abilities,
        population=population,
        method=method,
        log_likelihood=marginal_log_likelihood(items, population, scores, raw.abilities),
        iterations=raw.iterations,
        converged=raw.converged,
        degenerate=degenerate,
        analysis=analysis,
        compared=compared,
    )


def _compared(
    scores: FloatArray, settings: MultidimensionalSettings, rng: np.random.Generator
) -> dict[str, float]:
    """Mean log-likelihood of held-out answers by method."""
    scores = _sampled(scores, _COMPARED, rng)
    hidden = (rng.random(scores.shape) < _HELD_OUT) & ~np.isnan(scores)
    shown = np.where(hidden, np.nan, scores)
    usable = ~_degenerate(shown)
    shown, hidden, scores = shown[:, usable], hidden[:, usable], scores[:, usable]
    likelihoods = {}
    for method, fit in _FITS.items():
        raw = fit(shown, settings, None)
        total = _log_likelihood(raw.items, raw.abilities, scores, hidden)
        likelihoods[method.value] = total / max(int(hidden.sum()), 1)
    return likelihoods


def _degenerate(scores: FloatArray) -> BoolArray:
    """Mask of the items without two different scores."""
    seen = ~np.isnan(scores)
    low = np.where(seen, scores, np.inf).min(axis=0, initial=np.inf)
    high = np.where(seen, scores, -np.inf).max(axis=0, initial=-np.inf)
    same: BoolArray = ~(low < high)
    return same


def _all_items(fitted: Loadings, scores: FloatArray, useful: IntArray) -> Loadings:
    """Parameters of all items: the fitted ones, and constant probabilities for the degenerate."""
    n_items = scores.shape[1]
    seen = np.count_nonzero(~np.isnan(scores), axis=0)
    # Half an answer added on either side keeps the logit finite where all answers are alike.
    share = (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0)
    a, intercept = np.zeros(n_items), np.log(share / (1.0 - share))
    loadings = np.zeros((n_items, fitted.loadings.shape[1]))
    a[useful], intercept[useful], loadings[useful] = fitted.a, fitted.intercept, fitted.loadings
    return Loadings(a, intercept, loadings, fitted.nested)


def check_dimensions(settings: MultidimensionalSettings, n_examinees: int, n_useful: int) -> int:
    """Number of abilities to fit, after a check that the data allow so many.

    An open number of dimensions counts as 1.

    Raises:
        CalibrationError: More dimensions than the examinees or items allow.
        InvalidInputError: Fewer than 1 dimension.
    """
    dimensions = 1 if settings.dimensions is None else settings.dimensions
    if dimensions < 1:
        raise InvalidInputError(f"A model needs at least 1 dimension, got {dimensions}.")
    n_abilities = dimensions + settings.nested
    if n_abilities >= min(n_examinees, n_useful):
        so_many = f"{dimensions} dimension{'s' if dimensions > 1 else ''}"
        what = f"the general ability and {so_many}" if settings.nested else so_many
        raise CalibrationError(
            f"{so_many} {'are' if dimensions > 1 else 'is'} too many: {what} need more than "
            f"{n_abilities} examinees and items that tell them apart, got {n_examinees} "
            f"examinees and {n_useful} such items."
        )
    return n_abilities


def _log_likelihood(
    items: Loadings,
    abilities: FloatArray,
    scores: FloatArray,
    counted: BoolArray,
) -> float:
    total = 0.0
    for block in blocks(scores):
        logit = abilities @ items.slopes[block].T + items.intercept[block]
        y = np.where(counted[:, block], scores[:, block], 0.0)
        right = np.maximum(log_expit(logit), np.log(_LEAST_PROBABILITY))
        wrong = np.maximum(log_expit(-logit), np.log(_LEAST_PROBABILITY))
        total += float(np.sum(np.where(counted[:, block], y * right + (1.0 - y) * wrong, 0.0)))
    return total


def parallel_analysis(scores: FloatArray, rng: np.random.Generator) -> ParallelAnalysis:
    """Number of dimensions: eigenvalues of the items' correlations above those of chance.

    An eigenvalue counts while it exceeds that of responses without any common dimension: each
    item's responses are permuted among the examinees.

    Raises:
        CalibrationError: Fewer than three examinees, or fewer than two items with varying scores.
    """
    scores = _sampled(scores, _ANALYSED, rng)
    scores = scores[:, ~np.isnan(scores).all(axis=0)]
    spread = np.nanstd(scores, axis=0) if len(scores) else np.zeros(0)
    scores = scores[:, spread > 0]
    if min(scores.shape[0] - 1, scores.shape[1]) < 2:
        raise CalibrationError(
            "Finding dimensions needs at least 3 examinees and 2 items that tell them apart, "
            f"got {scores.shape[0]} and {scores.shape[1]}."
        )
    mean = np.nanmean(scores, axis=0)
    standard = np.nan_to_num((scores - mean) / np.nanstd(scores, axis=0))
    found = _largest(standard)
    permuted = np.array([_largest(rng.permuted(standard, axis=0)) for _ in range(_PERMUTATIONS)])
    chance = np.percentile(permuted, _PERCENTILE, axis=0)
    above = found > chance
    count = int(above.size if above.all() else above.argmin())
    return ParallelAnalysis(
        dimensions=max(count, 1), eigenvalues=tuple(found.tolist()), chance=tuple(chance.tolist())
    )


def _sampled(scores: FloatArray, most: int, rng: np.random.Generator) -> FloatArray:
    """At most this many examinees, and items."""
    for axis in (0, 1):
        if scores.shape[axis] > most:
            kept = np.sort(rng.choice(scores.shape[axis], most, replace=False))
            scores = np.take(scores, kept, axis=axis)
    return scores


def _largest(standard: FloatArray) -> FloatArray:
    n, p = standard.shape
    small = standard @ standard.T / n if n < p else standard.T @ standard / n
    count = min(MAX_DIMENSIONS, n - 1, p)
    largest: FloatArray = np.linalg.eigvalsh(small)[::-1][:count]
    return largest


def marginal_log_likelihood(
    items: Loadings, population: Population, scores: FloatArray, start: FloatArray
) -> float:
    """Log-likelihood of all answers, with abilities integrated over the population.

    Laplace's method integrates around each examinee's posterior mode. The value, and the AIC and
    BIC from it, can thus be compared with a one-ability bank's. The likelihood at the estimated
    abilities would rise with each dimension.

    Args:
        items: Parameters of the bank's items.
        population: Distribution of the abilities.
        scores: 0, 1 or NaN where there is no answer, shape (n_examinees, n_items).
        start: First guess of each examinee's abilities, shape (n_examinees, D).
    """
    height = max(_CELLS // max(scores.shape[1], 1), 1)
    return sum(
        _of_block(items, population, scores[first : first + height], start[first : first + height])
        for first in range(0, len(scores), height)
    )


def _of_block(
    items: Loadings, population: Population, scores: FloatArray, start: FloatArray
) -> float:
    n_abilities = items.n_abilities
    answered = ~np.isnan(scores)
    right = np.where(answered, scores, 0.0)
    precision = np.linalg.inv(population.covariance)
    products = items.slopes[:, :, None] * items.slopes[:, None, :]
    products = products.reshape(-1, n_abilities * n_abilities)
    abilities = start.copy()

    def curvature(logit: FloatArray) -> FloatArray:
        chance = expit(logit)
        weights = np.where(answered, chance * (1.0 - chance), 0.0)
        return (weights @ products).reshape(-1, n_abilities, n_abilities) + precision

    for _ in range(_MOST_STEPS):
        logit = abilities @ items.across + items.intercept
        gradient = np.where(answered, right - expit(logit), 0.0) @ items.slopes
        gradient -= (abilities - population.mean) @ precision
        step = np.linalg.solve(curvature(logit), gradient[:, :, None])[:, :, 0]
        length = np.sqrt(np.einsum("ni,ij,nj->n", step, precision, step))
        step *= np.minimum(1.0, _LONGEST_STEP / np.maximum(length, _CLOSE))[:, None]
        abilities += step
        if length.max(initial=0.0) < _CLOSE:
            break
    logit = abilities @ items.across + items.intercept
    answers = np.where(answered, right * logit + log_expit(-logit), 0.0).sum(axis=1)
    deviation = abilities - population.mean
    prior = -0.5 * np.einsum("ni,ij,nj->n", deviation, precision, deviation)
    prior += 0.5 * np.linalg.slogdet(precision)[1]
    width = -0.5 * np.linalg.slogdet(curvature(logit))[1]
    return float(np.sum(answers + prior + width))
