"""Calibrates items with continuous scores: slopes, difficulties and dispersions.

| symbol | meaning |
|---|---|
| y | score in [0, 1], shape (n_examinees, n_items), NaN where missing |
| x | slope a and intercept of each item, shape (n_items, 2) |
| W | posterior of each examinee over the nodes |
| v | mu (1 - mu), so that Var(y) = k v |

Maximises the marginal quasi-likelihood, with theta ~ N(0, 1); tests use the same quasi-likelihood
(`app.engine.models.continuous`). Item parameters come from a population, x ~ N(m, S), whose mean
and covariance are estimated too; dispersions are shrunk to a common one. Where an item's own
answers say little, its parameters thus come from all items: with 8 examinees, slopes and
dispersions are nearly common; with 500, each item has its own. No threshold has to be chosen.

Sources: Bock & Aitkin (1981), Psychometrika 46, and Wedderburn (1974), Biometrika 61, for the
objective; Longford (1987), Biometrika 74, for S; Buehlmann & Straub (1970), Mitteilungen der
Vereinigung Schweizerischer Versicherungsmathematiker 70, for the dispersions; Liu, Rubin & Wu
(1998), Biometrika 85, for rescaling theta by its mean and sd, in which plain EM is slowest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, softmax

from app.calibration.continuous.scores import (
    Answers,
    ContinuousCalibration,
    conformance,
    log_likelihood,
    require_calibratable,
)
from app.calibration.logistic.expectation import LatentDensity
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray, ItemParameters
from app.engine.models.continuous import CONTINUOUS
from app.engine.responses import ResponseTable
from app.errors import CalibrationError
from app.printable import percent

_BOUND = 6.0
_ROUGH_NODES, _MOST_NODES = 121, 961
_LEAST_MASS = 1e-9  # nodes with fewer expected examinees than this are left out
_LEAST_K, _MOST_K = 1e-4, 1.0  # no scores in [0, 1] vary more than scores of 0 and 1 (k = 1)
_LEAST_VARIANCE = 1e-12  # with less variance given theta, no answer to an item is uncertain
_LEAST_SD = 1e-3  # least standard deviation of slopes or intercepts among the items
_MOST_CORRELATION = 0.95
_RIDGE = 1e-6  # keeps the information of an item with one examinee invertible
_LONGEST_STEP = 1.0
_NEWTON_STEPS = 2
_MOSTLY_OWN = 0.8
_MANY_ANSWERS = 50  # with so many each, items that still share a dispersion are really alike
_CONVERGED = 1e-3  # converged: a cycle moves no parameter by more than this many standard errors
_NEARLY_CONVERGED = 0.05  # the same measure, below which the grid of nodes is refined


@dataclass(frozen=True, slots=True, eq=False)
class _Items:
    """Parameters of the items and of the population that they come from.

    Attributes:
        x: Slopes and intercepts, shape (n_items, 2).
        k: Dispersions, shape (n_items,).
        mean: Mean of x among the items, shape (2,).
        spread: Covariance of x among the items, shape (2, 2).
    """

    x: FloatArray
    k: FloatArray
    mean: FloatArray
    spread: FloatArray

    @property
    def parameters(self) -> ItemParameters:
        zeros = np.zeros(len(self.k))
        return ItemParameters(self.x[:, 0], self.x[:, 1], zeros, zeros + 1, self.k)

    def on_standard_theta(self, mean: float, sd: float) -> "_Items":
        """The same curves for (theta - mean) / sd."""
        turn = np.array([[sd, 0.0], [mean, 1.0]])
        return replace(
            self, x=self.x @ turn.T, mean=turn @ self.mean, spread=turn @ self.spread @ turn.T
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Result of the E-step: expected sums at the nodes that have examinees.

    Attributes:
        nodes: Thetas, shape (n_nodes,).
        weights: Posteriors W at the nodes, shape (n_examinees, n_nodes).
        seen: Expected number of answers, shape (n_items, n_nodes).
        total: Expected sums of scores, shape (n_items, n_nodes).
        squares: Expected sums of squared scores, shape (n_items, n_nodes).
    """

    nodes: FloatArray
    weights: FloatArray
    seen: FloatArray
    total: FloatArray
    squares: FloatArray
    mean: float
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class _MStep:
    """Result of the M-step.

    Attributes:
        information: Information of the answers about x, without the prior, shape (n_items, 2, 2).
        covariance: Posterior covariance of x, with the prior, shape (n_items, 2, 2).
        df: Degrees of freedom of each item's own dispersion, in answers, shape (n_items,).
        df_common: Number of answers that the common dispersion counts as.
    """

    items: _Items
    information: FloatArray
    covariance: FloatArray
    df: FloatArray
    df_common: float
    k_common: float


def calibrate_continuous(
    table: ResponseTable,
    *,
    max_cycles: int = 1000,
    watch: Callable[[int, float], None] | None = None,
) -> ContinuousCalibration:
    """Calibrate items; slopes and dispersions differ as far as the answers tell the items apart.

    Args:
        table: Scores in [0, 1]; 1 is best.
        max_cycles: Most cycles of an E-step and an M-step, before those of the errors.
        watch: Called after each cycle with its number and its longest step in standard errors.

    Raises:
        InvalidInputError: A score outside [0, 1].
        CalibrationError: Fewer than 2 examinees or items, an item whose scores are all alike, an
            examinee without answers, or items that split the examinees into the same groups.
    """
    require_calibratable(table)
    answers = Answers.of(table.scores)
    density = LatentDensity.normal(n_nodes=_ROUGH_NODES, bound=_BOUND)
    items = _start(table.scores)
    cycle = 0
    while True:
        cycle += 1
        counts = _expect(answers, items, density)
        m_step = _maximise(answers, items, counts)
        after = m_step.items.on_standard_theta(counts.mean, counts.sd)
        distance = _distance(items, after, m_step)
        items = after
        if watch is not None:
            watch(cycle, distance)
        finer = None
        if distance < _NEARLY_CONVERGED:
            at_node = CONTINUOUS.information(items.parameters.column(), density.nodes)
            finer = density.refined(at_node.sum(axis=0), _MOST_NODES)
        density = finer or density
        converged = finer is None and distance < _CONVERGED
        if converged or cycle >= max_cycles:
            break
    return _finished(table, answers, density, items, converged, cycle)


def _start(scores: FloatArray) -> _Items:
    """Start values: slopes of 1, intercepts from mean scores, one dispersion."""
    n_items = scores.shape[1]
    means = np.clip(np.nanmean(scores, axis=0), 0.02, 0.98)
    x = np.stack([np.ones(n_items), np.log(means / (1 - means))], axis=1)
    k = float(np.nanmean(np.nanvar(scores, axis=0)) / np.mean(means * (1 - means)))
    spread = np.diag([0.1, x[:, 1].var() + 0.1])
    return _Items(x, np.full(n_items, np.clip(k, _LEAST_K, _MOST_K)), x.mean(axis=0), spread)


def _expect(answers: Answers, items: _Items, density: LatentDensity) -> _Counts:
    z = np.outer(items.x[:, 0], density.nodes) + items.x[:, 1:]
    joint = (answers.y / items.k) @ z - (answers.seen / items.k) @ np.logaddexp(0.0, z)
    joint += np.log(np.maximum(density.weights, 1e-300))
    weights = softmax(joint, axis=1)
    mass = weights.sum(axis=0)
    mean = float(mass @ density.nodes / mass.sum())
    sd = float(np.sqrt(mass @ (density.nodes - mean) ** 2 / mass.sum()))
    populated = mass > _LEAST_MASS
    weights = weights[:, populated]
    return _Counts(
        density.nodes[populated],
        weights,
        answers.seen.T @ weights,
        answers.y.T @ weights,
        (answers.y**2).T @ weights,
        mean,
        sd,
    )


def _maximise(answers: Answers, items: _Items, counts: _Counts) -> _MStep:
    """Take Newton steps for every item, then update the dispersions, then the item population."""
    precision = np.linalg.inv(items.spread)
    x = items.x
    for _ in range(_NEWTON_STEPS):
        mu = expit(np.outer(x[:, 0], counts.nodes) + x[:, 1:])
        residual = counts.total - counts.seen * mu
        gradient = np.stack([residual @ counts.nodes, residual.sum(axis=1)], axis=1)
        gradient = gradient / items.k[:, None] - (x - items.mean) @ precision
        information = _information(counts, mu, items.k)
        steps = np.linalg.solve(information + precision, gradient[..., None])[..., 0]
        x = x + np.clip(steps, -_LONGEST_STEP, _LONGEST_STEP)
    mu = expit(np.outer(x[:, 0], counts.nodes) + x[:, 1:])
    information = _information(counts, mu, items.k)
    covariance = np.linalg.inv(information + precision)
    leverage = np.einsum("jab,jba->j", covariance, information)
    n = counts.seen.sum(axis=1)
    df = np.maximum(n - leverage, 0.5)
    own, scatter = _own_dispersions(answers, counts, mu)
    own, scatter = own * n / df, scatter * (n / df) ** 2 * n / np.maximum(n - 1, 1)
    k, k_common, df_common = _shrunk(own, scatter, n)
    k = np.clip(k, _LEAST_K, _MOST_K)
    errors = np.asarray(np.linalg.inv(information + _RIDGE * np.eye(2)), dtype=np.float64)
    own_x = x + np.einsum("jab,jb->ja", errors, (x - items.mean) @ precision)
    spread = _spread(own_x - x.mean(axis=0), errors, items.spread)
    updated = _Items(x, k, x.mean(axis=0), spread)
    return _MStep(updated, _information(counts, mu, k), covariance, df, df_common, k_common)


def _spread(own: FloatArray, errors: FloatArray, before: FloatArray) -> FloatArray:
    """Covariance of slope and intercept among the items.

    Fisher scoring for the variances of a normal random-effects model. Unlike EM, it converges
    quickly even where the items hardly differ.

    Args:
        own: Estimate of each item's x from its own answers, minus the mean, shape (n_items, 2).
        errors: Covariances of the estimates' errors, shape (n_items, 2, 2).
        before: The covariance of the previous cycle.

    Source: Longford (1987).
    """
    weight = 1 / (np.diag(before) + np.einsum("jaa->ja", errors))
    pairs = weight[:, :, None] * weight[:, None, :]
    moments = pairs * (own[:, :, None] * own[:, None, :] - errors)
    spread = moments.sum(axis=0) / pairs.sum(axis=0)
    sd = np.sqrt(np.maximum(np.diag(spread), _LEAST_SD**2))
    correlation = np.clip(spread[0, 1] / (sd[0] * sd[1]), -_MOST_CORRELATION, _MOST_CORRELATION)
    covariance: FloatArray = np.outer(sd, sd) * [[1.0, correlation], [correlation, 1.0]]
    return covariance


def _own_dispersions(
    answers: Answers, counts: _Counts, mu: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Each item's own dispersion (squared residuals over mu (1 - mu)), and its scatter by answer.

    Raises:
        CalibrationError: No answer to some item is uncertain given theta.
    """
    mean, square = counts.weights @ mu.T, counts.weights @ (mu * mu).T
    residual = (answers.y**2 - 2 * answers.y * mean + square) * answers.seen
    variance = (mean - square) * answers.seen
    expected = variance.sum(axis=0)
    if (expected < _LEAST_VARIANCE).any():
        raise CalibrationError(
            "The items' slopes grow without limit: all items split the examinees into the same "
            "groups, so that one item tells as much as all of them."
        )
    own = residual.sum(axis=0) / expected
    n = answers.seen.sum(axis=0)
    scatter = ((residual - own * variance) ** 2).sum(axis=0) * n / expected**2
    return own, scatter


def _information(counts: _Counts, mu: FloatArray, k: FloatArray) -> FloatArray:
    """Information about slope and intercept given the thetas, shape (n_items, 2, 2)."""
    weight = counts.seen * mu * (1 - mu) / k[:, None]
    zeroth, first, second = (weight @ counts.nodes**power for power in range(3))
    return np.stack([second, first, first, zeroth], axis=1).reshape(-1, 2, 2)


def _shrunk(own: FloatArray, scatter: FloatArray, n: FloatArray) -> tuple[FloatArray, float, float]:
    """Shrink each item's own dispersion towards a common one.

    Args:
        own: Mean over an item's answers of their single estimates of the dispersion.
        scatter: Variance of these estimates among the answers of an item.
        n: Number of answers to each item.

    Returns:
        Dispersions, the common one, and how many answers it counts as.

    The true variance between items is the variance of their means, minus what the scatter within
    items explains (Buehlmann & Straub 1970). No distribution of the scores is assumed.
    """
    common = float(np.average(own, weights=n))
    between = float(((own - common) ** 2 - scatter / n).mean())
    if between <= 0:
        return np.full(len(own), common), common, np.inf
    weight = float(scatter.mean() / between)
    return (weight * common + n * own) / (weight + n), common, weight


def _distance(before: _Items, after: _Items, step: _MStep) -> float:
    """Largest change of a parameter in one cycle, in its standard errors."""
    errors = np.sqrt(np.einsum("jaa->ja", step.covariance))
    of_k = np.abs(np.log(after.k / before.k)) * np.sqrt((step.df + min(step.df_common, 1e6)) / 2)
    of_spread = np.abs(np.log(np.diag(after.spread) / np.diag(before.spread)))
    return float(max((np.abs(after.x - before.x) / errors).max(), of_k.max(), of_spread.max()))


def _finished(
    table: ResponseTable,
    answers: Answers,
    density: LatentDensity,
    items: _Items,
    converged: bool,
    cycles: int,
) -> ContinuousCalibration:
    counts = _expect(answers, items, density)
    m_step = _maximise(answers, items, counts)
    leverage = np.einsum("jab,jba->j", m_step.covariance, m_step.information)
    # A new examinee's scores also differ from the curve by the error of the estimated curve.
    k = np.minimum(items.k * (1 + leverage / answers.seen.sum(axis=0)), _MOST_K)
    fitted, bank = (
        ItemBank.from_intercepts(
            a=items.x[:, 0], intercept=items.x[:, 1], k=dispersions, item_ids=table.items
        )
        for dispersions in (items.k, k)
    )
    covariance = _covariance(answers, items, counts, m_step)
    se = np.sqrt(np.einsum("jaa->ja", covariance))
    b = bank.b
    direction = np.stack([-b, -np.ones_like(b)], axis=1) / bank.a[:, None]
    df = m_step.df + min(m_step.df_common, 1e9)
    n_answers = int(answers.seen.sum())
    return ContinuousCalibration(
        bank=bank,
        se_a=se[:, 0],
        se_intercept=se[:, 1],
        se_b=np.sqrt(np.einsum("ja,jab,jb->j", direction, covariance, direction)),
        se_k=bank.k * np.sqrt(2 / df),
        log_likelihood=log_likelihood(answers, fitted, density),
        n_parameters=float(leverage.sum() + (m_step.df / df).sum() + 1),
        k_common=m_step.k_common,
        conformance=conformance(fitted, table.scores, counts.weights @ counts.nodes),
        n_examinees=len(table.examinees),
        n_answers=n_answers,
        converged=converged,
        cycles=cycles,
        warnings=_warnings(m_step, cycles, converged),
    )


def _warnings(m_step: _MStep, cycles: int, converged: bool) -> tuple[str, ...]:
    warnings = []
    if not converged:
        warnings.append(f"Not converged after {cycles} cycles.")
    share = float((m_step.df / (m_step.df + m_step.df_common)).mean())
    if share < _MOSTLY_OWN and m_step.df.mean() < _MANY_ANSWERS:
        warnings.append(
            f"An item's dispersion rests to {percent(share)} on its own answers on average, and "
            "otherwise on those to all items; slopes vary among the items with a standard "
            f"deviation of {m_step.items.spread[0, 0] ** 0.5:.2g}. More examinees would tell "
            "the items apart."
        )
    return tuple(warnings)


def _covariance(answers: Answers, items: _Items, counts: _Counts, m_step: _MStep) -> FloatArray:
    """Covariance of the estimated slopes and intercepts, shape (n_items, 2, 2).

    Inverts each item's information minus the part missing because thetas are unknown (Louis 1982,
    JRSS B 44), then adds the error of theta's scale: with n sampled thetas, their mean shifts each
    intercept by its slope a times N(0, 1/n), and their log sd shifts all log slopes by N(0, 1/2n).
    """
    mu = expit(np.outer(items.x[:, 0], counts.nodes) + items.x[:, 1:])
    squared = counts.squares - 2 * counts.total * mu + counts.seen * mu**2
    missing = np.stack([squared @ counts.nodes**power for power in (2, 1, 1, 0)], axis=1)
    sums = [
        answers.y * (counts.weights @ counts.nodes**power)[:, None]
        - counts.weights @ (mu * counts.nodes**power).T
        for power in (1, 0)
    ]
    first, last = (of_power * answers.seen for of_power in sums)
    missing -= np.stack(
        [(left * right).sum(axis=0) for left in (first, last) for right in (first, last)], axis=1
    )
    lost = missing.reshape(-1, 2, 2) / (items.k**2)[:, None, None]
    known = np.linalg.inv(m_step.covariance)
    left = known - lost
    # With few answers, the estimate of the missing information can exceed the information.
    sound = np.linalg.eigvalsh(left)[:, 0] > 1e-3 * np.linalg.eigvalsh(known)[:, 0]
    covariance: FloatArray = np.linalg.inv(np.where(sound[:, None, None], left, known))
    n = len(answers.y)
    covariance[:, 0, 0] += items.x[:, 0] ** 2 / (2 * n)
    covariance[:, 1, 1] += items.x[:, 0] ** 2 / n
    return covariance
