"""Fits the multidimensional and the nested model.

Two ways, the better one chosen by the likelihood of answers held out from both:

- `joint`: item parameters and abilities together by maximum a posteriori, as published. The loss is
  l(full) + lambda l(general only) + |x|^2 / 2 + gamma |loadings|_1, minimised by L-BFGS-B with
  analytic gradients. The second term (nested only) keeps the general ability the one that explains
  the answers alone. L-BFGS-B takes the absolute value as two loadings >= 0, one subtracted.
- `variational`: abilities integrated out, which many examinees with few answers each need: a joint
  fit then takes noise in the abilities for slopes. EM with a Gaussian posterior of each examinee
  under the Jaakkola-Jordan bound; every update has a closed form.

| symbol | meaning |
|---|---|
| X | abilities, (n_examinees, D) |
| S | slopes in all abilities, (n_items, D) |
| t | intercepts, (n_items,) |
| Z = X S' + t | logits |

Sources: the WILD study for the nested loss; Cho, Wang, Zhang & Xu (2021), British Journal of
Mathematical and Statistical Psychology 74, for the variational EM of item response models.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]  # scipy ships no types
from scipy.special import log_expit  # type: ignore[import-untyped]

from app.calibration.dimensionality import ParallelAnalysis, parallel_analysis
from app.calibration.marginal import marginal_log_likelihood
from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray
from app.engine.models.multidimensional import Loadings, Population
from app.errors import CalibrationError, InvalidInputError

#: Dimensions beside the general one that are fitted where nobody says how many: language models'
#: answers have dozens above chance, and a profile of dozens is read by no one.
MOST_BY_DEFAULT = 4
_BLOCK_CELLS = 4_000_000  # logits computed at a time: 32 MB an array
_LOSS_CELLS = 100_000  # those of the loss, evaluated hundreds of times: they stay in the cache
_INTERCEPT_SD = 4.0  # prior: keeps items that almost everybody gets right finite
_SLOPE_SD = 2.0  # prior of slopes in the variational fit
_LOG_SLOPE_SD = 0.7  # prior of the log of a in the joint fit of the nested model
_SLOPE_BOUNDS = (0.02, 8.0)
_MAX_LOADING = 10.0
_GAIN = 1e-5  # relative gain of an iteration of the joint fit at which it ends
_HELD_OUT = 0.1
_COMPARED_ITEMS, _COMPARED_EXAMINEES = 500, 500  # a comparison on more would only take longer
_LEAST_PROBABILITY = 1e-6

Watch = Callable[[int, float], None]


class Method(StrEnum):
    """How the model is fitted."""

    JOINT = "joint"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultidimensionalSettings:
    """How a multidimensional bank is calibrated.

    Attributes:
        nested: Whether there is a general ability beside the dimensions.
        dimensions: K; None takes what parallel analysis finds, at most `MOST_BY_DEFAULT`.
        method: None compares both on held-out answers.
        general_weight: lambda, of the likelihood of the general ability alone (joint, nested).
        sparsity: gamma, of the loadings' absolute values (joint).
        max_iterations: Most iterations of either method.
    """

    nested: bool = True
    dimensions: int | None = None
    method: Method | None = None
    general_weight: float = 0.5
    sparsity: float = 0.5
    max_iterations: int = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MultidimensionalFit:
    """A fitted model.

    Attributes:
        items: Loadings of every item; those of a degenerate item are 0.
        abilities: Of the examinees, shape (n_examinees, D).
        population: Their mean and covariance.
        method: That was used.
        log_likelihood: Of all answers, the abilities integrated out; see
            `marginal_log_likelihood`.
        iterations: Used.
        converged: Whether they sufficed.
        degenerate: Items that everybody answered alike, shape (n_items,): the constant is the
            answer, and the intercept says so.
        analysis: Parallel analysis; None where the number of dimensions was given.
        compared: Mean log-likelihood of a held-out answer by method, empty without comparison.
    """

    items: Loadings
    abilities: FloatArray
    population: Population
    method: Method
    log_likelihood: float
    iterations: int
    converged: bool
    degenerate: BoolArray
    analysis: ParallelAnalysis | None
    compared: dict[str, float]

    @property
    def dimensions(self) -> int:
        """K."""
        return int(self.items.loadings.shape[1])


@dataclass(frozen=True, slots=True)
class _Raw:
    abilities: FloatArray
    covariance: FloatArray  # mean posterior covariance of an examinee; 0 for the joint fit
    a: FloatArray
    intercept: FloatArray
    loadings: FloatArray
    iterations: int
    converged: bool


def fit_multidimensional(
    scores: FloatArray,
    settings: MultidimensionalSettings,
    rng: np.random.Generator,
    watch: Watch | None = None,
) -> MultidimensionalFit:
    """Fit the model to a matrix of scores.

    Args:
        scores: In [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        settings: How.
        rng: Deals permutations and held-out answers.
        watch: Called with the iteration and the loss.

    Raises:
        CalibrationError: More dimensions than the examinees or items allow, or no item that tells
            examinees apart.
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
        settings = replace(
            settings, dimensions=_allowed(min(max(found, 1), MOST_BY_DEFAULT), scores, useful.size)
        )
    n_abilities = _check_dimensions(settings, scores, useful.size)
    kept = scores[:, useful]
    compared: dict[str, float] = {}
    method = settings.method
    if method is None:
        compared = _compared(kept, settings, rng)
        method = Method(max(compared, key=lambda name: compared[name]))
    raw = _FITS[method](kept, settings, watch)
    items = _all_items(raw, scores, useful, settings.nested)
    second = raw.abilities.T @ raw.abilities / len(scores) + raw.covariance
    mean = raw.abilities.mean(axis=0)
    covariance = second - np.outer(mean, mean)
    # Few examinees may lie in a plane; a belief needs some width in every direction.
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


def joint_loss(
    parameters: FloatArray,
    scores: FloatArray,
    settings: MultidimensionalSettings,
) -> tuple[float, FloatArray]:
    """The published loss and its gradient.

    Args:
        parameters: Abilities (n, D); then of each item the log of a (nested only), the intercept,
            the positive and the negative part of K loadings; all in C order, one after the other.
        scores: Shape (n_examinees, n_items), NaN where there is no answer.
        settings: The weights; `dimensions` is given.
    """
    layout = _Layout.of(scores, settings)
    x, log_a, intercept, positive, negative = layout.parts(parameters)
    loadings = positive - negative
    a = np.exp(log_a)
    slopes = a[:, None] * loadings
    if settings.nested:
        slopes = np.column_stack([a, slopes])
    weight = settings.general_weight if settings.nested else 0.0
    loss = 0.5 * float(np.sum(x * x)) + settings.sparsity * float((positive + negative).sum())
    loss += 0.5 * float(np.sum((intercept / _INTERCEPT_SD) ** 2))
    loss += 0.5 * float(np.sum((log_a / _LOG_SLOPE_SD) ** 2))
    d_x = x.copy()
    d_slopes, d_intercept = np.empty_like(slopes), intercept / _INTERCEPT_SD**2
    for block in _blocks(scores, _LOSS_CELLS):
        y = scores[:, block]
        seen = ~np.isnan(y)
        everything = bool(seen.all())
        part, residual = _deviance(y, x @ slopes[block].T + intercept[block], seen, everything)
        loss += part
        d_x += residual @ slopes[block]
        d_slopes[block] = residual.T @ x
        d_intercept[block] += residual.sum(axis=0)
        if weight:
            logit = np.outer(x[:, 0], a[block]) + intercept[block]
            part, residual = _deviance(y, logit, seen, everything)
            loss += weight * part
            d_x[:, 0] += weight * (residual @ a[block])
            d_slopes[block, 0] += weight * (residual.T @ x[:, 0])
            d_intercept[block] += weight * residual.sum(axis=0)
    d_loadings = d_slopes[:, -layout.n_dimensions :] * a[:, None]
    d_log_a = (d_slopes * slopes).sum(axis=1) + log_a / _LOG_SLOPE_SD**2
    return loss, layout.joined(
        d_x, d_log_a, d_intercept, d_loadings + settings.sparsity, settings.sparsity - d_loadings
    )


def _deviance(
    y: FloatArray, logit: FloatArray, seen: BoolArray, everything: bool
) -> tuple[float, FloatArray]:
    """Minus the log-likelihood of a block, and its slope in the logits: one exponential a cell."""
    small = np.exp(-np.abs(logit))
    cost = np.maximum(logit, 0.0) + np.log1p(small) - y * logit
    residual = np.where(logit >= 0.0, 1.0, small) / (1.0 + small) - y
    if not everything:
        cost, residual = np.where(seen, cost, 0.0), np.where(seen, residual, 0.0)
    return float(cost.sum()), residual


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parameters of the joint fit lie in one vector."""

    n_examinees: int
    n_items: int
    n_dimensions: int
    nested: bool

    @classmethod
    def of(cls, scores: FloatArray, settings: MultidimensionalSettings) -> "_Layout":
        n_examinees, n_items = scores.shape
        return cls(n_examinees, n_items, settings.dimensions or 1, settings.nested)

    @property
    def n_abilities(self) -> int:
        return self.n_dimensions + self.nested

    def parts(self, parameters: FloatArray) -> tuple[FloatArray, ...]:
        n, j, k = self.n_examinees, self.n_items, self.n_dimensions
        sizes = [n * self.n_abilities, j if self.nested else 0, j, j * k, j * k]
        x, log_a, intercept, positive, negative = np.split(parameters, np.cumsum(sizes)[:-1])
        return (
            x.reshape(n, -1),
            log_a if self.nested else np.zeros(j),
            intercept,
            positive.reshape(j, k),
            negative.reshape(j, k),
        )

    def joined(
        self,
        x: FloatArray,
        log_a: FloatArray,
        intercept: FloatArray,
        positive: FloatArray,
        negative: FloatArray,
    ) -> FloatArray:
        first = [x.ravel(), log_a] if self.nested else [x.ravel()]
        return np.concatenate([*first, intercept, positive.ravel(), negative.ravel()])

    def bounds(self) -> list[tuple[float | None, float | None]]:
        n, j, k = self.n_examinees, self.n_items, self.n_dimensions
        low, high = np.log(_SLOPE_BOUNDS)
        free: list[tuple[float | None, float | None]] = [(None, None)]
        return (
            free * (n * self.n_abilities)
            + [(float(low), float(high))] * (j if self.nested else 0)
            + free * j
            + [(0.0, _MAX_LOADING)] * (2 * j * k)
        )


def _joint(scores: FloatArray, settings: MultidimensionalSettings, watch: Watch | None) -> _Raw:
    layout = _Layout.of(scores, settings)
    x, a, intercept, loadings = _factor_start(scores, settings)
    start = layout.joined(
        x, np.log(a), intercept, np.maximum(loadings, 0.0), np.maximum(-loadings, 0.0)
    )
    count = 0

    def tell(intermediate_result: Any) -> None:  # SciPy passes the result by this name
        nonlocal count
        count += 1
        if watch is not None:
            watch(count, float(intermediate_result.fun))

    result = minimize(
        joint_loss,
        start,
        args=(scores, settings),
        jac=True,
        method="L-BFGS-B",
        bounds=layout.bounds(),
        callback=tell,
        options={
            "maxiter": settings.max_iterations,
            "maxfun": 2 * settings.max_iterations,
            "ftol": _GAIN,
        },
    )
    x, log_a, intercept, positive, negative = layout.parts(result.x)
    d = layout.n_abilities
    a, loadings = np.exp(log_a), positive - negative
    slopes = a[:, None] * loadings
    if settings.nested:
        slopes = np.column_stack([a, slopes])
    # The same model in units of the examinees: mean 0, standard deviation 1, more is better.
    mean, sd = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    unit = sd * np.where(slopes.sum(axis=0) < 0.0, -1.0, 1.0)
    a, loadings = _split(slopes * unit, nested=settings.nested)
    return _Raw(
        abilities=(x - mean) / unit,
        covariance=np.zeros((d, d)),
        a=a,
        intercept=intercept + slopes @ mean,
        loadings=loadings,
        iterations=int(result.nit),
        converged=bool(result.success),
    )


def _factor_start(
    scores: FloatArray, settings: MultidimensionalSettings
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Abilities, a, intercepts and loadings from principal components of the scores."""
    n, k = len(scores), settings.dimensions or 1
    d = k + settings.nested
    centred, mean = _centred(scores)
    general = np.nanmean(np.where(np.isnan(scores), np.nan, centred), axis=1)
    components = []
    if settings.nested:
        scale = float(general.std()) or 1.0
        components.append(general / scale)
        centred = centred - np.outer(components[0], components[0] @ centred / n)
    _, vectors = np.linalg.eigh(centred @ centred.T)
    components += [vectors[:, -1 - i] * np.sqrt(n) for i in range(min(k, n))]
    x = np.column_stack(components)[:, :d]
    x = x - x.mean(axis=0)
    centred, _ = _centred(scores)
    # A logit moves 1 / (p q) times as fast as a probability.
    rise = np.maximum(mean * (1.0 - mean), 0.05)[:, None]
    slopes = np.clip(centred.T @ x / n / rise, -3.0, 3.0)
    intercept = np.log(np.clip(mean, 0.02, 0.98) / np.clip(1.0 - mean, 0.02, 0.98))
    if not settings.nested:
        return x, np.ones(len(mean)), intercept, slopes
    a = np.clip(slopes[:, 0], 0.1, 4.0)
    return x, a, intercept, np.clip(slopes[:, 1:] / a[:, None], -_MAX_LOADING, _MAX_LOADING)


def _variational(
    scores: FloatArray, settings: MultidimensionalSettings, watch: Watch | None
) -> _Raw:
    n = len(scores)
    x, a, intercept, loadings = _factor_start(scores, settings)
    slopes = a[:, None] * loadings
    if settings.nested:
        slopes = np.column_stack([a, slopes])
    d = slopes.shape[1]
    covariances = np.tile(0.1 * np.eye(d), (n, 1, 1))
    ridge = np.diag([1.0 / _SLOPE_SD**2] * d + [1.0 / _INTERCEPT_SD**2])
    converged, iteration = False, 0
    for iteration in range(1, settings.max_iterations + 1):
        before = slopes
        second = covariances + x[:, :, None] * x[:, None, :]
        new_slopes, new_intercept = np.empty_like(slopes), np.empty_like(intercept)
        precision = np.tile(np.eye(d), (n, 1, 1)).reshape(n, d * d)
        linear = np.zeros((n, d))
        for block in _blocks(scores):
            y = scores[:, block]
            seen = ~np.isnan(y)
            half = np.where(seen, y - 0.5, 0.0)
            eta = _bound(x, second, slopes[block], intercept[block]) * seen
            s, t = _item_step(eta, half, x, second, ridge)
            new_slopes[block], new_intercept[block] = s, t
            # The same bound serves the examinees: an E-step with fresh items.
            outer = (s[:, :, None] * s[:, None, :]).reshape(len(s), d * d)
            precision += 2.0 * eta @ outer
            linear += half @ s - 2.0 * (eta * t) @ s
        slopes, intercept = new_slopes, new_intercept
        covariances = np.asarray(np.linalg.inv(precision.reshape(n, d, d)), dtype=np.float64)
        x = np.einsum("nij,nj->ni", covariances, linear)
        x, covariances, slopes, intercept = _standardised(x, covariances, slopes, intercept)
        moved = float(np.sqrt(np.mean((slopes - before) ** 2)))
        if watch is not None:
            watch(iteration, moved)
        if moved < 1e-3:
            converged = True
            break
    x, covariance, slopes = _turned(x, covariances.mean(axis=0), slopes, nested=settings.nested)
    a, loadings = _split(slopes, nested=settings.nested)
    return _Raw(x, covariance, a, intercept, loadings, iteration, converged)


def _split(slopes: FloatArray, *, nested: bool) -> tuple[FloatArray, FloatArray]:
    """Discriminations and loadings: a and K with slopes a (1, K) or, at |K| = 1, a K."""
    if nested:
        a = np.maximum(slopes[:, 0], _SLOPE_BOUNDS[0])
        return a, slopes[:, 1:] / a[:, None]
    a = np.maximum(np.linalg.norm(slopes, axis=1), 1e-6)
    return a, slopes / a[:, None]


def _bound(
    x: FloatArray, second: FloatArray, slopes: FloatArray, intercept: FloatArray
) -> FloatArray:
    """eta(xi) = tanh(xi / 2) / (4 xi) at the best xi^2 = E[z^2], shape (n, block)."""
    n, d = x.shape
    outer = (slopes[:, :, None] * slopes[:, None, :]).reshape(len(slopes), d * d)
    square = second.reshape(n, d * d) @ outer.T + 2.0 * (x @ slopes.T) * intercept + intercept**2
    xi = np.sqrt(np.maximum(square, 1e-8))
    eta: FloatArray = np.tanh(xi / 2.0) / (4.0 * xi)
    return eta


def _item_step(
    eta: FloatArray, half: FloatArray, x: FloatArray, second: FloatArray, ridge: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes and intercepts that maximise the bound: weighted least squares for each item."""
    n, d = x.shape
    n_items = eta.shape[1]
    normal = np.empty((n_items, d + 1, d + 1))
    normal[:, :d, :d] = 2.0 * (eta.T @ second.reshape(n, d * d)).reshape(n_items, d, d)
    normal[:, :d, d] = normal[:, d, :d] = 2.0 * eta.T @ x
    normal[:, d, d] = 2.0 * eta.sum(axis=0)
    right = np.column_stack([half.T @ x, half.sum(axis=0)])
    solved = np.linalg.solve(normal + ridge, right[:, :, None])[:, :, 0]
    return solved[:, :d], solved[:, d]


def _standardised(
    x: FloatArray, covariances: FloatArray, slopes: FloatArray, intercept: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """The same model with abilities of mean 0 and covariance I: EM gets there, but slowly."""
    mean = x.mean(axis=0)
    covariance = np.cov(x.T, bias=True).reshape(x.shape[1], -1) + covariances.mean(axis=0)
    root = np.linalg.cholesky(covariance)
    back = np.linalg.inv(root)
    return (
        (x - mean) @ back.T,
        back @ covariances @ back.T,
        slopes @ root,
        intercept + slopes @ mean,
    )


def _turned(
    x: FloatArray, covariance: FloatArray, slopes: FloatArray, *, nested: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Abilities turned to axes that can be read: the general one first, the others by varimax."""
    d = slopes.shape[1]
    turn = np.eye(d)
    if nested:
        # What the mean slope points at moves all items together.
        first = slopes.mean(axis=0)
        turn = np.linalg.qr(np.column_stack([first, np.eye(d)]))[0]
        turn[:, 0] *= np.sign(turn[:, 0] @ first)
    first_free = int(nested)
    if d - first_free > 1:
        free = slopes @ turn[:, first_free:]
        turn[:, first_free:] = turn[:, first_free:] @ _varimax(free)
    signs = np.sign((slopes @ turn).sum(axis=0))
    turn = turn * np.where(signs == 0, 1.0, signs)
    return x @ turn, turn.T @ covariance @ turn, slopes @ turn


def _varimax(slopes: FloatArray) -> FloatArray:
    """Kaiser (1958), Psychometrika 23: the rotation of most varied squared loadings."""
    turn = np.eye(slopes.shape[1])
    for _ in range(100):
        turned = slopes @ turn
        target = turned**3 - turned * np.mean(turned**2, axis=0)
        left, _, right = np.linalg.svd(slopes.T @ target)
        new = left @ right
        if np.abs(new - turn).max() < 1e-8:
            break
        turn = new
    rotation: FloatArray = turn
    return rotation


_FITS: dict[Method, Callable[[FloatArray, MultidimensionalSettings, Watch | None], _Raw]] = {
    Method.JOINT: _joint,
    Method.VARIATIONAL: _variational,
}


def _compared(
    scores: FloatArray, settings: MultidimensionalSettings, rng: np.random.Generator
) -> dict[str, float]:
    """Mean log-likelihood of answers that neither method saw."""
    for axis, most in ((0, _COMPARED_EXAMINEES), (1, _COMPARED_ITEMS)):
        if scores.shape[axis] > most:
            kept = np.sort(rng.choice(scores.shape[axis], most, replace=False))
            scores = np.take(scores, kept, axis=axis)
    hidden = (rng.random(scores.shape) < _HELD_OUT) & ~np.isnan(scores)
    shown = np.where(hidden, np.nan, scores)
    usable = ~_degenerate(shown)
    shown, hidden, scores = shown[:, usable], hidden[:, usable], scores[:, usable]
    found = {}
    for method, fit in _FITS.items():
        raw = fit(shown, settings, None)
        items = Loadings(raw.a, raw.intercept, raw.loadings, settings.nested)
        total = _log_likelihood(items, raw.abilities, scores, hidden)
        found[method.value] = total / max(int(hidden.sum()), 1)
    return found


def _degenerate(scores: FloatArray) -> BoolArray:
    """Items without two different answers."""
    seen = ~np.isnan(scores)
    low = np.where(seen, scores, np.inf).min(axis=0, initial=np.inf)
    high = np.where(seen, scores, -np.inf).max(axis=0, initial=-np.inf)
    same: BoolArray = ~(low < high)
    return same


def _all_items(raw: _Raw, scores: FloatArray, useful: IntArray, nested: bool) -> Loadings:
    """The items fitted, and the degenerate ones answered by their constant."""
    n_items = scores.shape[1]
    seen = np.count_nonzero(~np.isnan(scores), axis=0)
    # Half an answer on either side keeps the logit of "always" finite.
    share = (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0)
    a, intercept = np.zeros(n_items), np.log(share / (1.0 - share))
    loadings = np.zeros((n_items, raw.loadings.shape[1]))
    a[useful], intercept[useful], loadings[useful] = raw.a, raw.intercept, raw.loadings
    return Loadings(a, intercept, loadings, nested)


def _check_dimensions(settings: MultidimensionalSettings, scores: FloatArray, n_useful: int) -> int:
    dimensions = settings.dimensions or 0
    if dimensions < 1:
        raise InvalidInputError(f"A model needs at least 1 dimension, got {dimensions}.")
    n_abilities = dimensions + settings.nested
    if n_abilities >= min(len(scores), n_useful):
        what = "the general ability and " if settings.nested else ""
        raise CalibrationError(
            f"{dimensions} dimensions are too many: {what}{dimensions} dimensions take more than "
            f"{n_abilities} examinees and items that tell them apart, got {len(scores)} examinees "
            f"and {n_useful} such items."
        )
    return n_abilities


def _allowed(dimensions: int, scores: FloatArray, n_useful: int) -> int:
    """So many dimensions that each is seen by several examinees."""
    return max(min(dimensions, len(scores) // 5, n_useful // 3), 1)


def _log_likelihood(
    items: Loadings,
    abilities: FloatArray,
    scores: FloatArray,
    counted: BoolArray,
) -> float:
    total = 0.0
    for block in _blocks(scores):
        logit = abilities @ items.slopes[block].T + items.intercept[block]
        y = np.where(counted[:, block], scores[:, block], 0.0)
        right = np.maximum(log_expit(logit), np.log(_LEAST_PROBABILITY))
        wrong = np.maximum(log_expit(-logit), np.log(_LEAST_PROBABILITY))
        total += float(np.sum(np.where(counted[:, block], y * right + (1.0 - y) * wrong, 0.0)))
    return total


def _centred(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scores about their items' means, 0 where there is no answer."""
    mean = np.nanmean(scores, axis=0)
    return np.nan_to_num(scores - mean), mean


def _blocks(scores: FloatArray, cells: int = _BLOCK_CELLS) -> Iterator[slice]:
    width = max(cells // max(len(scores), 1), 1)
    for first in range(0, scores.shape[1], width):
        yield slice(first, min(first + width, scores.shape[1]))
