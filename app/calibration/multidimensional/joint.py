"""Estimates item parameters and abilities jointly by maximum a posteriori, as published.

The loss is l(full) + lambda l(general only) + |x|^2 / 2 + gamma |loadings|_1, minimised by L-BFGS-B
with analytic gradients. The second term (nested only) makes the general ability explain the answers
on its own. For smooth absolute values, each loading is a difference of two parameters >= 0.

Source: the WILD study for the nested loss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.calibration.multidimensional.settings import (
    INTERCEPT_SD,
    MAX_LOADING,
    SLOPE_BOUNDS,
    MultidimensionalSettings,
    RawFit,
    Watch,
    blocks,
    factor_start,
    split_slopes,
)
from app.engine.models.base import FloatArray

_GENERAL_WEIGHT = 0.5  # lambda, weight of the likelihood by the general ability (nested)
_SPARSITY = 0.5  # gamma, weight of the penalty on the loadings' absolute values
_LOG_SLOPE_SD = 0.7  # standard deviation of the prior of log a in the nested model
_GAIN = 1e-5  # the fit ends when an iteration lowers the loss by less than this share
_CELLS = 25_000  # logits computed at a time; intermediate results then fit the processor's cache


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of the parameters of the joint fit in one vector."""

    n_examinees: int
    n_items: int
    n_dimensions: int
    nested: bool

    @property
    def n_abilities(self) -> int:
        return self.n_dimensions + self.nested

    def parts(self, parameters: FloatArray) -> tuple[FloatArray, ...]:
        """Abilities, log a, intercepts, and the positive and the negative parts of the loadings."""
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

    def slopes(self, log_a: FloatArray, loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Discriminations, and the slopes on all abilities."""
        a = np.exp(log_a)
        slopes = a[:, None] * loadings
        return a, np.column_stack([a, slopes]) if self.nested else slopes

    def joined(self, x: FloatArray, log_a: FloatArray, *others: FloatArray) -> FloatArray:
        """The inverse of `parts`."""
        first = (x, log_a) if self.nested else (x,)
        return np.concatenate([part.ravel() for part in (*first, *others)])

    def bounds(self) -> Any:
        """Bounds of the parameters, as `scipy.optimize.Bounds`."""
        from scipy.optimize import Bounds

        n, j, k = self.n_examinees, self.n_items, self.n_dimensions
        sizes = [n * self.n_abilities, j if self.nested else 0, j, 2 * j * k]
        low, high = np.log(SLOPE_BOUNDS)
        return Bounds(
            np.repeat([-np.inf, low, -np.inf, 0.0], sizes),
            np.repeat([np.inf, high, np.inf, MAX_LOADING], sizes),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Answers to a block of items.

    Attributes:
        items: Slice of the items.
        above: Scores minus one half, 0 where there is no answer, shape (n_examinees, n).
        seen: 1 where there is an answer, else 0, same shape; None if no answer is missing.
    """

    items: slice
    above: FloatArray
    seen: FloatArray | None

    def deviance(self, logit: FloatArray) -> tuple[float, FloatArray]:
        """Negative log-likelihood of the answers, and its gradient in the logits.

        With h = z / 2 and y the score, -y log P - (1 - y) log Q is log(2 cosh h) - (y - 1/2) z, and
        its derivative is tanh(h) / 2 - (y - 1/2). This form needs no case distinction by score.
        """
        size = np.abs(logit)
        cost = np.exp(-size)
        np.log1p(cost, out=cost)
        size *= 0.5
        cost += size
        residual = np.tanh(0.5 * logit)
        residual *= 0.5
        if self.seen is not None:
            cost *= self.seen
            residual *= self.seen
        residual -= self.above
        return float(cost.sum()) - float(np.vdot(self.above, logit)), residual


@dataclass(frozen=True, slots=True, eq=False)
class JointLoss:
    """The published loss as a function of all parameters, for one matrix of scores.

    Attributes:
        layout: Layout of the parameters in one vector.
        answers: The scores, in blocks of items.
    """

    layout: _Layout
    answers: tuple[_Block, ...]

    @classmethod
    def of(cls, scores: FloatArray, settings: MultidimensionalSettings) -> "JointLoss":
        """Make the loss for scores in [0, 1], shape (n_examinees, n_items), NaN without answer."""
        n_examinees, n_items = scores.shape
        layout = _Layout(n_examinees, n_items, settings.dimensions or 1, settings.nested)
        return cls(layout, tuple(_blocks_of(scores)))

    def __call__(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """Loss and gradient.

        Args:
            parameters: One vector of the abilities (n, D), log a of all items (nested only), their
                intercepts, and the positive and the negative parts of their K loadings; each array
                is raveled in C order.
        """
        layout = self.layout
        x, log_a, intercept, positive, negative = layout.parts(parameters)
        a, slopes = layout.slopes(log_a, positive - negative)
        loss = 0.5 * float(np.sum(x * x)) + _SPARSITY * float((positive + negative).sum())
        loss += 0.5 * float(np.sum((intercept / INTERCEPT_SD) ** 2))
        loss += 0.5 * float(np.sum((log_a / _LOG_SLOPE_SD) ** 2))
        d_x = x.copy()
        d_slopes, d_intercept = np.empty_like(slopes), intercept / INTERCEPT_SD**2
        for answers in self.answers:
            block = answers.items
            part, residual = answers.deviance(x @ slopes[block].T + intercept[block])
            loss += part
            d_x += residual @ slopes[block]
            d_slopes[block] = residual.T @ x
            d_intercept[block] += residual.sum(axis=0)
            if layout.nested:
                part, residual = answers.deviance(np.outer(x[:, 0], a[block]) + intercept[block])
                loss += _GENERAL_WEIGHT * part
                d_x[:, 0] += _GENERAL_WEIGHT * (residual @ a[block])
                d_slopes[block, 0] += _GENERAL_WEIGHT * (residual.T @ x[:, 0])
                d_intercept[block] += _GENERAL_WEIGHT * residual.sum(axis=0)
        d_loadings = d_slopes[:, -layout.n_dimensions :] * a[:, None]
        d_log_a = (d_slopes * slopes).sum(axis=1) + log_a / _LOG_SLOPE_SD**2
        return loss, layout.joined(
            d_x, d_log_a, d_intercept, d_loadings + _SPARSITY, _SPARSITY - d_loadings
        )


def _blocks_of(scores: FloatArray) -> Iterator[_Block]:
    for items in blocks(scores, _CELLS):
        y = scores[:, items]
        seen = ~np.isnan(y)
        above = np.where(seen, y - 0.5, 0.0)
        yield _Block(items, above, None if seen.all() else seen.astype(np.float64))


def fit_jointly(
    scores: FloatArray, settings: MultidimensionalSettings, watch: Watch | None
) -> RawFit:
    """Fit the number of dimensions in the settings by L-BFGS-B; `watch` gets the loss."""
    loss = JointLoss.of(scores, settings)
    layout = loss.layout
    x, items = factor_start(scores, settings)
    positive, negative = (np.maximum(sign * items.loadings, 0.0) for sign in (1.0, -1.0))
    start = layout.joined(x, np.log(items.a), items.intercept, positive, negative)
    # An ability affects n_items answers, an item parameter n_examinees answers. L-BFGS needs far
    # fewer iterations in units in which the loss has the same curvature in all parameters.
    unit = np.ones_like(start)
    unit[: x.size] = np.sqrt(layout.n_examinees / layout.n_items)
    count = 0

    def scaled(parameters: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = loss(parameters * unit)
        return value, gradient * unit

    def report(intermediate_result: Any) -> None:  # SciPy passes the result by this name
        nonlocal count
        count += 1
        if watch is not None:
            watch(count, float(intermediate_result.fun))

    from scipy.optimize import minimize

    result = minimize(
        scaled,
        start / unit,
        jac=True,
        method="L-BFGS-B",
        bounds=layout.bounds(),
        callback=report,
        options={
            "maxiter": settings.max_iterations,
            "maxfun": 2 * settings.max_iterations,
            "ftol": _GAIN,
        },
    )
    x, log_a, intercept, positive, negative = layout.parts(result.x * unit)
    _, slopes = layout.slopes(log_a, positive - negative)
    # Rescale the abilities to mean 0 and standard deviation 1, with signs so that more is better.
    mean, sd = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    sign = sd * np.where(slopes.sum(axis=0) < 0.0, -1.0, 1.0)
    return RawFit(
        abilities=(x - mean) / sign,
        covariance=np.zeros((layout.n_abilities, layout.n_abilities)),
        items=split_slopes(slopes * sign, intercept + slopes @ mean, nested=settings.nested),
        iterations=int(result.nit),
        converged=bool(result.success),
    )
