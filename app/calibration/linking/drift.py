"""Tests whether new answers follow the items' old curves, and when an item has drifted.

Each item's curve is re-estimated in turn, while the other items keep their old parameters and fix
the scale. The marginal likelihood of the new answers tells whether, how far and in which direction
the curve has moved. A likelihood does not depend on how items were chosen, so answers from adaptive
tests serve as well as complete ones. Items that have moved no longer fix the scale, and all items
are tested again.

Notation: V[i, k] = posterior of examinee i at node k from all other items; (shift, stretch) moves
the old curve to c + (d - c) sigmoid(a e^stretch (theta - b - shift)).

Sources: Thissen, Steinberg & Wainer (1993), in Holland & Wainer, Differential Item Functioning, for
the likelihood-ratio test item by item; Candell & Drasgow (1988), Applied Psychological Measurement
12, for the purification.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, expit, ndtri

from app.calibration.logistic.expectation import LatentDensity, population
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters
from app.errors import CalibrationError

N_NODES = 121
"""Number of nodes over [-6, 6]; they are finer than the posterior of any usual test."""

LEAST_ANSWERS = 30
"""Least number of answers with which an item is tested."""

# An item drifts if its change is significant and large enough to matter: significance level of the
# likelihood-ratio test, and least distance of the curves in probability of a right answer.
SIGNIFICANT, DISTANT = 0.001, 0.1
_MAX_ROUNDS = 6
_POPULATION_TOLERANCE = 1e-4  # logits; the standard error is larger even with thousands
_MAX_STEPS = 50
# Prior sds (logits, log slope) that keep a curve finite with few answers or answers all alike.
_SHIFT_SD, _STRETCH_SD = 2.0, 0.3
_LEAST_ANCHORS = 2


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Drift:
    """Result of a drift analysis; all arrays have shape (n_items,), NaN for untested items.

    Attributes:
        keys: Ids of the items that are both in the answers and in the bank.
        old_b: Difficulty in the bank, in logits.
        new_b: Difficulty estimated from the new answers, on the same scale.
        se: Standard error of `new_b`.
        z: Standard normal deviate of `p_value`, above 0 where the item has become easier.
        p_value: p-value of the likelihood-ratio test of the old curve against the new, 2 df.
        distance: Root mean square difference of the curves over the examinees who answered.
        easier: New minus old mean probability of a right answer over these examinees.
        drifted: Whether the item is beyond both thresholds.
        mean: Mean ability of the examinees, on the bank's scale.
        sd: Standard deviation of the examinees' abilities.
    """

    keys: tuple[str, ...]
    n_answers: IntArray
    old_b: FloatArray
    new_b: FloatArray
    se: FloatArray
    z: FloatArray
    p_value: FloatArray
    distance: FloatArray
    easier: FloatArray
    drifted: BoolArray
    mean: float
    sd: float


def find_drift(matrix: ScoreMatrix, bank: ItemBank, *, old_se: FloatArray | None = None) -> Drift:
    """Compare new answers with the curves of a bank.

    Args:
        matrix: New answers; items that are not in the bank are ignored.
        bank: Bank with the old parameters.
        old_se: Standard errors of the bank's difficulties, logits, and slopes, shape
            (bank.n_items, 2), NaN or None where unknown; they keep the error of an old curve from
            counting as drift.

    Raises:
        CalibrationError: Fewer than two common items with a slope other than 0, or no answers to
            them.
    """
    index = {key: i for i, key in enumerate(bank.item_ids)}
    columns = [j for j, key in enumerate(matrix.items) if key in index and bank.a[index[key]] != 0]
    rows = np.flatnonzero(matrix.answered[:, columns].any(axis=1))
    if len(columns) < _LEAST_ANCHORS or len(rows) == 0:
        raise CalibrationError(
            f"A check for drift needs answers to at least {_LEAST_ANCHORS} items whose slope in "
            f"the bank is not 0, got {len(columns)} such items and {len(rows)} examinees who "
            "answered them."
        )
    common = matrix.select(rows, np.array(columns))
    positions = np.array([index[key] for key in common.items])
    items = bank.parameters.take(positions)
    of_b, of_a = np.zeros((2, len(positions))) if old_se is None else old_se[positions].T
    old_variance = np.nan_to_num(np.column_stack([of_b, of_a / items.a])) ** 2
    return _Search(common, items, old_variance).run()


class _Refit(NamedTuple):
    """One item's curve as estimated from the new answers, compared with the old curve."""

    shift: float
    se: float
    ratio: float
    """Likelihood-ratio statistic: twice the gain in log-likelihood, less for an uncertain curve."""
    distance: float
    easier: float


@dataclass(frozen=True, eq=False)
class _Search:
    matrix: ScoreMatrix
    items: ItemParameters
    old_variance: FloatArray
    """Error variances of b and log a in the bank, shape (n_items, 2)."""

    @property
    def b(self) -> FloatArray:
        difficulties: FloatArray = -self.items.intercept / self.items.a
        return difficulties

    def run(self) -> Drift:
        anchoring = np.ones(self.matrix.n_items, np.bool_)
        drift = self._test(anchoring, LatentDensity.normal(n_nodes=N_NODES))
        for _ in range(_MAX_ROUNDS):
            undrifted = ~drift.drifted
            # Without items that fix the scale, drift of items and of examinees look the same.
            if (undrifted == anchoring).all() or undrifted.sum() < _LEAST_ANCHORS:
                break
            anchoring = undrifted
            start = LatentDensity.normal(mean=drift.mean, sd=drift.sd, n_nodes=N_NODES)
            drift = self._test(anchoring, start)
        return drift

    def _test(self, anchoring: BoolArray, start: LatentDensity) -> Drift:
        """Re-estimate each item's curve while the other `anchoring` items keep their parameters."""
        anchors = self.matrix.select(items=anchoring)
        anchor_items = self.items.take(np.flatnonzero(anchoring))
        density, weights = population(anchors, anchor_items, start, _POPULATION_TOLERANCE)
        n_answers = self.matrix.answers_per_item()
        refits = [
            self._refit(j, weights, density.nodes, is_anchor=bool(anchoring[j]))
            if n_answers[j] >= LEAST_ANSWERS
            else _Refit(*[np.nan] * 5)
            for j in range(self.matrix.n_items)
        ]
        shift, se, ratio, distance, easier = (
            np.array(column) for column in zip(*refits, strict=True)
        )
        p_value = chdtrc(2, ratio)
        drifted = (p_value < SIGNIFICANT) & (distance >= DISTANT)
        return Drift(
            keys=self.matrix.items,
            n_answers=n_answers,
            old_b=self.b,
            new_b=self.b + shift,
            se=se,
            # The Wald statistic would not do: its standard error grows with the shift (Hauck &
            # Donner 1977), so that the clearest cases of drift look doubtful.
            z=np.sign(easier) * -ndtri(np.maximum(p_value, 1e-300) / 2),
            p_value=p_value,
            distance=distance,
            easier=easier,
            drifted=drifted,
            mean=density.mean,
            sd=density.sd,
        )

    def _refit(self, j: int, weights: FloatArray, nodes: FloatArray, *, is_anchor: bool) -> _Refit:
        """Estimate the curve of item `j` from its new answers."""
        curve = _Curve(self.items.take(j), nodes)
        old = curve.at(np.zeros(2))
        scores = self.matrix.scores[:, j]
        by_score = []
        for score, p_old in ((1, old.p), (0, old.q)):
            posteriors = weights[scores == score]
            # If the item is an anchor, the posterior includes its own answer: divide it out.
            others = posteriors / p_old if is_anchor else posteriors
            by_score.append(others / others.sum(axis=1, keepdims=True))
        right, wrong = by_score
        fit = _maximise(curve, right, wrong)
        seen = np.concatenate([right, wrong]).mean(axis=0)
        gap = curve.at(fit.x).p - old.p
        ratio = 2 * max(fit.log_likelihood - _log_likelihood(old, right, wrong), 0.0)
        return _Refit(
            shift=float(fit.x[0]),
            se=float(np.sqrt(np.linalg.inv(fit.information)[0, 0])),
            ratio=ratio * _left(fit, self.old_variance[j]) if ratio else 0.0,
            distance=float(np.sqrt(seen @ gap**2)),
            easier=float(seen @ gap),
        )


class _At(NamedTuple):
    """A moved curve at the nodes, with the gradients of log P and log Q in shift and stretch."""

    p: FloatArray
    q: FloatArray
    slope_p: FloatArray
    """Shape (n_nodes, 2)."""
    slope_q: FloatArray


class _Curve(NamedTuple):
    item: ItemParameters
    nodes: FloatArray

    def at(self, x: FloatArray) -> _At:
        a, intercept, c, d, _ = self.item
        shift, stretch = x
        slope = a * np.exp(stretch)
        z = slope * (self.nodes + intercept / a - shift)
        s, rest = expit(z), expit(-z)
        span = d - c
        # These floors avoid 0/0 at distant nodes, and are too small to change any likelihood.
        p = np.maximum(c + span * s, 1e-300)
        q = np.maximum((1 - d) + span * rest, 1e-300)
        by_z = np.column_stack([np.full_like(z, -slope), z])
        steep = (span * s * rest)[:, None] * by_z
        return _At(p, q, steep / p[:, None], -steep / q[:, None])


class _Fit(NamedTuple):
    x: FloatArray
    information: FloatArray
    log_likelihood: float


def _left(fit: _Fit, old_variance: FloatArray) -> float:
    """Share of the likelihood ratio that is left once the old curve's own error is allowed for.

    The ratio is about the squared length of the change in errors of the new answers alone. It is
    chi-square only in errors of both curves. With few reference models above all the old slope is
    uncertain, and a steep one is mostly too steep. Its standard errors are then too small: those of
    b and log a go with 1 / a. If the curve has not moved, the new slope is the better known one.
    """
    _, stretch = fit.x
    old = old_variance * np.exp(-2 * stretch)
    covariance = np.linalg.inv(fit.information) + np.diag(old)
    own, both = fit.x @ fit.information @ fit.x, fit.x @ np.linalg.solve(covariance, fit.x)
    return float(both / own)


_PENALTY = np.array([_SHIFT_SD**-2, _STRETCH_SD**-2])


def _maximise(curve: _Curve, right: FloatArray, wrong: FloatArray) -> _Fit:
    """Maximise the posterior by damped Newton steps on the outer product of the gradients."""
    x, damping = np.zeros(2), 1e-3
    current = curve.at(x)
    value = _log_likelihood(current, right, wrong)
    for _ in range(_MAX_STEPS):
        scores = _scores(current, right, wrong)
        curvature = scores.T @ scores + np.diag(_PENALTY)
        gradient = scores.sum(axis=0) - _PENALTY * x
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
        proposed = curve.at(x + step)
        new = _log_likelihood(proposed, right, wrong)
        gain = new - value - 0.5 * float(_PENALTY @ ((x + step) ** 2 - x**2))
        if gain < 0:
            damping = max(damping, 1e-2) * 4
            continue
        x, current, value = x + step, proposed, new
        damping *= 0.3
        if gain < 1e-7:
            break
    scores = _scores(current, right, wrong)
    information: FloatArray = scores.T @ scores + np.diag(_PENALTY)
    return _Fit(x, information, value)


def _log_likelihood(at: _At, right: FloatArray, wrong: FloatArray) -> float:
    return float(np.log(right @ at.p).sum() + np.log(wrong @ at.q).sum())


def _scores(at: _At, right: FloatArray, wrong: FloatArray) -> FloatArray:
    """Gradient of each examinee's log-likelihood, shape (n_answers, 2)."""
    parts = [
        (among @ (p[:, None] * slope)) / (among @ p)[:, None]
        for among, p, slope in ((right, at.p, at.slope_p), (wrong, at.q, at.slope_q))
    ]
    return np.concatenate(parts)
